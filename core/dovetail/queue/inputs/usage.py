"""What a job uses of the limits, and what an ended job has used. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask, Claim
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_on_the_way
from dovetail.jobs.runs import end_of_run, workers_of
from dovetail.queue.inputs.candidates import sized
from dovetail.queue.inputs.run_ends import leave_seconds
from dovetail.queue.limits.limits import milli_of, model_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas, subject_of
from dovetail.queue.verdicts import Admitted

# Reads a job's request on demand, because most of thousands of jobs use nothing.
AskOf = Callable[[GPUJob], Ask | None]


def use_of(
    job: GPUJob,
    *,
    child: Job | None,
    ask_of: AskOf,
    admitted: Admitted | None,
    waits: bool,
    quotas: Quotas,
    held: Iterable[Claim] = (),
) -> Counted | None:
    """What an unfinished job uses; None if it neither runs, starts nor `waits` in the queue.

    `child` is its own batch Job. A job that waits is `admitted` before there is one: then it counts as running. What
    runs uses the larger of what its pods hold, the claims `held`, and of what is kept for those that can still come.
    """
    if is_on_the_way(job, child=child):
        workers = None if child is None else child.spec.parallelism
        placement = job.status.placement
        nodes = Counter({} if placement is None else {node.name: node.workers for node in placement.nodes})
        counted = _counted(job, ask_of=ask_of, workers=workers, queued=False, quotas=quotas, nodes=nodes)
        claims = list(held)
        milli, memory_mib = sum(claim.milli for claim in claims), quotas.memory_held(claims)
        if milli <= counted.milli and memory_mib <= counted.memory_mib:
            return counted
        return replace(counted, milli=max(milli, counted.milli), memory_mib=max(memory_mib, counted.memory_mib))
    # A job that moves keeps its place in the limits: what is held for it elsewhere is as much as it held.
    moves = job.status.move is not None and job.status.move.reserved is not None
    if not waits and not moves:
        return None
    job = sized(job, child=None, verdict=admitted)
    nodes = Counter(() if admitted is None else (claim.node for claim in admitted.claims))
    queued = admitted is None and not moves
    return _counted(job, ask_of=ask_of, workers=None, queued=queued, quotas=quotas, nodes=nodes)


def _counted(
    job: GPUJob, *, ask_of: AskOf, workers: int | None, queued: bool, quotas: Quotas, nodes: Mapping[str, int]
) -> Counted:
    """What a job takes; `nodes` are the numbers of its workers by node, as far as they are planned."""
    start, ask = job.status.start_time, ask_of(job)
    workers = job.spec.workers if workers is None else workers
    return Counted(
        uid=job.metadata.uid,
        subject=subject_of(job),
        milli=milli_of(ask, workers=workers),
        memory_mib=quotas.memory_of(ask, workers=workers, nodes=nodes),
        start=None if start is None else moment(start),
        queued=queued,
        workers=job.spec.workers,
        least=job.spec.min_workers,
        group=job.spec.group or "",
        max_concurrent=job.spec.max_concurrent,
        refused=quotas.refusal_of(job),
        model=model_of(ask),
        preemptible=job.spec.preemptible,
        leave_seconds=leave_seconds(job) if quotas.reserve else None,
    )


def use_of_ended(job: GPUJob, *, ask_of: AskOf, quotas: Quotas) -> Counted | None:
    """What an ended job has used; None if its quota has already counted it."""
    start, end = job.status.start_time, job.status.completion_time
    if start is None or end is None or not quotas.wants_use_until(moment(end), subject=subject_of(job)):
        return None
    return _used(job, ask_of=ask_of, start=moment(start), end=moment(end_of_run(job.status) or end))


def use_of_deleted(job: GPUJob, *, ask_of: AskOf, quotas: Quotas, now: datetime) -> Counted | None:
    """What a job that is deleted now has used; None if no quota counts it."""
    if job.status.start_time is None or not quotas.wants_use_until(now, subject=subject_of(job)):
        return None
    end = end_of_run(job.status)
    return _used(job, ask_of=ask_of, start=moment(job.status.start_time), end=now if end is None else moment(end))


def _used(job: GPUJob, *, ask_of: AskOf, start: datetime, end: datetime) -> Counted:
    return Counted(
        uid=job.metadata.uid,
        subject=subject_of(job),
        milli=milli_of(ask_of(job), workers=workers_of(job)),
        start=start,
        end=end,
    )
