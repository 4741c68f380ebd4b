"""Rows of jobs, as a caller may see them. Pure."""

from dovetail import names
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.formats.timestamps import after, moment, timestamp
from dovetail.query.jobs.owners import project_of, user_of
from dovetail_gateway.v3.types.jobs import JobDevice, JobRow


def job_row(job: GPUJob) -> JobRow:
    """The row of a job."""
    meta, spec, status = job.metadata, job.spec, job.status
    place = status.queue
    return JobRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        number=status.number,
        user=user_of(job) or "",
        project=project_of(job),
        phase=status.phase or "Queued",
        reason=status.reason,
        message=status.message,
        request=status.request,
        gpus=status.gpus,
        device=status.device,
        workers=spec.workers,
        priority=spec.priority,
        reservation=spec.reservation is not None,
        position=None if place is None else place.position,
        estimated_start=None if place is None else place.estimated_start,
        earliest=None if place is None else place.estimated_start_earliest,
        latest=None if place is None else place.estimated_start_latest,
        after=[each.name for each in spec.dependencies],
        nodes=status.nodes,
        devices=job_devices(job),
        submitted_at=meta.creation_timestamp,
        started_at=status.start_time,
        completed_at=status.completion_time,
        lease_ends_at=None if status.lease is None else status.lease.expiration_time,
        ends_by=end_of(job),
        idle=_idle(status),
    )


def end_of(job: GPUJob) -> str | None:
    """When the job's lease or time limit ends it, from its start or estimated start; None without either."""
    status, limit = job.status, job.spec.active_deadline_seconds
    if status.lease is not None and status.lease.expiration_time:
        return status.lease.expiration_time
    starts_at = status.start_time or (None if status.queue is None else status.queue.estimated_start)
    if limit is None or starts_at is None:
        return None
    return timestamp(after(moment(starts_at), seconds=limit))


def _idle(status: GPUJobStatus) -> str:
    """Since when the job leaves its GPUs idle, in a sentence; empty if it does not."""
    found = find_condition(status.conditions, type=names.CONDITION_IDLE)
    return found.message if found is not None and found.status == "True" else ""


def job_devices(job: GPUJob) -> list[JobDevice]:
    """The devices that a job's workers hold or held."""
    return [
        JobDevice(
            worker=each.worker,
            node=each.node,
            index=each.index,
            uuid=each.uuid,
            share_milli=each.share_milli,
            memory_mib=each.memory_mib,
        )
        for each in job.status.devices
    ]
