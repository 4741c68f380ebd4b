"""Moves for a waiting job, computed from the cluster's objects: which running jobs may move, and the plan. Pure."""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.answers.jobs import job_reference
from dovetail.answers.moves import MoveRow, MovesAnswer, PlacedWorker
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
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

_BUDGETS_UNREAD: Final = (
    "PodDisruptionBudgets may not be read, so the plan may need one more pod of one to end than it allows"
)

_MOVE_FOR_IT: Final = "jobs move for it already"


def moves_for(
    job: GPUJob,
    *,
    objects: ClusterObjects,
    budgets: Sequence[PodDisruptionBudget] | None,
    now: datetime,
    to_apply: bool = False,
    reader: Reader = EVERYTHING,
) -> MovesAnswer:
    """The moves that start a waiting job now, or why there are none. See `moves_for_all`."""
    (found,) = moves_for_all([job], objects=objects, budgets=budgets, now=now, to_apply=to_apply, reader=reader)
    return found


def moves_for_all(
    jobs: Sequence[GPUJob],
    *,
    objects: ClusterObjects,
    budgets: Sequence[PodDisruptionBudget] | None,
    now: datetime,
    to_apply: bool = False,
    reader: Reader = EVERYTHING,
) -> list[MovesAnswer]:
    """For each of the waiting jobs, the moves that start it now, or why there are none.

    The plans hold together, and next to the moves that are under way. `budgets` are the PodDisruptionBudgets of all
    namespaces; None where they may not be read. A plan moves jobs that may be preempted, and one `to_apply` only those
    that say that they may move: others need a person's decision. Jobs that the `reader` may not list are not named.
    """
    queue, rules = queue_view(objects, now=now), move_rules_of(objects.settings.moves)
    waiting = {each.key: each for each in queue.waiting}
    allowed, going = Counter(disruptions_allowed(budgets or ())), list(_under_way(objects, queue=queue))
    for each in going:
        allowed.subtract(covered_pods(each.pods, budgets=budgets or ()))
    movable = list(_movable(objects, queue=queue, budgets=budgets or (), rules=rules if to_apply else None))
    movable = [each for each in movable if all(count <= allowed[one] for one, count in each.covered_pods.items())]
    limits = Rules(
        grace_seconds=objects.settings.preemption.grace,
        moves_left=rules.left(objects.jobs, now=now) if to_apply else None,
        disruptions_allowed={budget: max(0, count) for budget, count in allowed.items()},
    )
    claims = dict[str, list[str]]()
    for each in going:
        claims.setdefault(each.by, []).extend(pod.metadata.uid for pod in each.pods)
    moving = [Moving(job=job, claims=tuple(claims[job.key])) for job in order(queue.waiting) if job.key in claims]
    held, after = with_moves(moving, ledger=queue.view.ledger, sites=queue.sites)
    able = MovableJobs(movable, ledger=held, rules=limits)
    found = plan_together(
        [waiting[job.metadata.uid] for job in jobs if job.metadata.uid in waiting and job.metadata.uid not in claims],
        queue=_queue_of(queue, ledger=after, gone={key for each in claims.values() for key in each}),
        movable=able,
        pause=checkpoint,
    )
    notes, by_uid = [_BUDGETS_UNREAD] if budgets is None else [], {each.metadata.uid: each for each in objects.jobs}
    answers = list[MovesAnswer]()
    for job in jobs:
        uid = job.metadata.uid
        plan = found.get(uid) or NoPlan(reason=_MOVE_FOR_IT if uid in claims else _not_waiting(job))
        if isinstance(plan, NoPlan):
            reason = reader.readable(plan.reason)
            answers.append(_no_answer(job, reason=reason, movable=len(movable), notes=notes))
        else:
            rows = [_row(each, job=by_uid[each.mover.job.key], rules=rules, reader=reader) for each in plan.moves]
            answers.append(_answer(job, plan=plan, rows=rows, movable=len(movable), notes=notes))
    return answers


def _answer(job: GPUJob, *, plan: MovePlan, rows: list[MoveRow], movable: int, notes: list[str]) -> MovesAnswer:
    return MovesAnswer(
        job=job_reference(job),
        summary=_summary(job, plan=plan),
        holds=True,
        moves=rows,
        workers=_workers(plan.claims),
        starts_in_seconds=plan.in_seconds,
        otherwise_seconds=plan.otherwise_seconds,
        lost_device_seconds=plan.lost_device_seconds,
        gained_device_seconds=plan.gained_device_seconds,
        compared=plan.compared,
        movable=movable,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Going:
    """A job that moves for `by`, and its pods on nodes, which still run."""

    by: str
    pods: list[Pod]


def _under_way(objects: ClusterObjects, *, queue: QueueView) -> Iterator[_Going]:
    """The jobs whose moves are under way."""
    pods_of = pods_of_batch_jobs(objects.pods)
    for job in objects.jobs:
        move, child = job.status.move, queue.batch_jobs.get(job.metadata.uid)
        if move is not None and under_way(move):
            pods = () if child is None else pods_of.get(child.metadata.uid, ())
            runs = child is not None and is_on_the_way(job, child=child) and move.reserved is not None
            yield _Going(move.by, [pod for pod in pods if runs and pod.spec.node_name and not is_terminated(pod)])


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


def _not_waiting(job: GPUJob) -> str:
    return f"it does not wait for room (phase {job.status.phase or 'not known yet'})"


def _no_answer(job: GPUJob, *, reason: str, movable: int, notes: list[str]) -> MovesAnswer:
    return MovesAnswer(
        job=job_reference(job),
        summary=f"No moves for {_name(job)}: {reason}",
        holds=False,
        moves=[],
        workers=[],
        starts_in_seconds=None,
        otherwise_seconds=None,
        lost_device_seconds=0.0,
        gained_device_seconds=0.0,
        compared=0,
        movable=movable,
        notes=notes,
    )


def _summary(job: GPUJob, *, plan: MovePlan) -> str:
    count = len(plan.moves)
    jobs = f"{count} running job{'s' if count != 1 else ''}"
    otherwise = "" if plan.otherwise_seconds is None else f" instead of {human(plan.otherwise_seconds)}"
    return (
        f"J{_name(job)[1:]} starts within {human(plan.in_seconds)}{otherwise} if {jobs} restart{'s' * (count == 1)} "
        f"elsewhere: {plan.lost_device_seconds / 3600:.2f} GPU hours are lost, and "
        f"{plan.gained_device_seconds / 3600:.2f} are used earlier"
    )


def _name(job: GPUJob) -> str:
    number = "" if job.status.number is None else f" {job.status.number}"
    return f"job{number} ({job.metadata.name})"


def _workers(claims: Sequence[Claim]) -> list[PlacedWorker]:
    return [PlacedWorker(node=claim.node, indexes=[device.index for device in claim.devices]) for claim in claims]
