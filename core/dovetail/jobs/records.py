"""The record that is kept of a job that has ended. Pure."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import FINISHED, GPUJob, GPUJobStatus, Phase, is_finished
from dovetail.api.historyquery import JobRecord
from dovetail.api.reasons import codes
from dovetail.gpu import mig
from dovetail.gpu.request import WHOLE_MILLI, RequestError, parse
from dovetail.jobs.runs import end_of_run, workers_of

_MOST_DEVICES: Final = 64
_MOST_NODES: Final = 64
_MOST_TEXT: Final = 1000
DELETED: Final = codes.DELETED.code


def is_worth_keeping(job: GPUJob) -> bool:
    """Whether there is something to keep: the job has ended, or has run."""
    return is_finished(job) or (job.status.phase == "Running" and job.status.start_time is not None)


def has_begun(job: GPUJob) -> bool:
    """Whether a run of the job has begun, of this attempt or of an earlier one."""
    return job.status.start_time is not None or bool(job.status.attempts)


def record_of(job: GPUJob) -> JobRecord:
    """The record of a job, from its status."""
    status = job.status
    phase: Phase = status.phase if status.phase in FINISHED else "Running"
    stopped = end_of_run(status) if phase in FINISHED else None
    run_seconds = _seconds(status.start_time, end=stopped)
    gpus = gpus_held(job) or _asked_gpus(job)
    measured = status.measured
    return JobRecord(
        uid=job.metadata.uid,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        number=status.number,
        user=job.metadata.annotations.get(names.USER, ""),
        project=job.metadata.labels.get(names.LABEL_PROJECT, ""),
        phase=phase,
        reason=status.reason,
        message=status.message[:_MOST_TEXT],
        request=status.request,
        gpus=gpus,
        workers=workers_of(job),
        priority=job.spec.priority,
        attempts=status.attempt,
        nodes=status.nodes[:_MOST_NODES],
        devices=list(dict.fromkeys(device.uuid for device in status.devices))[:_MOST_DEVICES],
        submitted=job.metadata.creation_timestamp,
        started=status.start_time,
        ended=status.completion_time if phase in FINISHED else None,
        wait_seconds=_wait_seconds(job),
        run_seconds=status.earlier_run_seconds + run_seconds,
        gpu_seconds=_earlier_gpu_seconds(status, gpus=gpus) + gpus * run_seconds,
        peak_mib=status.memory.peak_mib if status.memory else 0,
        mean_utilization=measured.mean_utilization if measured else None,
    )


def cut_short(record: JobRecord, *, now: datetime, message: str, stopped: str | None = None) -> JobRecord:
    """The record of a job that was deleted before it ended.

    `stopped` is when its run stopped, if it did.
    """
    ended = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run_seconds = _seconds(record.started, end=stopped or ended)
    return msgspec.structs.replace(
        record,
        phase="Cancelled",
        reason=DELETED,
        message=message,
        ended=ended,
        run_seconds=record.run_seconds + run_seconds,
        gpu_seconds=record.gpu_seconds + record.gpus * run_seconds,
    )


def gpus_held(job: GPUJob) -> float:
    """The GPUs that the job holds or held, as far as they are known; MIG instances count by their slices."""
    devices = job.status.devices
    with suppress(RequestError):
        if profile := parse(job.status.request).mig:
            return mig.milli_of(profile, count=len(devices)) / WHOLE_MILLI
    return sum(device.share_milli for device in devices) / WHOLE_MILLI


def _asked_gpus(job: GPUJob) -> float:
    """The GPUs that its workers requested; for a job whose devices are unknown or released."""
    try:
        return workers_of(job) * parse(job.status.request).total_milli / WHOLE_MILLI
    except RequestError:
        return float(job.status.gpus)


def _earlier_gpu_seconds(status: GPUJobStatus, *, gpus: float) -> float:
    """GPU seconds of the runs before the latest one, which has `gpus`.

    Runs of an elastic job may differ in number.
    """
    if status.elastic is None:
        return gpus * status.earlier_run_seconds
    return gpus / status.elastic.workers * status.elastic.earlier_worker_seconds


def _wait_seconds(job: GPUJob) -> float | None:
    status = job.status
    first = next((attempt.start_time for attempt in status.attempts if attempt.start_time), status.start_time)
    return None if first is None else _seconds(job.metadata.creation_timestamp, end=first)


def _seconds(start: str | None, *, end: str | None) -> float:
    """Seconds between two RFC 3339 times; 0 where one is missing, or clocks disagree."""
    if not start or not end:
        return 0.0
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
