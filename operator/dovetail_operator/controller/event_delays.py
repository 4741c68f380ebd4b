"""How soon an event of a batch Job or a pod is followed by a reconcile of its GPUJob. Pure.

Between its admission and its start, a job passes through states that follow each other within milliseconds: the batch
Job appears, its pod appears, is bound, runs. A reconcile for each of them would find nothing that is worth a write
(`job.status_pacing`). Such events therefore wait for what follows, and share its reconcile.
"""

from typing import Final

import msgspec

from dovetail.api.builtin import Job, Pod
from dovetail.api.meta import EventType

# Events of a batch Job and its pods come in bursts: one reconcile covers all of them.
BURST_SECONDS: Final = 0.1
# A reconcile of a gang costs more the larger the gang is, and its pods start one after the other.
_PODS_OF_A_BURST: Final = 64
_LONGEST_BURST_SECONDS: Final = 0.5
_PASSING_SECONDS: Final = 1.0
_PASSING_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def child_delay_seconds(child: Job, *, before: Job | None) -> float | None:
    """Seconds until the reconcile after a new version of a batch Job; None if that version changes nothing.

    `before` is the version that was known, if there was one.
    """
    if before is None:
        return _PASSING_SECONDS
    if child.spec.suspend or child.spec != before.spec or not _has_same_metadata(child, before=before):
        return BURST_SECONDS
    counted = msgspec.structs.replace(child.status, active=before.status.active, ready=before.status.ready)
    if counted == before.status:
        # The job's pods say the same, and sooner.
        return None
    started = msgspec.structs.replace(counted, start_time=before.status.start_time)
    return _PASSING_SECONDS if started == before.status else BURST_SECONDS


def pod_delay_seconds(type_: EventType, *, pod: Pod, before: Pod | None, count: int) -> float | None:
    """Seconds until the reconcile after an event of a job's pod; None if the event changes nothing.

    `before` is the version that was known, if there was one. `count` is the number of the job's pods.
    """
    if type_ == "DELETED":
        return BURST_SECONDS
    if (
        before is not None
        and _has_same_metadata(pod, before=before)
        and (pod.spec, pod.status)
        == (
            before.spec,
            before.status,
        )
    ):
        return None
    if _is_passing(pod):
        return _PASSING_SECONDS
    return min(_LONGEST_BURST_SECONDS, BURST_SECONDS * max(1.0, count / _PODS_OF_A_BURST))


def is_passing(delay_seconds: float) -> bool:
    """Whether a delay is that of a state that others soon follow."""
    return delay_seconds >= _PASSING_SECONDS


def _is_passing(pod: Pod) -> bool:
    """Whether the pod is on its way: nothing keeps it from being scheduled and started."""
    if pod.status.phase != "Pending" or pod.metadata.deletion_timestamp is not None:
        return False
    if any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions):
        return False
    waits = (each.state.waiting for each in pod.status.container_statuses)
    return all(wait is None or wait.reason in _PASSING_WAITS for wait in waits)


def _has_same_metadata(new: Job | Pod, *, before: Job | Pod) -> bool:
    version = new.metadata.resource_version
    return new.metadata == msgspec.structs.replace(before.metadata, resource_version=version)
