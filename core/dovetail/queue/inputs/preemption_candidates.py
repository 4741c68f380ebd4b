"""The jobs that preemption may end, and those that it ended for a waiting job. Pure."""

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime

from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob, Move, is_finished
from dovetail.formats.timestamps import moment
from dovetail.jobs.batch_job import is_external, is_on_the_way, true_condition
from dovetail.pods.disruption_budgets import covered_pods
from dovetail.queue.backfill.advance_reservation import is_reserve
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.victims import Running


def served_jobs(jobs: Iterable[GPUJob]) -> frozenset[str]:
    """The UIDs of the jobs that have run since they last preempted others."""
    known = list(jobs)
    left: dict[str, datetime] = {}
    for job in known:
        made = job.status.preemption
        if made is not None and made.by and made.at is None and made.last_time is not None:
            left[made.by] = max(left.get(made.by, moment(made.last_time)), moment(made.last_time))
    if not left:
        return frozenset()
    return frozenset(
        job.metadata.uid for job in known if job.metadata.uid in left and _ran_after(job, then=left[job.metadata.uid])
    )


def _ran_after(job: GPUJob, *, then: datetime) -> bool:
    """Whether it started at `then` or later, was preempted since, or was held after it had run."""
    status, made = job.status, job.status.preemption
    runs = [each.start_time for each in status.attempts[-1:]]
    runs += [made.last_time] if made is not None else []
    runs += [status.admitted_time] if status.earlier_run_seconds else []
    return any(at is not None and moment(at) >= then for at in runs)


def running_of(
    job: GPUJob,
    *,
    child: Job | None,
    pods: Iterable[Pod],
    pods_of_all_runs: Callable[[], Iterable[Pod]],
    served: Container[str],
    quotas: Quotas,
    now: datetime,
    announced: str = "",
    move: Move | None = None,
    budgets: Sequence[PodDisruptionBudget] = (),
) -> Running | None:
    """The job as a preemption candidate, or None.

    None if it neither runs nor was preempted for a job that still waits. `child` is its own batch Job, and `pods` are
    the pods of that batch Job. Only a preempted job needs `pods_of_all_runs`. `served` comes from `served_jobs`.
    `announced` is the UID of the job that it ends for by a decision that its status may not have yet, and `move` such a
    decision on its move.
    """
    made, move = job.status.preemption, move or job.status.move
    yields_to = made.by if made is not None and (made.at is not None or made.by not in served) else ""
    if is_reserve(yields_to) and made is not None and made.at is None and is_on_the_way(job, child=child):
        # It has left a reserve and runs again: no job starts that would say so.
        yields_to = ""
    if is_finished(job) or is_external(job):
        # Kueue would admit a job again that we suspend, and no other job would get its room.
        return None
    if is_on_the_way(job, child=child) and child is not None:
        start, held = job.status.start_time, pods
        if start is None or job.spec.suspend or true_condition(child, "SuccessCriteriaMet", "FailureTarget"):
            return None
        run_seconds, left = (now - moment(start)).total_seconds(), False
        moves = move is not None and bool(move.by) and move.reserved is not None
        yields_to = move.by if move is not None and moves else announced or yields_to
    elif yields_to:
        held, run_seconds, left = pods_of_all_runs(), 0.0, True
        moves = move is not None and move.by == yields_to
    else:
        return None
    uid = job.metadata.uid
    # What is planned for a job that moves is its destination, which its end does not free.
    planned = () if moves else tuple(f"{uid}/{worker}" for worker in range(job.spec.workers))
    return Running(
        key=uid,
        priority=quotas.rank_of(job).priority,
        run_seconds=run_seconds,
        claims=(*_claims(held), *planned),
        preempted=made.count if made is not None else 0,
        yields_to=yields_to,
        left=left,
        preemptible=job.spec.preemptible,
        checkpoint_seconds=job.spec.checkpoint_interval_seconds,
        moves=moves,
        covered_pods=covered_pods(pods, budgets=budgets) if budgets and not left else {},
    )


def _claims(pods: Iterable[Pod]) -> list[str]:
    return [pod.metadata.uid for pod in pods if pod.spec.node_name and not is_terminated(pod)]
