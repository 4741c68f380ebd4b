"""Kueue in a replay: since when a pod's job has waited in its queue, and the quotas that kept it there. Pure.

A quota is a sum over the flavors of a ClusterQueue. One that belongs to a cohort may borrow what the others of the
cohort leave, up to its borrowing limit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.api.kueue import ClusterQueue, Workload
from dovetail.formats.quantities import Quantity, QuantityError, whole
from dovetail.formats.timestamps import moment
from dovetail.pods.tenancy import controller_of

# A pod that its controller creates later than this after the admission replaces one that has failed.
_FIRST_PODS_SECONDS: Final = 60.0
# Kueue looks at the jobs without quota this long after quota is free (requeueBatchPeriod in its queue cache).
REQUEUE_SECONDS: Final = 1.0
_NO_LIMIT: Final = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much of one resource a queue has itself, and how much it may borrow."""

    nominal: int
    borrowing: int


class KueueQueues:
    """Kueue's Workloads by the object that each is of, and its ClusterQueues."""

    def __init__(self, *, workloads: Iterable[Workload] = (), clusterqueues: Iterable[ClusterQueue] = ()) -> None:
        self._workloads = {owner.uid: each for each in workloads for owner in each.metadata.owner_references}
        self._cohorts: dict[str, str] = {}
        self._limits: dict[str, Mapping[str, Limit]] = {}
        for queue in clusterqueues:
            self._cohorts[queue.metadata.name] = queue.spec.cohort_name or queue.spec.cohort
            self._limits[queue.metadata.name] = _limits_of(queue)

    def queue_of(self, pod: Pod) -> str:
        """The ClusterQueue that has admitted the pod's job; empty for none."""
        workload = self._workload_of(pod)
        admission = None if workload is None else workload.status.admission
        return "" if admission is None else admission.cluster_queue

    def arrival(self, pod: Pod) -> str:
        """When it began to wait: with its job where Kueue held that, otherwise at its own creation."""
        workload, created = self._workload_of(pod), pod.metadata.creation_timestamp
        if workload is None or not self._came_with_admission(pod):
            return created
        return workload.metadata.creation_timestamp

    def quota_times(self, pod: Pod) -> tuple[str, str] | None:
        """When its job was given quota, and when Kueue saw its end; None for a pod of no queue, or until it ends."""
        said = self._conditions_of(pod)
        since, until = said.get("QuotaReserved", ""), said.get("Finished", "")
        return (since, until) if since and until and self._came_with_admission(pod) else None

    def _came_with_admission(self, pod: Pod) -> bool:
        """Whether the pod was created because its job was admitted."""
        said = self._conditions_of(pod)
        # A job that was evicted has waited several times, and only the last admission is known.
        if not said.get("Admitted") or "Evicted" in said:
            return False
        since = moment(pod.metadata.creation_timestamp) - moment(said["Admitted"])
        return since.total_seconds() <= _FIRST_PODS_SECONDS

    def _conditions_of(self, pod: Pod) -> Mapping[str, str]:
        """When each condition of its job's Workload last changed."""
        workload = self._workload_of(pod)
        conditions = () if workload is None else workload.status.conditions
        return {each.type: each.last_transition_time or "" for each in conditions}

    def has_quota(self, queue: str, *, resource: str, count: int, used: Mapping[tuple[str, str], int]) -> bool:
        """Whether the queue's quota has room for so many more; `used` is by queue and resource."""
        limit = self._limits.get(queue, {}).get(resource)
        if limit is None:
            return True
        wanted, cohort = used.get((queue, resource), 0) + count, self._cohorts[queue]
        if not cohort:
            return wanted <= limit.nominal
        together = [each for each, name in self._cohorts.items() if name == cohort]
        whole_cohort = sum(self._limits[each][resource].nominal for each in together if resource in self._limits[each])
        in_use = sum(used.get((each, resource), 0) for each in together)
        return wanted <= limit.nominal + limit.borrowing and in_use + count <= whole_cohort

    def _workload_of(self, pod: Pod) -> Workload | None:
        owner = controller_of(pod)
        return None if owner is None else self._workloads.get(owner.uid)


def _limits_of(queue: ClusterQueue) -> dict[str, Limit]:
    nominal, borrowing = Counter[str](), Counter[str]()
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for each in flavor.resources:
                nominal[each.name] += _whole(each.nominal_quota)
                borrowing[each.name] += _NO_LIMIT if each.borrowing_limit is None else _whole(each.borrowing_limit)
    return {name: Limit(nominal=nominal[name], borrowing=borrowing[name]) for name in nominal}


def _whole(text: Quantity) -> int:
    try:
        return max(0, whole(text, rounding="down"))
    except QuantityError:
        return 0
