"""Helm installs the chart on a real node: every component is a container, and a job runs. In this order."""

import json
import re

import pytest

from dovetail_sandbox import realnode
from tests.installation import stream
from tests.installation.machine import NAMESPACE, RELEASE, Machine, Name, earlier_chart, make_job, timed

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

KINDS = ("gpujobs", "gpunodes", "gpunodetenants", "gpuquotas", "historyqueries")
# Jobs that are submitted before an upgrade and a rollback, on 32 simulated devices. They take 150 s, and on a free
# machine upgrade and rollback take 45 s.
STREAM = 300
COMPONENTS = {"agent", "certificates", "gateway", "operator", "scheduler", "webhook"}


def test_an_install_that_fails_halfway_is_told_by_helm_and_doctor_in_the_same_words(machine: Machine) -> None:
    stuck = machine.upgrade(values={"scheduler.image.tag": "missing"}, timeout="20s")
    assert stuck.returncode != 0
    expect_same_words(stuck.stderr, machine, about=f"Deployment/{NAMESPACE}/dovetail-scheduler")
    ready = {
        each["metadata"]["name"]: each["status"].get("readyReplicas", 0) for each in machine.objects("deployments")
    }
    assert ready["dovetail-scheduler"] == 0
    assert any(ready.values()), "the other components run"


def test_the_same_install_with_the_right_tag_waits_until_every_component_is_ready(machine: Machine) -> None:
    with timed("helm upgrade --install --wait"):
        done = machine.upgrade()
    assert done.returncode == 0, f"{done.stderr}\n{machine.state()}"
    # The pod of the failed install is on its way out.
    pods = [each for each in machine.objects("pods") if "deletionTimestamp" not in each["metadata"]]
    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in pods} == COMPONENTS
    for pod in pods:
        assert pod["spec"]["nodeName"] == realnode.NODE_NAME
        assert all(each["ready"] for each in pod["status"]["containerStatuses"]), pod["metadata"]["name"]


def test_a_job_gets_devices_and_ends(machine: Machine) -> None:
    machine.until(lambda: advertised(machine) == "2k", what="the agent advertises two devices")
    machine.kubectl("create", "-f", "-", stdin=make_job("first", gpu="2(T4)"))
    with timed("a job of two devices"):
        machine.kubectl("wait", "--for=condition=Complete", "gpujob/first", "--timeout=120s", "--namespace=default")
    job = machine.get("gpujob", "first", namespace="default")
    printed = machine.kubectl("logs", "--selector=dovetail.dev/job=first", "--tail=-1", "--namespace=default")
    seen = dict(line.split("=", 1) for line in printed.splitlines())["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert seen == [device["uuid"] for device in job["status"]["devices"]]


def test_helm_test_proves_that_the_release_works_and_leaves_nothing(machine: Machine) -> None:
    with timed("helm test"):
        done = machine.helm("test", RELEASE, "--logs", "--timeout=2m")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{machine.state()}"
    assert f"ok: A GPUJob ran on {realnode.NODE_NAME} and succeeded." in done.stdout
    assert not [each for each in machine.names() if "test" in each[2] and each[0] != "Event"]


def test_helm_test_says_in_a_sentence_that_no_extender_runs(machine: Machine) -> None:
    machine.kubectl("scale", "deployment/dovetail-scheduler", "--replicas=0", f"--namespace={NAMESPACE}")
    with timed("helm test without an extender"):
        done = machine.helm("test", RELEASE, "--logs", "--timeout=2m")
    machine.kubectl("scale", "deployment/dovetail-scheduler", "--replicas=1", f"--namespace={NAMESPACE}")
    assert done.returncode != 0
    assert "FAILED: dovetail-extender: not running (" in done.stdout
    machine.kubectl("rollout", "status", "deployment/dovetail-scheduler", f"--namespace={NAMESPACE}")


def test_a_half_failed_upgrade_is_repeated_with_the_right_value(machine: Machine) -> None:
    pod = start_long_job(machine)
    refused = machine.upgrade(values={"operator.replicas": -1})
    assert refused.returncode != 0
    assert "at '/operator/replicas'" in refused.stderr
    stuck = machine.upgrade(values={"scheduler.image.tag": "missing"}, timeout="40s")
    assert stuck.returncode != 0
    expect_same_words(stuck.stderr, machine)
    with timed("the same upgrade with the right tag"):
        repeated = machine.upgrade()
    assert repeated.returncode == 0, f"{repeated.stderr}\n{machine.state()}"
    assert long_pod(machine) == pod


@pytest.mark.timeout(1500)
def test_another_version_of_the_chart_and_back_lose_no_job_and_run_none_twice(machine: Machine) -> None:
    chart = earlier_chart(machine.folder / "earlier")
    if chart is None:
        pytest.skip("this is no checkout with an earlier chart of this API version")
    pod, job = long_pod(machine), machine.get("gpujob", "long", namespace="default")
    fleet = machine.upgrade(values={"simulation.enabled": True})
    assert fleet.returncode == 0, f"{fleet.stderr}\n{machine.state()}"
    machine.until(lambda: len(machine.objects("gpunodes")) == 5, what="the agent reports every node's devices")
    stream.submit(machine, count=STREAM)
    revision = json.loads(machine.helm("history", RELEASE, "--max=1", "--output=json").stdout)[0]["revision"]
    with timed("an upgrade to another version, and its CRDs"):
        # With another configuration every component is replaced.
        other = machine.upgrade(chart=chart, values={"simulation.enabled": True, "config.heartbeat_interval": 200})
    assert other.returncode == 0, f"{other.stderr}\n{machine.state()}"
    during = stream.phases(machine)
    assert during["Queued"], f"the stream ended before the rollback: {during}"
    with timed("helm rollback --wait"):
        back = machine.helm("rollback", RELEASE, str(revision), "--wait", "--timeout=4m")
    assert back.returncode == 0, f"{back.stderr}\n{machine.state()}"
    stream.until_succeeded(machine, count=STREAM)
    stream.expect_each_once(machine, count=STREAM)
    print(f"longest time without a placement: {stream.longest_gap_seconds(machine):.0f} s of {STREAM} jobs")
    assert long_pod(machine) == pod
    after = machine.get("gpujob", "long", namespace="default")
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (job["metadata"]["uid"], "Running")
    audit = machine.dovetail("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_an_uninstall_leaves_the_crds_the_jobs_and_the_history(machine: Machine) -> None:
    pod = long_pod(machine)
    with timed("helm uninstall with its clean-up"):
        done = machine.helm("uninstall", RELEASE)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{machine.state()}"
    said = done.stdout + done.stderr
    assert "Deleted Secret dovetail-webhook." in said
    assert "kubectl delete crd --selector app.kubernetes.io/name=dovetail" in said
    wanted = {
        *(("CustomResourceDefinition", "", f"{kind}.dovetail.dev") for kind in KINDS),
        ("PersistentVolumeClaim", NAMESPACE, "dovetail-history"),
        ("PersistentVolumeClaim", NAMESPACE, "dovetail-samples"),
        ("ConfigMap", NAMESPACE, "dovetail-job-numbers"),
    }
    # The garbage collector may still delete what deleted objects owned.
    machine.until(lambda: left(machine) == wanted, what=f"only the CRDs and the history are left, not {left(machine)}")
    assert {"first", "long"} <= {name for kind, _, name in machine.names() if kind == "GPUJob"}
    assert not advertised(machine)
    assert long_pod(machine) == pod, "a running job continues"


def left(machine: Machine) -> set[Name]:
    """What was not there before the first installation, except the jobs."""
    return {each for each in machine.names() - machine.before if each[1] != "default"}


def start_long_job(machine: Machine) -> str:
    machine.kubectl("create", "-f", "-", stdin=make_job("long", command="sleep 3600"))
    machine.until(lambda: bool(long_pod(machine)), what="the job runs")
    return long_pod(machine)


def long_pod(machine: Machine) -> str:
    """The UID of the job's running pod, and how often its container was restarted; empty without one."""
    selector = ("--selector=dovetail.dev/job=long", "--field-selector=status.phase=Running")
    path = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{end}"
    return machine.kubectl("get", "pods", "--namespace=default", *selector, f"--output=jsonpath={path}")


def advertised(machine: Machine) -> str:
    node = machine.get("node", realnode.NODE_NAME)
    return str(node["status"]["allocatable"].get("dovetail.dev/gpu-milli", ""))


def expect_same_words(printed: str, machine: Machine, *, about: str = r"\S+") -> None:
    """Each sentence of Helm's on a resource that is not ready is one of doctor's findings."""
    unready = rf"resource {about} not ready\. status: \w+, message: "
    said = set(re.findall(unready, printed))
    assert said, printed
    assert said <= set(re.findall(unready, machine.dovetail("doctor", "--output=json").stdout))
