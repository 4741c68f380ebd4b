"""What the local node writes of itself and of its pods, as kubelet writes it: other programs read both alike."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail import names
from dovetail_local_node import node_object, pod_status
from dovetail_local_node.admission import Refusal
from dovetail_local_node.machine import Machine
from dovetail_local_node.runs import Ended
from tests.local_node import builders

MACHINE = Machine(cpus=8, memory_mib=1024, boot_id="b", hostname="h", kernel="6.1", architecture="arm64")
BEGAN, NOW = datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 13, 0, 0, 5000, tzinfo=UTC)
ADDRESS = {
    "hostIP": "127.0.0.1",
    "hostIPs": [{"ip": "127.0.0.1"}],
    "podIP": "127.0.0.1",
    "podIPs": [{"ip": "127.0.0.1"}],
}


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_the_node_is_managed_and_says_what_it_is() -> None:
    made = node_object.manifest("local", machine=MACHINE)
    assert made["metadata"]["name"] == "local"
    assert made["metadata"]["labels"] == {
        "kubernetes.io/hostname": "local",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        names.LABEL_MANAGED: "true",
    }


def test_the_api_server_finds_the_logs_and_people_what_is_enforced() -> None:
    status = node_object.status(machine=MACHINE, port=10777, limits="Limits are not enforced: no.", now=NOW)
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10777}}
    assert {"type": "InternalIP", "address": "127.0.0.1"} in status["addresses"]
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["lastHeartbeatTime"]) == ("Ready", "True", "2026-01-31T13:00:00Z")
    assert ready["message"].endswith("Limits are not enforced: no.")
    info = status["nodeInfo"]
    found = (info["architecture"], info["bootID"], info["kernelVersion"], info["containerRuntimeVersion"])
    assert found == ("arm64", "b", "6.1", names.PROCESSES)


def test_the_lease_is_of_the_node_and_ends_after_four_heartbeats() -> None:
    made = node_object.lease("local", node_uid="u", now=NOW)
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == ("kube-node-lease", "local")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "local", "uid": "u"}
    assert made["metadata"]["ownerReferences"] == [owner]
    renewed = {"holderIdentity": "local", "leaseDurationSeconds": 40, "renewTime": "2026-01-31T13:00:00.005000Z"}
    assert made["spec"] == renewed


def test_a_pod_that_runs_is_ready_since_its_start() -> None:
    status = pod_status.running(builders.pod("true"), started_at=BEGAN)
    assert ADDRESS.items() <= status.items()
    assert (status["phase"], status["startTime"]) == ("Running", "2026-01-31T12:00:00Z")
    up = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    assert conditions(status) == dict.fromkeys(up, "True")
    (container,) = status["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": "2026-01-31T12:00:00Z"}}
    assert (container["name"], container["ready"], container["started"]) == ("main", True, True)
    assert container["restartCount"] == 0


@pytest.mark.parametrize(
    ("end", "phase", "reason", "message"),
    [
        (Ended(exit_code=0, at=NOW), "Succeeded", "Completed", ""),
        (Ended(exit_code=3, at=NOW), "Failed", "Error", ""),
        (Ended(exit_code=137, at=NOW), "Failed", "Error", "It ended by SIGKILL."),
        (Ended(exit_code=137, at=NOW, reason="OOMKilled", message="Too much."), "Failed", "OOMKilled", "Too much."),
        (Ended(exit_code=255, at=NOW, reason="Rebooted", message="Again."), "Failed", "Rebooted", "Again."),
    ],
)
def test_a_pod_that_has_ended_says_how_and_when(end: Ended, phase: str, reason: str, message: str) -> None:
    status = pod_status.ended(builders.pod("true"), started_at=BEGAN, end=end)
    assert ADDRESS.items() <= status.items()
    assert (status["phase"], status["message"], status["startTime"]) == (phase, message, "2026-01-31T12:00:00Z")
    (container,) = status["containerStatuses"]
    assert container["state"] == {
        "terminated": {
            "exitCode": end.exit_code,
            "reason": reason,
            "message": message,
            "startedAt": "2026-01-31T12:00:00Z",
            "finishedAt": "2026-01-31T13:00:00Z",
        }
    }
    assert (container["ready"], container["started"]) == (False, False)
    assert conditions(status) == {"ContainersReady": "False", "Ready": "False"}
    why = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    assert {(each["reason"], each["lastTransitionTime"]) for each in status["conditions"]} == {
        (why, "2026-01-31T13:00:00Z")
    }


def test_a_pod_that_is_refused_has_no_containers() -> None:
    status = pod_status.refused(Refusal(reason="NotAJob", message="No job."), now=NOW)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "NotAJob", "No job.")
    assert "containerStatuses" not in status
    assert conditions(status) == {"ContainersReady": "False", "Ready": "False"}
