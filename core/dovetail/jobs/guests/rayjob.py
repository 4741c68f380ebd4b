"""The adapter of KubeRay's RayJobs. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import Condition, JobStatus
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet, text
from dovetail.jobs.guests.raycluster import pods_of_cluster

_OVER: Final = frozenset({"Complete", "Failed"})


class RayJobs:
    """A RayJob makes a RayCluster and runs a program on it. Suspended, it deletes that cluster."""

    resource: Resource = Resource(group="ray.io", plural="rayjobs", kind="RayJob")
    prefix: str = "rayjob"
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = ()

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """The pods of its cluster; the pod that submits the program has no GPU and is not held. Raises `GuestError`."""
        if spec.get("clusterSelector"):
            raise GuestError(says.QUEUE_ITS_CLUSTER())
        if spec.get("shutdownAfterJobFinishes") is not True:
            raise GuestError(says.MUST_SHUT_DOWN())
        return pods_of_cluster(spec, within=("rayClusterSpec",))

    def progress(self, guest: Guest) -> JobStatus:
        """The end of its program as the end of a batch Job."""
        status = guest.status
        deployment, program = text(status.get("jobDeploymentStatus")), text(status.get("jobStatus"))
        start, end = text(status.get("startTime")) or None, text(status.get("endTime")) or None
        if deployment == "Suspended":
            return JobStatus(conditions=(Condition(type="Suspended", status="True"),))
        if deployment not in _OVER:
            return JobStatus()
        kind = "Complete" if deployment == "Complete" and program == "SUCCEEDED" else "Failed"
        reason, message = text(status.get("reason")), text(status.get("message"))
        over = Condition(type=kind, status="True", reason=reason, message=message, last_transition_time=end)
        return JobStatus(start_time=start, completion_time=end, conditions=(over,))
