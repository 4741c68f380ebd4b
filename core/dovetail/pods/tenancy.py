"""What a pod is to the other tenants of its devices, and its proven GPUJob. Pure.

A user with access to a pod can change its labels and annotations at any time. So what others rely on is fixed at bind:
the extender writes it into the allocation, admission keeps it unchanged, and every reader takes it from there.
"""

from dataclasses import dataclass
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.meta import OwnerReference
from dovetail.jobs.seat import seat_of
from dovetail.pods.allocation import Allocation, AllocationError, allocation_in

# The default of a GPUJob without a priority.
DEFAULT_PRIORITY: Final = 10
_JOB: Final = ("batch/v1", "Job")
# A batch Job, by namespace and UID; an owner in another namespace does not count.
Child = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """What a pod is to the other tenants of its devices.

    `job` is the GPUJob of its namespace whose worker it is, empty for other pods. `priority` (0-255) is its weight in
    turns. A `reservation` keeps its devices for people who use them from outside the cluster.
    """

    job: str = ""
    priority: int = DEFAULT_PRIORITY
    reservation: bool = False


def tenancy_in(pod: Pod, *, allocation: Allocation | None) -> Tenancy:
    """What a pod was when it was bound, according to its allocation.

    Where kubelet chose the devices there is no allocation, and one of an earlier version does not contain this. Then
    the job that the pod provably belongs to counts, and its annotations do not.
    """
    if allocation is not None and allocation.priority is not None:
        return Tenancy(job=allocation.job, priority=allocation.priority, reservation=allocation.reservation)
    job = job_of(pod)
    return Tenancy(job=job, reservation=bool(job) and pod.metadata.labels.get(names.LABEL_RESERVATION) == "true")


def job_of(pod: Pod) -> str:
    """The GPUJob of its namespace that the pod belongs to.

    Empty unless both its label and its batch Job name it, or the operator has given it a seat. A GPUJob and its batch
    Job share one name. With the chart's policies only the Job controller creates a pod with that label, only the
    operator a Job whose template has it, and only the operator gives seats.
    """
    if seat_of(pod) is not None:
        return pod.metadata.labels.get(names.LABEL_JOB, "")
    name, owner = pod.metadata.labels.get(names.LABEL_JOB, ""), controller_of(pod)
    is_proven = owner is not None and (owner.api_version, owner.kind, owner.name) == (*_JOB, name)
    return name if is_proven else ""


def job_it_was_of(pod: Pod) -> str:
    """The same for a pod that its batch Job may have left behind: then its allocation counts."""
    if name := job_of(pod):
        return name
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return ""
    return "" if allocation is None else allocation.job


def is_submitted_as_job(pod: Pod) -> bool:
    """Whether the pod is a GPUJob's: a worker, one left behind, or a guest's, whose record may not exist yet."""
    return bool(job_it_was_of(pod)) or names.RUN in pod.metadata.labels


def child_of(pod: Pod) -> Child | None:
    """The batch Job of the GPUJob that the pod belongs to; None for other pods."""
    uid = run_of(pod)
    return (pod.metadata.namespace, uid) if uid and job_of(pod) else None


def run_of(pod: Pod) -> str:
    """The UID of the batch Job that controls the pod; of a guest's pod, that of its GPUJob. Empty without either."""
    if (seat := seat_of(pod)) is not None:
        return seat.job_uid
    owner = controller_of(pod)
    return "" if owner is None else owner.uid


def controller_of(pod: Pod) -> OwnerReference | None:
    """The controller of the pod, according to its owner references."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)
