"""What right sizes save of the GPU time that was counted, by account: of the latest runs of jobs that exist. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.jobs.runs import end_of_run
from dovetail.query.right_sizes import right_size, saved_by_accepted
from dovetail_gateway.samples.readings import Holding, Place
from dovetail_gateway.samples.usage import Account, Used, spent

_NONE: Final = Used()


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """GPU seconds that right sizes would save, and that accepted ones have saved."""

    savable_seconds: float = 0.0
    saved_seconds: float = 0.0


def savings_of(
    jobs: Iterable[GPUJob], *, accounts: Collection[Account], places: Mapping[str, Place], now: datetime
) -> dict[Account, Saved]:
    """What these jobs could save and have saved on these accounts. `places` are those of devices, by UUID."""
    savable, saved = list[Holding](), list[Holding]()
    for job in jobs:
        if job.status.start_time is None:
            continue
        found = right_size(job, now=now)
        savable += _on_devices(job, gpus=0.0 if found is None else found.saved_gpus, places=places)
        saved += _on_devices(job, gpus=saved_by_accepted(job), places=places)
    first = datetime.combine(min(account.day for account in accounts), datetime.min.time(), UTC)
    could, have = spent(savable, since=first, until=now), spent(saved, since=first, until=now)
    return {
        account: Saved(
            savable_seconds=could.get(account, _NONE).gpu_seconds, saved_seconds=have.get(account, _NONE).gpu_seconds
        )
        for account in accounts
        if account in could or account in have
    }


def _on_devices(job: GPUJob, *, gpus: float, places: Mapping[str, Place]) -> Iterator[Holding]:
    """Those GPUs over the job's latest run, evenly over its devices."""
    devices, end, start = job.status.devices, end_of_run(job.status), job.status.start_time
    if not gpus or start is None:
        return
    for device in devices:
        place = places.get(device.uuid)
        yield Holding(
            namespace=job.metadata.namespace,
            pod="",
            job=job.metadata.uid,
            project=project_of(job),
            user=user_of(job) or "",
            model="" if place is None else place.model,
            promised=gpus / len(devices),
            utilization=None,
            memory_used_mib=None,
            memory_promised_mib=0.0,
            power_watts=None,
            temperature=None,
            since=moment(start),
            until=None if end is None else moment(end),
        )
