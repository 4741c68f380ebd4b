"""What jobs should request, from what they used. Pure."""

from collections.abc import Iterable, Iterator

from dovetail.answers.owners import project_of, user_of
from dovetail.answers.waste import RightSizeRow
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.memory_use import name_of_runs
from dovetail.jobs.right_sizes import right_size


def right_sizes(jobs: Iterable[GPUJob]) -> Iterator[RightSizeRow]:
    """The right size of each user's runs of one name, from the latest one that has measurements."""
    latest: dict[tuple[str, str, str], GPUJob] = {}
    for job in jobs:
        if not (job.status.memory or job.status.measured):
            continue
        key = (*name_of_runs(job), user_of(job) or "")
        if key not in latest or latest[key].metadata.creation_timestamp < job.metadata.creation_timestamp:
            latest[key] = job
    for job in latest.values():
        if (found := right_size(job)) is not None:
            yield RightSizeRow(
                namespace=job.metadata.namespace,
                name=name_of_runs(job)[1],
                job=job.metadata.name,
                number=job.status.number,
                user=user_of(job) or "",
                project=project_of(job),
                phase=job.status.phase or "Queued",
                request=found.request,
                suggested=found.suggested,
                saved_gpus=found.saved_gpus,
                promised_mib=found.promised_mib,
                peak_mib=found.peak_mib,
                mean_utilization=found.mean_utilization,
                device_seconds=found.device_seconds,
                runs=found.runs,
                basis=found.basis,
            )
