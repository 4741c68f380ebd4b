"""The adapter of Kubeflow's MPIJobs. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import JobStatus
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import (
    Guest,
    GuestError,
    Path,
    PodSet,
    conditions_in,
    pod_set,
    text,
    value_at,
    whole,
)

# The MPI operator's default is None: workers are servers that never end by themselves.
_CLEANS_UP: Final = ("Running", "All")
_CONDITIONS: Final = {"Succeeded": "Complete", "Failed": "Failed", "Suspended": "Suspended"}


class MPIJobs:
    """An MPIJob has a launcher and workers."""

    resource: Resource = Resource(group="kubeflow.org", version="v2beta1", plural="mpijobs", kind="MPIJob")
    prefix: str = "mpijob"
    suspend_path: Path = ("runPolicy", "suspend")
    name_labels: tuple[str, ...] = ("training.kubeflow.org/job-name",)

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """Its launcher and workers. Raises `GuestError`."""
        if value_at(spec, path=("runPolicy", "cleanPodPolicy")) not in _CLEANS_UP:
            raise GuestError(says.MUST_CLEAN_PODS())
        parts = spec.get("mpiReplicaSpecs")
        if not isinstance(parts, Mapping) or not parts:
            raise GuestError(says.NO_ROLE())
        return [
            pod_set(
                spec,
                path=("mpiReplicaSpecs", role, "template"),
                count=whole(
                    part.get("replicas") if isinstance(part, Mapping) else None,
                    # The MPI operator's defaults.
                    default=0 if role == "Worker" else 1,
                    field=f"mpiReplicaSpecs.{role}.replicas",
                ),
            )
            for role, part in sorted(parts.items())
        ]

    def progress(self, guest: Guest) -> JobStatus:
        """Its conditions and times."""
        status, conditions = guest.status, conditions_in(guest.status, renamed=_CONDITIONS)
        end = text(status.get("completionTime")) or None
        return JobStatus(completion_time=end, conditions=conditions)
