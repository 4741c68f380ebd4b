"""The adapter of batch Jobs. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import JobStatus
from dovetail.api.resources import JOBS, Resource
from dovetail.decoding import UnreadableError, convert
from dovetail.jobs.guests.kind import Guest, Path, PodSet, pod_set, whole

_TEMPLATE: Final[Path] = ("template",)


class BatchJobs:
    """A Job has one template, and as many pods at a time as its parallelism allows."""

    resource: Resource = JOBS
    prefix: str = "job"
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = ("batch.kubernetes.io/job-name", "job-name")

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """The Job's pods. Raises `GuestError`."""
        parallelism = whole(spec.get("parallelism"), default=1, field="parallelism")
        completions = whole(spec.get("completions"), default=parallelism, field="completions")
        return [pod_set(spec, path=_TEMPLATE, count=min(parallelism, completions), total=completions)]

    def progress(self, guest: Guest) -> JobStatus:
        """The Job's own status."""
        try:
            return convert(guest.status, as_type=JobStatus)
        except UnreadableError:
            return JobStatus()
