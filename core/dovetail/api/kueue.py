"""Kueue's Workloads and ClusterQueues, as far as Dovetail reads them. Data only."""

from collections.abc import Sequence
from typing import Final

from dovetail.api.builtin import Condition, PodSpec
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.formats.quantities import Quantity

# The first version that the API server has. Both have the few fields that are read.
WORKLOADS: Final = tuple(
    Resource(group="kueue.x-k8s.io", version=version, plural="workloads", kind="Workload")
    for version in ("v1beta2", "v1beta1")
)

CLUSTERQUEUES: Final = tuple(
    Resource(group="kueue.x-k8s.io", version=version, plural="clusterqueues", kind="ClusterQueue", namespaced=False)
    for version in ("v1beta2", "v1beta1")
)


class PodTemplate(Described, frozen=True, kw_only=True):
    """The template of a pod set."""

    spec: PodSpec = PodSpec()


class PodSet(Described, frozen=True, kw_only=True):
    """Equal pods of a Workload."""

    count: int = 1
    template: PodTemplate = PodTemplate()


class WorkloadSpec(Described, frozen=True, kw_only=True):
    """What a Workload asks for, and of which queue."""

    queue_name: str = ""
    active: bool = True
    pod_sets: list[PodSet] = []


class Admission(Described, frozen=True, kw_only=True):
    """Which ClusterQueue has admitted a Workload."""

    cluster_queue: str = ""


class WorkloadStatus(Described, frozen=True, kw_only=True):
    """How far Kueue is with a Workload."""

    admission: Admission | None = None
    conditions: list[Condition] = []


class Workload(Described, frozen=True, kw_only=True):
    """Kueue's view of one Job, or of another object that it admits."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ResourceQuota(Described, frozen=True, kw_only=True):
    """The quota of one resource in a flavor; without a borrowing limit, all of the cohort may be borrowed."""

    name: str = ""
    nominal_quota: Quantity = "0"
    borrowing_limit: Quantity | None = None


class FlavorQuotas(Described, frozen=True, kw_only=True):
    """The quotas of one flavor."""

    resources: list[ResourceQuota] = []


class ResourceGroup(Described, frozen=True, kw_only=True):
    """Flavors for the same resources."""

    flavors: list[FlavorQuotas] = []


class ClusterQueueSpec(Described, frozen=True, kw_only=True):
    """The quotas of a ClusterQueue, and its cohort: `cohort` up to v1beta1."""

    cohort: str = ""
    cohort_name: str = ""
    resource_groups: list[ResourceGroup] = []


class ClusterQueue(Described, frozen=True, kw_only=True):
    """A ClusterQueue."""

    metadata: ObjectMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()


def is_admitted(workload: Workload) -> bool:
    """Whether Kueue has let it go, or it has ended."""
    return any(each.type in {"Admitted", "Finished"} and each.status == "True" for each in workload.status.conditions)


def words(conditions: Sequence[Condition]) -> str:
    """Why a Workload is not admitted, in Kueue's words; empty if it is or without a message."""
    found = {condition.type: condition for condition in conditions}
    if _holds(found.get("Admitted")):
        return ""
    messages = [found[name].message for name in ("Evicted", "DeactivationTarget") if _holds(found.get(name))]
    quota = found.get("QuotaReserved")
    if quota is not None:
        messages.append("it has quota, and its admission checks are open" if _holds(quota) else quota.message)
    return "; ".join(dict.fromkeys(each.strip().rstrip(".") for each in messages if each.strip()))


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"
