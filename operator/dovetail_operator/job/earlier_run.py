"""Why a job does not start while an earlier run of it has not ended completely. Pure."""

from collections.abc import Sequence

from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.reasons import start as says
from dovetail.jobs.batch_job import is_guests, true_condition
from dovetail.jobs.obstacle import Obstacle


def suspension_obstacle(job: GPUJob, *, child: Job | None, pods: Sequence[Pod]) -> Obstacle | None:
    """Why a suspended batch Job cannot take another plan yet.

    It has to report that it is suspended, and its pods have to be deleted.
    """
    if child is None or not child.spec.suspend or job.status.phase in FINISHED:
        return None
    # The Job controller may count a pod that ends by the suspension as failed. Once deleted, it no longer does.
    left = [pod for pod in pods if not is_terminated(pod) or pod.metadata.deletion_timestamp is not None]
    started = child.status.start_time is not None
    if left or child.status.active or (started and not true_condition(child, "Suspended")):
        return Obstacle.of(says.EARLIER_PODS())
    return None


def guest_obstacle(job: GPUJob, *, child: Job | None) -> Obstacle | None:
    """Why the record of a guest does not start before the guest was read."""
    if child is not None or not is_guests(job):
        return None
    return Obstacle.of(says.GUEST_UNREAD())


def orphans_obstacle(pods: Sequence[Pod]) -> Obstacle | None:
    """Why a job does not start while pods of a deleted batch Job remain: it would run twice."""
    left = [pod for pod in pods if not pod.metadata.owner_references and pod.metadata.deletion_timestamp is None]
    if left:
        return Obstacle.of(says.ORPHAN_POD(pod=left[0].metadata.name))
    return Obstacle.of(says.EARLIER_PODS()) if pods else None
