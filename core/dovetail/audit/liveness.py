"""What loses capacity or time: room that is kept for no one, jobs that fit and wait, jobs that ended for nothing. Pure.

Each finding is older than a bound by the objects' own timestamps. Some facts have no timestamp, such as when a device
became free: those are `findings.LAGGING`, and count once they have lasted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from dovetail.answers.questions import Finding
from dovetail.api.builtin import Node, Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import find_condition, key_of
from dovetail.audit.room import OpenNode, fits
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_guests
from dovetail.pods.tenancy import job_it_was_of

_AT_WORK: Final = frozenset({"Starting", "Running"})
# Room alone does not start a job that waits for one of these. Of a quota's own reasons, limits are judged by
# `quota_use`, and guarantees lend room by rules that this module does not repeat.
_NOT_FOR_ROOM: Final = frozenset(
    {
        "Held", "BeginTime", "Dependency", "DependencyFailed", "Invalid", "ExternallyManaged", "Quota", "Provisioning",
    }
)  # fmt: skip
# The agent partitions a GPU within seconds once it is idle.
_RESHAPE_SECONDS: Final = 600.0
_DRAIN: Final = "Drain"


class Kept:
    """The nodes on which a plan, a reservation or a nomination keeps something that no pod holds."""

    def __init__(self, jobs: Iterable[GPUJob], *, quotas: Iterable[GPUQuota], pods: Sequence[Pod]) -> None:
        self._reserved: dict[str, set[str]] = {}
        self._always = {pod.status.nominated_node_name for pod in pods if pod.status.nominated_node_name}
        for quota in quotas:
            self._always |= {node.name for node in quota.status.kept}
        bound = Counter(_job_key(pod) for pod in pods if pod.spec.node_name and not is_terminated(pod))
        for job in jobs:
            placement, queue = job.status.placement, job.status.queue
            if placement is not None and bound[key_of(job.metadata)] < sum(node.workers for node in placement.nodes):
                self._always |= {node.name for node in placement.nodes}
            if queue is not None and queue.reserved is not None:
                room = queue.reserved
                self._reserved[job.metadata.uid] = {node.name for node in room.nodes} | {
                    node.name for node in room.kept
                }

    def but_for(self, job: GPUJob) -> AbstractSet[str]:
        """The nodes on which something is kept from this job."""
        others = (nodes for uid, nodes in self._reserved.items() if uid != job.metadata.uid)
        return self._always.union(*others)


def withheld(
    jobs: Iterable[GPUJob],
    *,
    pods: Iterable[Pod],
    gpunodes: Iterable[GPUNode],
    quotas: Iterable[GPUQuota],
    now: datetime,
    older_than: timedelta,
) -> Iterator[Finding]:
    """Capacity that is neither promised to a pod nor free."""
    by_job: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_job[_job_key(pod)].append(pod)
    for job in jobs:
        missing = _workers_without_pods(job, pods=by_job.get(key_of(job.metadata), ()))
        if missing and _is_older(job.status.admitted_time, now=now, than=older_than):
            plural = "" if missing == 1 else "s"
            message = f"its plan keeps room for {missing} worker{plural} that have no pod"
            yield Finding(kind="CapacityWithheld", subject=key_of(job.metadata), message=message)
    for node in gpunodes:
        for uuid, reshape in node.spec.reshape.items():
            if _is_older(reshape.requested_time, now=now, than=max(older_than, timedelta(seconds=_RESHAPE_SECONDS))):
                message = f"GPU {uuid} takes no work since {reshape.requested_time}, when its partition was requested"
                yield Finding(kind="CapacityWithheld", subject=node.metadata.name, message=message)
    for quota in quotas:
        ends = [moment(each.end_time) for each in quota.spec.advance_reservations]
        if quota.status.kept and all(end + older_than < now for end in ends):
            nodes = ", ".join(node.name for node in quota.status.kept)
            message = f"its status keeps GPUs of {nodes}, but none of its advance reservations lasts"
            yield Finding(kind="CapacityWithheld", subject=quota.metadata.name, message=message)


def waiting_though_they_fit(
    jobs: Sequence[GPUJob],
    *,
    nodes: Mapping[str, OpenNode],
    kept: Kept,
    pools: Mapping[str, AbstractSet[str] | None],
    memory_specs: Mapping[str, float],
    now: datetime,
    older_than: timedelta,
) -> Iterator[Finding]:
    """Jobs that whole devices would serve which are free for everyone.

    `pools` are those that the quotas of each job allow, by UID.
    """
    for job in jobs:
        uid, status = job.metadata.uid, job.status
        if status.phase != "Queued" or status.reason in _NOT_FOR_ROOM or job.metadata.deletion_timestamp:
            continue
        if job.spec.suspend or job.spec.cancel or not _is_older(_waits_since(job), now=now, than=older_than):
            continue
        closed = kept.but_for(job)
        there = {name: node for name, node in nodes.items() if name not in closed}
        if fits(job, nodes=there, pools=pools[uid], memory_specs=memory_specs):
            message = f"it waits ({status.reason}: {status.message}), but all its workers fit on free GPUs"
            yield Finding(kind="WaitsThoughItFits", subject=key_of(job.metadata), message=message)


def preempted_for_nothing(
    jobs: Sequence[GPUJob], *, nodes: Iterable[Node], gpunodes: Iterable[GPUNode], now: datetime, older_than: timedelta
) -> Iterator[Finding]:
    """Jobs that were ended for another one which waits on: none while nodes or devices have changed since."""
    by_uid = {job.metadata.uid: job for job in jobs}
    sound = all(device.health == "Healthy" for node in gpunodes for device in node.status.devices)
    changes = [_changed_at(node) for node in nodes]
    for job in jobs:
        preemption = job.status.preemption
        if preemption is None or preemption.last_time is None or preemption.by in {"", _DRAIN}:
            continue
        other, ended = by_uid.get(preemption.by), moment(preemption.last_time)
        if other is None or not sound or ended + older_than > now:
            continue
        if any(changed is None or changed >= ended for changed in changes):
            continue
        if (
            other.status.phase == "Queued"
            and other.status.reason not in _NOT_FOR_ROOM
            and not _ran_since(other, since=ended)
        ):
            message = f"it was ended at {preemption.last_time} for {key_of(other.metadata)}, which has not started"
            yield Finding(kind="PreemptionUnused", subject=key_of(job.metadata), message=message)


def _job_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{job_it_was_of(pod)}"


def _workers_without_pods(job: GPUJob, *, pods: Sequence[Pod]) -> int:
    """The planned workers that neither have a pod nor have succeeded.

    A guest's controller makes its pods in its own time and order, so of a guest only one without any pod counts.
    """
    placement = job.status.placement
    if job.status.phase not in _AT_WORK or placement is None:
        return 0
    planned = sum(node.workers for node in placement.nodes) - len(placement.released)
    live = sum(not is_terminated(pod) for pod in pods)
    succeeded = max(job.status.workers_succeeded, sum(pod.status.phase == "Succeeded" for pod in pods))
    if is_guests(job):
        return 0 if live else planned - min(planned, succeeded)
    return max(0, planned - live - succeeded)


def _waits_since(job: GPUJob) -> str:
    """The last change that may have begun its wait for room."""
    admitted = find_condition(job.status.conditions, type="Admitted")
    preemption = job.status.preemption
    times = [
        job.metadata.creation_timestamp,
        job.spec.begin_time,
        None if admitted is None else admitted.last_transition_time,
        None if preemption is None else preemption.last_time,
    ]
    return max((each for each in times if each), key=moment)


def _ran_since(job: GPUJob, *, since: datetime) -> bool:
    """Whether the job was admitted after a time, whatever became of that run."""
    status = job.status
    times = [status.admitted_time, *(attempt.start_time for attempt in status.attempts)]
    return any(moment(each) >= since for each in times if each)


def _changed_at(node: Node) -> datetime | None:
    """When the node last became ready; None while it is not."""
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "True" or not ready.last_transition_time or node.spec.unschedulable:
        return None
    return moment(ready.last_transition_time)


def _is_older(time: str | None, *, now: datetime, than: timedelta) -> bool:
    return time is not None and moment(time) + than <= now
