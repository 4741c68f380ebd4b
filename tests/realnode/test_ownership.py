"""Whose a process is, where a real kubelet and a real containerd made its cgroup."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_agent.devices.process_memory import owner_of
from dovetail_agent.processes.cgroups import Owner
from dovetail_agent.processes.identity import PROC
from tests.realnode.conftest import RealSandbox

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

# Nobody else sleeps for just so long.
COMMAND = ("sleep", "86387")


@pytest.fixture
def pod(sandbox: RealSandbox) -> Iterator[dict]:
    """A pod on the real node that sleeps."""
    container = {"name": "main", "image": "dovetail.local/env:dev", "imagePullPolicy": "Never", "command": COMMAND}
    tolerations = [{"key": "dovetail.dev/real-node", "operator": "Exists"}]
    spec = {
        "nodeName": "real-0",
        "tolerations": tolerations,
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"}, "spec": spec}
    sandbox.kubectl("create", "-f", "-", "--namespace=default", stdin=json.dumps(body))
    sandbox.kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--namespace=default", "--timeout=60s")
    yield json.loads(sandbox.kubectl("get", "pod", "sleeper", "--namespace=default", "--output=json"))
    sandbox.kubectl("delete", "pod", "sleeper", "--namespace=default")


def running(*command: str) -> list[int]:
    """The processes that run this command."""
    wanted = "".join(f"{word}\0" for word in command).encode()
    return [int(each.parent.name) for each in PROC.glob("[0-9]*/cmdline") if _text(each) == wanted]


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended since the folder was read
        return b""


def test_a_container_s_process_is_its_pod_s(sandbox: RealSandbox, pod: dict) -> None:
    # A container is ready from when runc has let it go, which may be a moment before it runs its command.
    sandbox.wait_until(lambda: bool(running(*COMMAND)))
    (pid,) = running(*COMMAND)
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    assert owner_of(pid) == Owner(pod_uid=pod["metadata"]["uid"], container_id=container)
