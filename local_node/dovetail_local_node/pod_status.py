"""The status of a pod as the local node reports it. Pure.

Each is for a strategic merge patch of `pods/status`, so that the scheduler's conditions stay.

A module of its own: pure, where `pod_life` writes to the API server.
"""

from datetime import datetime
from typing import Any, Final

from dovetail.formats.timestamps import timestamp
from dovetail_local_node import node_object
from dovetail_local_node.admission import Refusal
from dovetail_local_node.pod_object import LocalPod
from dovetail_local_node.runs import Ended

_UP: Final = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
_DOWN: Final = ("ContainersReady", "Ready")
_IMAGE_NOTE: Final = "The local node uses no images: this is a process of this machine."
_KILLED: Final = 137

Status = dict[str, Any]


def running(pod: LocalPod, *, started_at: datetime) -> Status:
    """The status of a pod whose process runs."""
    at = timestamp(started_at)
    return {
        **_common(started_at),
        "phase": "Running",
        "conditions": [{"type": each, "status": "True", "lastTransitionTime": at} for each in _UP],
        "containerStatuses": [_container(pod, state={"running": {"startedAt": at}}, ready=True)],
    }


def ended(pod: LocalPod, *, started_at: datetime, end: Ended) -> Status:
    """The status of a pod whose process has ended."""
    reason, message = _why(end)
    state = {
        "exitCode": end.exit_code,
        "reason": reason,
        "message": message,
        "startedAt": timestamp(started_at),
        "finishedAt": timestamp(end.at),
    }
    return {
        **_common(started_at),
        "phase": "Succeeded" if end.exit_code == 0 else "Failed",
        "message": message,
        "conditions": _down(end.at, reason="PodCompleted" if end.exit_code == 0 else "PodFailed"),
        "containerStatuses": [_container(pod, state={"terminated": state}, ready=False)],
    }


def refused(refusal: Refusal, *, now: datetime) -> Status:
    """The status of a pod that does not run here. Like a pod that kubelet rejects, it has no containers."""
    return {
        "phase": "Failed",
        "reason": refusal.reason,
        "message": refusal.message,
        "startTime": timestamp(now),
        "conditions": _down(now, reason=refusal.reason),
    }


def _common(started_at: datetime) -> Status:
    address = node_object.ADDRESS
    return {
        "startTime": timestamp(started_at),
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
    }


def _why(end: Ended) -> tuple[str, str]:
    if end.reason:
        return end.reason, end.message
    if end.exit_code == 0:
        return "Completed", ""
    killed = "It ended by SIGKILL." if end.exit_code == _KILLED else ""
    return "Error", killed


def _down(at: datetime, *, reason: str) -> list[Status]:
    changed = timestamp(at)
    return [{"type": each, "status": "False", "reason": reason, "lastTransitionTime": changed} for each in _DOWN]


def _container(pod: LocalPod, *, state: Status, ready: bool) -> Status:
    container = pod.spec.containers[0]
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
