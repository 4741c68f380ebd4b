"""Sandboxes as a person has them: real control planes, side by side, interrupted, crashed and gone without a trace."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.process import identity
from dovetail_sandbox import access, bringup, cluster, progress, state
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.errors import ChartError, ComponentFailedError
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.processes import processes
from dovetail_sandbox.programs import catalog, locate
from tests.polling import until

pytestmark = pytest.mark.cluster

SHARED = "shared"
SUFFERS = "suffers"
ALL = ("operator", "extender", "agent", "kube-scheduler")
CLI = [sys.executable, "-m", "dovetail_cli", "sandbox"]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the sandboxes of these tests; whatever a failed test leaves is ended."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder
        _end_all()


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """No test finds what another left, but for the sandboxes of several tests."""
    yield
    _end_all(but=(SHARED, SUFFERS))


@pytest.fixture(scope="module")
def shared(home: Path) -> Iterator[Cluster]:
    """A sandbox for the tests that leave it as it is."""
    with sandbox(SHARED) as made:
        yield made


@pytest.fixture(scope="module")
def suffers(home: Path) -> Iterator[Cluster]:
    """A sandbox for the tests whose order is that of what they kill in it; the last one ends it."""
    with sandbox(SUFFERS, without=("operator", "extender", "agent")) as made:
        yield made


def _end_all(*, but: Container[str] = ()) -> None:
    for folder in state.root().glob("*"):
        if folder.name not in but:
            cluster.get(folder.name).down()


@contextmanager
def sandbox(name: str, **more: Any) -> Iterator[Cluster]:
    """A sandbox with one simulated node and, unless asked otherwise, the control plane alone."""
    made = bringup.up(name, report=progress.Lines(sys.stderr), limit_nodes=1, **({"without": ALL} | more))
    try:
        yield made
    finally:
        made.down()
    assert processes.of_sandbox(made.folder) == []
    assert not made.folder.exists()
    assert not made.down()


def kubectl(made: Cluster, *arguments: str, stdin: str | None = None) -> str:
    program = catalog.tool("kubectl")
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail/bin" / program.key / "kubectl"
    command = [path, f"--kubeconfig={made.kubeconfig}", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def test_two_sandboxes_live_side_by_side(shared: Cluster, suffers: Cluster) -> None:
    assert not set(suffers.state().ports.values()) & set(shared.state().ports.values())
    kubectl(suffers, "create", "namespace", "only-here")
    assert "only-here" not in kubectl(shared, "get", "namespaces")
    assert [made.status().phase for made in (suffers, shared)] == ["Ready", "Ready"]


def test_up_again_changes_nothing(shared: Cluster) -> None:
    before = shared.pid("kube-apiserver")
    again = bringup.up(SHARED, report=progress.Lines(sys.stderr), limit_nodes=1, without=ALL)
    assert again.pid("kube-apiserver") == before


def test_a_component_that_cannot_start_is_reported_by_up_and_leaves_no_process() -> None:
    broken = {"without": ("operator", "extender", "agent"), "overrides": ("scheduler.kubeconfig=/nowhere",)}
    with pytest.raises(ComponentFailedError) as failed, sandbox("one", **broken):
        pass
    made = cluster.get("one")
    # On a busy machine it is started once more before `up` looks.
    said = r"kube-scheduler ended with exit code 1 after [2-9] restarts\. The end of its log \("
    assert re.match(said, str(failed.value))
    assert "/nowhere" in str(failed.value)
    assert processes.of_sandbox(made.folder) == []
    assert (made.status().phase, made.status().message) == ("Failed", str(failed.value))
    assert made.log_file("kube-scheduler").exists()
    assert made.down()


def test_a_value_that_the_chart_refuses_is_told_before_anything_starts() -> None:
    with pytest.raises(ChartError, match="nonsense"), sandbox("one", overrides=("config.nonsense=1",)):
        pass
    assert cluster.get("one").observed() == {}


def test_a_killed_deployable_is_started_again(suffers: Cluster) -> None:
    first, before = suffers.pid("kube-scheduler"), suffers.observed()["kube-scheduler"].restarts
    os.kill(first, signal.SIGKILL)
    until(lambda: suffers.observed()["kube-scheduler"].restarts == before + 1)
    suffers.wait_ready(["kube-scheduler"])
    assert suffers.pid("kube-scheduler") != first
    suffers.stop("kube-scheduler")
    assert suffers.observed()["kube-scheduler"].process is None
    suffers.start("kube-scheduler")
    assert suffers.status().phase == "Ready"


def test_a_crash_of_the_control_plane_is_told(suffers: Cluster) -> None:
    os.kill(suffers.pid("kwok-controller"), signal.SIGKILL)
    until(lambda: suffers.status().phase == "Degraded")
    (dead,) = [each for each in suffers.status().components if each.state != "running"]
    assert (dead.name, dead.last_exit) == ("kwok-controller", "signal SIGKILL")
    assert dead.log_tail in Path(dead.log).read_text()
    assert dead.log_tail
    with pytest.raises(ComponentFailedError, match="kwok-controller ended with signal SIGKILL"):
        bringup.up(SUFFERS, report=progress.Lines(sys.stderr), limit_nodes=1, without=ALL)


def test_down_after_the_supervisor_was_killed_leaves_nothing_and_other_sandboxes_go_on(
    shared: Cluster, suffers: Cluster
) -> None:
    supervisor = suffers.state().supervisor
    assert supervisor
    identity.send(supervisor, signal_number=signal.SIGKILL)
    until(lambda: not identity.alive(supervisor))
    assert suffers.status().phase == "Degraded"
    assert suffers.down()
    assert processes.of_sandbox(suffers.folder) == []
    assert SUFFERS not in state.names()
    assert shared.status().phase == "Ready"


def test_interrupting_up_leaves_nothing(home: Path) -> None:
    starting = subprocess.Popen([*CLI, "up", "--name", "one", "--limit-nodes", "1"], stderr=subprocess.PIPE)
    folder = state.directory("one")
    with starting:
        until(lambda: "etcd" in state.read_observed(folder), seconds=60)
        starting.send_signal(signal.SIGINT)
        assert starting.wait(timeout=60) == 130
    assert processes.of_sandbox(folder) == []
    assert not folder.exists()


def test_half_an_up_is_told_and_taken_away(home: Path) -> None:
    starting = subprocess.Popen([*CLI, "up", "--name", "one", "--limit-nodes", "1"], stderr=subprocess.PIPE)
    made = cluster.get("one")
    with starting:
        until(lambda: "etcd" in state.read_observed(made.folder), seconds=60)
        starting.kill()
    assert made.status().phase == "Failed"
    assert processes.of_sandbox(made.folder)
    made.down()
    assert processes.of_sandbox(made.folder) == []
    assert not made.folder.exists()


def test_the_command_line_tells_what_people_and_programs_need(shared: Cluster) -> None:
    shown = subprocess.run([*CLI, "status", "--name", SHARED, "-o", "json"], capture_output=True, text=True, check=True)
    log = subprocess.run([*CLI, "logs", "etcd", "--name", SHARED], capture_output=True, text=True, check=True)
    nobody = subprocess.run([*CLI, "logs", "nobody", "--name", SHARED], capture_output=True, text=True, check=False)
    assert json.loads(shown.stdout)["kubeconfig"] == str(shared.kubeconfig)
    assert "ready to serve client requests" in log.stdout
    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert nobody.stderr.startswith("dovetail: component: 'nobody' is not allowed; use ")


JOBS = """
apiVersion: batch/v1
kind: Job
metadata: {name: sleeps}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: none, command: [sleep, "2"]}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {sandbox.dovetail.dev/run-seconds: "1", sandbox.dovetail.dev/exit-code: "3"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: none, command: [sleep, "600"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec: {containers: [{name: c, image: none, command: [sleep, "1"]}]}
"""


def test_simulated_pods_run_as_long_as_they_say_and_end_as_they_say(shared: Cluster) -> None:
    kubectl(shared, "apply", "--filename=-", stdin=JOBS)
    kubectl(shared, "wait", "--for=condition=Complete", "job/sleeps", "--timeout=60s")
    kubectl(shared, "wait", "--for=condition=Failed", "job/fails", "--timeout=60s")
    kubectl(shared, "wait", "--for=jsonpath={.status.phase}=Running", "pod/stays", "--timeout=60s")
    pods = {
        pod["metadata"]["name"].split("-")[0]: pod
        for pod in json.loads(kubectl(shared, "get", "pods", "-o", "json"))["items"]
    }
    assert {name: pod["status"]["phase"] for name, pod in pods.items()} == {
        "sleeps": "Succeeded", "fails": "Failed", "stays": "Running",
    }  # fmt: skip
    ended = pods["fails"]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")


LASTING_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: lasts, namespace: going}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: none, command: [sleep, "600"]}]}}
"""


def test_a_namespace_goes_while_the_pods_of_a_job_run_in_it(shared: Cluster) -> None:
    kubectl(shared, "create", "namespace", "going")
    kubectl(shared, "apply", "--filename=-", stdin=LASTING_JOB)
    kubectl(shared, "wait", "--for=jsonpath={.status.ready}=1", "job/lasts", "--namespace=going", "--timeout=60s")
    kubectl(shared, "delete", "namespace", "going", "--timeout=60s")
    assert "going" not in kubectl(shared, "get", "namespaces")


UNKNOWN_FIELDS = {
    "date": {"apiVersion": "v1", "kind": "ConfigMap", "date": {"a": "b"}},
    "spec.replica": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replica": 3}},
    "spec.queue": {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUQuota", "spec": {"queue": 3}},
}


@pytest.mark.parametrize("field", UNKNOWN_FIELDS)
def test_an_object_with_a_field_that_the_api_server_does_not_know_is_not_applied(shared: Cluster, field: str) -> None:
    wrong = UNKNOWN_FIELDS[field] | {"metadata": {"name": "wrong"}}
    with pytest.raises(ChartError, match=rf"\.{field}: field not declared in schema"):
        access.apply(
            Rendered(text="", workloads=(), objects=(wrong,)),
            kubectl=locate.resolve(["kubectl"], report=progress.Lines(sys.stderr))["kubectl"],
            kubeconfig=shared.kubeconfig,
        )


def test_a_bare_sandbox_takes_no_option_of_the_chart() -> None:
    done = subprocess.run([*CLI, "up", "--bare", "--set", "x=1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "bare" in done.stderr
    assert "--nodes, --real-node and --with" in done.stderr
