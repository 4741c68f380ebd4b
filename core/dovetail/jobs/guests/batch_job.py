"""The adapter of batch Jobs. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.builtin import JobStatus
from dovetail.api.resources import JOBS, Resource
from dovetail.decoding import UnreadableError, convert
from dovetail.formats.quantities import read_whole
from dovetail.jobs.guests.kind import Guest, Path, PodSet, Progress, pod_set, text, whole

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

    def progress(self, guest: Guest) -> Progress:
        """The Job's own status."""
        try:
            status = convert(guest.status, as_type=JobStatus)
        except UnreadableError:
            return Progress()
        return Progress(
            active=status.active,
            succeeded=status.succeeded,
            failed=status.failed,
            done=status.succeeded + _failed_indexes(guest),
            start_time=status.start_time,
            completion_time=status.completion_time,
            conditions=status.conditions,
        )


def _failed_indexes(guest: Guest) -> int:
    """How many indexes have failed for good, with `backoffLimitPerIndex`; the status has them as `0-3,7`."""
    spans = [part.partition("-") for part in text(guest.status.get("failedIndexes")).split(",") if part]
    ends = [(read_whole(first, otherwise=0), read_whole(last, otherwise=-1)) for first, _, last in spans]
    return sum(max(0, last - first) + 1 for first, last in ends)
