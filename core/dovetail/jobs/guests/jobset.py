"""The adapter of JobSets. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import JobStatus
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet, conditions_in, pod_set, value_at, whole

_CONDITIONS: Final = {"Completed": "Complete", "Failed": "Failed", "Suspended": "Suspended"}


class JobSets:
    """A JobSet has several batch Jobs, each of some replicas. Its suspension is that of all its Jobs."""

    resource: Resource = Resource(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet")
    prefix: str = "jobset"
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = ("jobset.sigs.k8s.io/jobset-name",)

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """The pods of its Jobs. Raises `GuestError`."""
        parts = spec.get("replicatedJobs")
        if not isinstance(parts, list) or not parts:
            raise GuestError(says.NO_REPLICATED_JOB())
        return [_pods(spec, index=index) for index in range(len(parts))]

    def progress(self, guest: Guest) -> JobStatus:
        """Its conditions; its pods say the rest."""
        return JobStatus(conditions=conditions_in(guest.status, renamed=_CONDITIONS))


def stems_of_jobs(spec: Mapping[str, Any], *, name: str) -> list[str]:
    """What the names of the batch Jobs of a JobSet with this name are before the last dash, which an index follows."""
    parts = spec.get("replicatedJobs")
    found = [each.get("name") for each in parts if isinstance(each, Mapping)] if isinstance(parts, list) else []
    return [f"{name}-{each}" for each in found if isinstance(each, str)]


def _pods(spec: Mapping[str, Any], *, index: int) -> PodSet:
    where, at = ("replicatedJobs", index), f"replicatedJobs[{index}]"
    job = value_at(spec, path=(*where, "template", "spec"))
    job = job if isinstance(job, Mapping) else {}
    replicas = whole(value_at(spec, path=(*where, "replicas")), default=1, field=f"{at}.replicas")
    parallelism = whole(job.get("parallelism"), default=1, field=f"{at}.template.spec.parallelism")
    completions = whole(job.get("completions"), default=parallelism, field=f"{at}.template.spec.completions")
    count, total = replicas * min(parallelism, completions), replicas * completions
    return pod_set(spec, path=(*where, "template", "spec", "template"), count=count, total=total)
