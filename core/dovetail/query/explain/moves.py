"""Moves for a waiting job, computed from the cluster's objects: which running jobs may move, and the plan. Pure."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.answers.jobs import job_reference
from dovetail.answers.moves import MoveRow, MovesAnswer, MovesList, PlacedWorker
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import explain as explained
from dovetail.api.reasons import moves as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.cluster.objects import ClusterObjects
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.formats.durations import human
from dovetail.jobs.batch_job import is_on_the_way
from dovetail.jobs.moves import MoveRules, under_way
from dovetail.pods.disruption_budgets import covered_pods, disruptions_allowed
from dovetail.query.checkpoints import checkpoint
from dovetail.query.preemption_rules import move_rules_of
from dovetail.query.queue_view import QueueView, queue_view
from dovetail.queue.inputs.leaving_pods import pods_of_batch_jobs
from dovetail.queue.model.candidates import order
from dovetail.queue.moves.movable import movable_of, pods_to_move
from dovetail.queue.moves.plan import Movable, Move, MovePlan, NoPlan, Rules
from dovetail.queue.moves.proof import plan_together
from dovetail.queue.moves.search import MovableJobs, Queue
from dovetail.queue.moves.under_way import Moving, with_moves


def moves_for(
    jobs: Sequence[GPUJob],
    *,
    objects: ClusterObjects,
    budgets: Sequence[PodDisruptionBudget] | None,
    now: datetime,
    to_apply: bool = False,
    reader: Reader = EVERYTHING,
) -> MovesList:
    """For each of these jobs, the moves that start it now, or why there are none.

    The plans hold together, and next to the moves that are under way; as for the operator, the first job of the queue
    chooses first. `budgets` are the PodDisruptionBudgets of all namespaces; None where they may not be read. A plan
    moves jobs that may be preempted, and one `to_apply` only those that say that they may move: others need a person's
    decision. Jobs that the `reader` may not list are not named.
    """
    queue, rules = queue_view(objects, now=now), move_rules_of(objects.settings.moves)
    ending, allowed = list(_about_to_end(objects, queue=queue)), Counter(disruptions_allowed(budgets or ()))
    for each in ending:
        allowed.subtract(covered_pods(each.pods, budgets=budgets or ()))
    # Only the operator knows of the moves of deleted jobs: they are of other namespaces too, so no user may read them.
    limits = Rules(
        grace_seconds=objects.settings.preemption.grace,
        moves_left=rules.left(objects.jobs, now=now) if to_apply else None,
        disruptions_allowed={budget: max(0, count) for budget, count in allowed.items()},
    )
    candidates = _movable(objects, queue=queue, budgets=budgets or (), rules=rules if to_apply else None)
    movable = [each for each in candidates if limits.within_budgets([each])]
    claims = dict[str, list[str]]()
    for each in ending:
        if each.by:
            claims.setdefault(each.by, []).extend(pod.metadata.uid for pod in each.pods)
    found = _plans(jobs, queue=queue, claims=claims, movable=movable, limits=limits)
    by_uid = {each.metadata.uid: each for each in objects.jobs}
    notes = [says.BUDGETS_UNREAD()] if budgets is None else []
    answers = list[MovesAnswer]()
    for job in jobs:
        uid = job.metadata.uid
        plan = found.get(uid) or NoPlan(why=says.UNDER_WAY() if uid in claims else _not_waiting(job))
        if isinstance(plan, NoPlan):
            answers.append(_no_answer(job, why=plan.why, movable=len(movable), notes=notes, reader=reader))
        else:
            rows = [_row(each, job=by_uid[each.mover.job.key], rules=rules, reader=reader) for each in plan.moves]
            answers.append(_answer(job, plan=plan, rows=rows, movable=len(movable), notes=notes, reader=reader))
    return MovesList(items=answers)


def _plans(
    jobs: Sequence[GPUJob],
    *,
    queue: QueueView,
    claims: Mapping[str, Sequence[str]],
    movable: Sequence[Movable],
    limits: Rules,
) -> dict[str, MovePlan | NoPlan]:
    """By UID, the plans for those of the jobs that wait. `claims` are what moves for others, by the UID of those."""
    asked = {job.metadata.uid for job in jobs} - claims.keys()
    in_order = order(queue.waiting)
    moving = [Moving(job=job, claims=tuple(claims[job.key])) for job in in_order if job.key in claims]
    held, after = with_moves(moving, ledger=queue.view.ledger, sites=queue.sites)
    return plan_together(
        [job for job in in_order if job.key in asked],
        queue=_queue_of(queue, ledger=after, gone={key for each in claims.values() for key in each}),
        movable=MovableJobs(movable, ledger=held, rules=limits),
        pause=checkpoint,
    )


def _answer(
    job: GPUJob, *, plan: MovePlan, rows: list[MoveRow], movable: int, notes: Sequence[Sentence], reader: Reader
) -> MovesAnswer:
    summary = _summary(job, plan=plan)
    return MovesAnswer(
        job=job_reference(job),
        summary=reader.readable(summary.message),
        details=reader.details(summary),
        holds=True,
        moves=rows,
        workers=_workers(plan.claims),
        starts_in_seconds=plan.in_seconds,
        otherwise_seconds=plan.otherwise_seconds,
        lost_device_seconds=plan.lost_device_seconds,
        gained_device_seconds=plan.gained_device_seconds,
        compared=plan.compared,
        movable=movable,
        notes=[each.message for each in notes],
        note_details=[reader.details(each) for each in notes],
    )


@dataclass(frozen=True, slots=True)
class _Ending:
    """The pods of a job that is about to end for others; `by` is the UID of the job for which it moves, else empty."""

    by: str
    pods: list[Pod]


def _about_to_end(objects: ClusterObjects, *, queue: QueueView) -> Iterator[_Ending]:
    """The jobs that move, or are preempted: what budgets allow their pods is spent, though these may still run."""
    pods_of = pods_of_batch_jobs(objects.pods)
    for job in objects.jobs:
        move, child = job.status.move, queue.batch_jobs.get(job.metadata.uid)
        moves, notice = under_way(move), job.status.preemption
        if not moves and (notice is None or notice.at is None):
            continue
        pods = () if child is None else pods_of.get(child.metadata.uid, ())
        runs = child is not None and is_on_the_way(job, child=child)
        runs = runs and (move is None or not moves or move.reserved is not None)
        bound = [pod for pod in pods if runs and pod.spec.node_name and not is_terminated(pod)]
        yield _Ending(move.by if move is not None and moves else "", bound)


def _row(move: Move, *, job: GPUJob, rules: MoveRules, reader: Reader) -> MoveRow:
    return MoveRow(
        job=job_reference(job) if reader.sees(job.metadata.namespace) else None,
        moves=rules.of(job),
        source=_workers(move.held),
        destination=_workers(move.claims),
        saves_every_seconds=job.spec.checkpoint_interval_seconds,
        lost_device_seconds=move.lost_device_seconds,
        away_seconds=move.away_seconds,
    )


def _queue_of(view: QueueView, *, ledger: Ledger, gone: Container[str]) -> Queue:
    """The queue's view as the proof reads it, on a ledger without the claims that are `gone`."""
    expected = [each for each in view.expected if each.key not in gone]
    return Queue(
        ledger=ledger,
        sites=view.sites,
        waiting=view.waiting,
        leaving=expected,
        windows=view.windows(
            ledger=view.view.ledger, leaving=view.expected, gate=view.gate(None) if view.quotas.reserve else None
        ),
        gate=lambda: view.gate(None),
    )


def _movable(
    objects: ClusterObjects,
    *,
    queue: QueueView,
    budgets: Sequence[PodDisruptionBudget],
    rules: MoveRules | None,
) -> Iterator[Movable]:
    """The running jobs that may restart elsewhere: by `rules` alone where given, else those that may be preempted."""
    pods_of = pods_of_batch_jobs(objects.pods)
    for job in objects.jobs:
        checkpoint()
        child = queue.batch_jobs.get(job.metadata.uid)
        pods = pods_to_move(
            job,
            child=child,
            pods=() if child is None else pods_of.get(child.metadata.uid, ()),
            least_seconds=objects.settings.preemption.min_run,
            now=queue.now,
        )
        if not pods or under_way(job.status.move) or (rules is not None and not rules.lets_move(job, now=queue.now)):
            continue
        candidate = queue.candidate(job, child=child, workers=job.spec.workers)
        if candidate is None:
            continue
        yield movable_of(job, candidate=candidate, pods=pods, budgets=budgets, now=queue.now)


def _not_waiting(job: GPUJob) -> Sentence:
    return says.DOES_NOT_WAIT(phase=job.status.phase) if job.status.phase else explained.NOT_SEEN()


def _no_answer(job: GPUJob, *, why: Sentence, movable: int, notes: Sequence[Sentence], reader: Reader) -> MovesAnswer:
    number, name = job.status.number, job.metadata.name
    summary = says.NONE_FOR(job=name) if number is None else says.NONE_FOR_NUMBERED(job=name, number=number)
    return MovesAnswer(
        job=job_reference(job),
        summary=reader.readable((summary + why).message),
        details=reader.details(summary + why),
        holds=False,
        moves=[],
        workers=[],
        starts_in_seconds=None,
        otherwise_seconds=None,
        lost_device_seconds=0.0,
        gained_device_seconds=0.0,
        compared=0,
        movable=movable,
        notes=[each.message for each in notes],
        note_details=[reader.details(each) for each in notes],
    )


def _summary(job: GPUJob, *, plan: MovePlan) -> Sentence:
    number, name, otherwise = job.status.number, job.metadata.name, plan.otherwise_seconds
    subject = explained.JOB(job=name) if number is None else explained.JOB_NUMBERED(job=name, number=number)
    starts = says.STARTS_WITHIN(time=human(plan.in_seconds))
    instead = NOTHING if otherwise is None else says.INSTEAD_OF(time=human(otherwise))
    restart = says.IF_JOBS_RESTART(
        count=len(plan.moves),
        lost=f"{plan.lost_device_seconds / 3600:.2f}",
        gained=f"{plan.gained_device_seconds / 3600:.2f}",
    )
    return subject + starts + instead + restart


def _workers(claims: Sequence[Claim]) -> list[PlacedWorker]:
    return [PlacedWorker(node=claim.node, indexes=[device.index for device in claim.devices]) for claim in claims]
