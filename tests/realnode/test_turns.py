"""Two jobs of one device take turns under a real kubelet, and go on whatever becomes of those who stop them."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail_agent.processes.cgroups import owner_in
from dovetail_agent.processes.identity import PROC
from dovetail_agent.turns.cgroup_freezer import Freezing, freezer_at, group_of_pod
from dovetail_sandbox import realnode
from dovetail_sandbox.installed import chart
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.realnode.conftest import RealSandbox
from tests.realnode.host_python import pod_of

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

TURN_SECONDS = 0.5
MEASURED_SECONDS = 30.0
PRIORITIES = {"often": 20, "seldom": 10}
CPU_MOUNTS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup"))
LIVE = "{.status.enforcement.turns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod that counts as fast as it can, with the cgroups in which it does."""

    uid: str
    freezing: Freezing
    group: Path

    @property
    def state(self) -> str:
        return self.freezing.state(self.group)

    @property
    def cpu_seconds(self) -> float:
        """The work that it was let do."""
        path = self.group.relative_to(self.freezing.root)
        for mount in CPU_MOUNTS:
            if (mount / path / "cpuacct.usage").exists():
                return int((mount / path / "cpuacct.usage").read_text()) / 1e9
        stat = dict(line.split() for line in (self.group / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6


def job(name: str, *, priority: int) -> dict[str, Any]:
    """TimeShared on the first card, whoever is there already."""
    container = {"name": "main", "image": "dovetail.local/env:dev", "imagePullPolicy": "Never"}
    container["command"] = ["sh", "-c", "while :; do :; done"]  # type: ignore[assignment]
    pod = {
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    resources = {"share": 0.5, "memory": "4Gi", "models": ["T4"], "device": "cuda:0"}
    spec = {"resources": resources, "mode": "TimeShared", "priority": priority, "template": {"spec": pod}}
    return {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """Agent and watchdog as pods of the real node, from the chart."""
    helm = locate.resolve(["helm"], report=Lines(sys.stderr))["helm"]
    values = {
        "image.registry": chart.BUILT_IMAGES,
        "agent.turns.enabled": True,
        "agent.provider": "simulated",
        "agent.turns.directory": "/run/dovetail-turns",
    }
    rendered = chart.render(helm=helm, values=values)
    workloads = {each["metadata"]["name"]: each for each in rendered.workloads}
    agent = pod_of(
        workloads["dovetail-agent"],
        module="dovetail_agent.main",
        environment={"DOVETAIL_TURN_SECONDS": str(TURN_SECONDS)},
    )
    return {"agent": agent, "thaw": pod_of(workloads["dovetail-thaw"], module="dovetail_agent.turns.watchdog")}


class Node:
    """The real node with an agent and a watchdog of its own."""

    def __init__(self, sandbox: RealSandbox, manifests: dict[str, dict[str, Any]]) -> None:
        self._sandbox = sandbox
        self._manifests = manifests

    def start(self, name: str) -> None:
        self._sandbox.kubectl("create", "-f", "-", stdin=json.dumps(self._manifests[name]))

    def remove(self, name: str) -> None:
        words = ("delete", "pod", f"dovetail-{name}", f"--namespace={chart.NAMESPACE}", "--ignore-not-found")
        self._sandbox.kubectl(*words)

    def kill(self, name: str) -> None:
        """Every process of its container, as the kernel does when memory ends."""
        words = (
            "get",
            "pod",
            f"dovetail-{name}",
            f"--namespace={chart.NAMESPACE}",
            "--output=jsonpath={.metadata.uid}",
        )
        uid = self._sandbox.kubectl(*words)
        killed = [pid for pid in processes_of(uid) if "dovetail_agent" in command(pid)]
        assert killed, "nothing to kill"
        for pid in killed:
            with suppress(ProcessLookupError):  # the kernel ends the others with the container's first
                os.kill(pid, signal.SIGKILL)

    def says_live(self, live: str) -> bool:
        words = ("get", "gpunode", realnode.NODE_NAME, f"--output=jsonpath={LIVE}", "--ignore-not-found")
        return self._sandbox.kubectl(*words) == live

    def tenants(self) -> dict[str, Tenant]:
        freezing = freezer_at()
        found = {}
        for name in PRIORITIES:
            words = ("get", "pods", f"--selector=dovetail.dev/job={name}", "--namespace=default", "--output=json")
            (pod,) = json.loads(self._sandbox.kubectl(*words))["items"]
            uid = pod["metadata"]["uid"]
            group = group_of_pod(freezing.root, uid=uid)
            assert group, f"{name} has no cgroup"
            found[name] = Tenant(uid=uid, freezing=freezing, group=group)
        return found


def processes_of(uid: str) -> list[int]:
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            owner = owner_in((folder / "cgroup").read_text())
        except OSError:  # it has ended since the folder was read
            continue
        if owner and owner.pod_uid == uid:
            found.append(int(folder.name))
    return found


def command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_text()
    except OSError:  # it has ended
        return ""


@pytest.fixture(scope="module")
def node(sandbox: RealSandbox, manifests: dict[str, dict[str, Any]]) -> Iterator[Node]:
    """Agent, watchdog and two jobs at work on one card."""
    sandbox.cluster.stop("agent")
    node = Node(sandbox, manifests)
    try:
        node.start("thaw")
        node.start("agent")
        sandbox.wait_until(lambda: node.says_live("true"), deadline_s=90)
        jobs = [job(name, priority=priority) for name, priority in PRIORITIES.items()]
        sandbox.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(jobs))
        running = ("--for=jsonpath={.status.phase}=Running", "gpujobs", "--all", "--timeout=90s", "--namespace=default")
        sandbox.kubectl("wait", *running)
        yield node
    finally:
        sandbox.kubectl("delete", "gpujobs", "--all", "--wait=true", "--namespace=default")
        for name in ("agent", "thaw"):
            node.remove(name)
        sandbox.cluster.start("agent")


def test_work_stands_still_while_a_tenant_waits_and_is_shared_by_priority(sandbox: RealSandbox, node: Node) -> None:
    tenants = node.tenants()
    sandbox.wait_until(lambda: any(each.state == "frozen" for each in tenants.values()), deadline_s=60)

    began = {name: each.cpu_seconds for name, each in tenants.items()}
    stood = dict.fromkeys(tenants, 0)
    limit = time.monotonic() + MEASURED_SECONDS
    while time.monotonic() < limit:
        for name, each in tenants.items():
            stood[name] += stood_still(each)
    worked = {name: each.cpu_seconds - began[name] for name, each in tenants.items()}

    assert all(stood.values())
    assert enforced_on(sandbox, "often") == "Turns"
    # Turns of 2 to 1; what a turn is worth in CPU time is for the machine's other processes to say.
    assert worked["often"] / worked["seldom"] == pytest.approx(2, rel=0.25)


def enforced_on(sandbox: RealSandbox, name: str) -> str:
    path = "{.status.conditions[?(@.type=='Enforced')].reason}"
    return sandbox.kubectl("get", "gpujob", name, "--namespace=default", f"--output=jsonpath={path}")


def stood_still(tenant: Tenant) -> bool:
    """Whether it was frozen for a moment; then no work was done in it."""
    if tenant.state != "frozen":
        time.sleep(0.01)
        return False
    began, before = time.monotonic(), tenant.cpu_seconds
    time.sleep(0.05)
    after = tenant.cpu_seconds
    # Its turn may have begun meanwhile, or be over again where we have been kept waiting ourselves.
    if tenant.state != "frozen" or time.monotonic() - began > TURN_SECONDS / 2:
        return False
    assert after == before
    return True


def test_when_the_watchdog_is_killed_nobody_is_stopped_any_more(sandbox: RealSandbox, node: Node) -> None:
    node.kill("thaw")
    sandbox.wait_until(lambda: node.says_live("false"), deadline_s=60)
    sandbox.wait_until(lambda: all_run(node), deadline_s=60)
    node.remove("thaw")
    node.start("thaw")
    sandbox.wait_until(lambda: node.says_live("true"), deadline_s=60)


def test_when_the_agent_is_killed_everybody_goes_on(sandbox: RealSandbox, node: Node) -> None:
    tenants = node.tenants()
    sandbox.wait_until(lambda: any(each.state == "frozen" for each in tenants.values()), deadline_s=60)
    node.kill("agent")
    sandbox.wait_until(lambda: all_run(node), deadline_s=60)
    before = {name: each.cpu_seconds for name, each in tenants.items()}
    sandbox.wait_until(
        lambda: all(each.cpu_seconds > before[name] for name, each in tenants.items()) and all_run(node), deadline_s=60
    )


def all_run(node: Node) -> bool:
    return all(each.state == "thawed" for each in node.tenants().values())
