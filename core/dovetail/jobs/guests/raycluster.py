"""The adapter of KubeRay's RayClusters. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import JobStatus
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet, conditions_in, pod_set, value_at, whole

_CONDITIONS: Final = {"RayClusterSuspended": "Suspended"}


class RayClusters:
    """A RayCluster has a head and groups of workers of a fixed size. It runs until it is deleted."""

    resource: Resource = Resource(group="ray.io", plural="rayclusters", kind="RayCluster")
    prefix: str = "raycluster"
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = ("ray.io/cluster",)

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """Its head and workers. Raises `GuestError`."""
        return pods_of_cluster(spec, within=())

    def progress(self, guest: Guest) -> JobStatus:
        """Whether it is suspended; its pods say the rest."""
        return JobStatus(conditions=conditions_in(guest.status, renamed=_CONDITIONS))


def pods_of_cluster(spec: Mapping[str, Any], *, within: Path) -> list[PodSet]:
    """The pods of a cluster whose spec is at that place. Raises `GuestError`."""
    prefix = "".join(f"{step}." for step in within)
    if value_at(spec, path=(*within, "enableInTreeAutoscaling")) is True:
        raise GuestError(says.AUTOSCALES(path=prefix))
    groups = value_at(spec, path=(*within, "workerGroupSpecs"))
    head = pod_set(spec, path=(*within, "headGroupSpec", "template"), count=1)
    count = len(groups) if isinstance(groups, list) else 0
    return [head, *(_group(spec, within=within, index=index) for index in range(count))]


def _group(spec: Mapping[str, Any], *, within: Path, index: int) -> PodSet:
    where = (*within, "workerGroupSpecs", index)
    at = f"{''.join(f'{step}.' for step in within)}workerGroupSpecs[{index}]"
    replicas = whole(value_at(spec, path=(*where, "replicas")), default=0, field=f"{at}.replicas")
    least = whole(value_at(spec, path=(*where, "minReplicas")), default=0, field=f"{at}.minReplicas")
    most = whole(value_at(spec, path=(*where, "maxReplicas")), default=max(replicas, least), field=f"{at}.maxReplicas")
    hosts = whole(value_at(spec, path=(*where, "numOfHosts")), default=1, field=f"{at}.numOfHosts")
    # As KubeRay counts (GetWorkerGroupDesiredReplicas).
    wanted = max(least, min(replicas, most))
    is_suspended = value_at(spec, path=(*where, "suspend")) is True
    return pod_set(spec, path=(*where, "template"), count=0 if is_suspended else wanted * hosts)
