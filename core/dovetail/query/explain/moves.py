"""Moves for a waiting job, computed from the cluster's objects: which running jobs may move, and the plan. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from dovetail.answers.jobs import job_reference
from dovetail.answers.moves import MoveRow, MovesAnswer, PlacedWorker
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.objects import ClusterObjects
from dovetail.engine.model.claims import Claim
from dovetail.formats.durations import human
from dovetail.jobs.moves import MoveRules, under_way
from dovetail.pods.disruption_budgets import disruptions_allowed
from dovetail.query.checkpoints import checkpoint
from dovetail.query.preemption_rules import move_rules_of
from dovetail.query.queue_view import QueueView, queue_view
from dovetail.queue.inputs.leaving_pods import pods_of_batch_jobs
from dovetail.queue.moves.movable import movable_of, pods_to_move
from dovetail.queue.moves.plan import Movable, Move, MovePlan, NoPlan, Rules
from dovetail.queue.moves.proof import plan_moves
from dovetail.queue.moves.search import MovableJobs, Queue

_BUDGETS_UNREAD: Final = (
    "PodDisruptionBudgets may not be read, so the plan may need one more pod of one to end than it allows"
)


def moves_for(
    job: GPUJob,
    *,
    objects: ClusterObjects,
    budgets: Sequence[PodDisruptionBudget] | None,
    now: datetime,
    to_apply: bool = False,
    reader: Reader = EVERYTHING,
) -> MovesAnswer:
    """The moves that start a waiting job now, or why there are none.

    `budgets` are the PodDisruptionBudgets of all namespaces; None where they may not be read. A plan moves jobs that
    may be preempted, and one `to_apply` only those that say that they may move: others need a person's decision. Jobs
    that the `reader` may not list are not named.
    """
    queue, rules = queue_view(objects, now=now), move_rules_of(objects.settings.moves)
    wanted = next((each for each in queue.waiting if each.key == job.metadata.uid), None)
    movable = list(_movable(objects, queue=queue, budgets=budgets or (), rules=rules if to_apply else None))
    found: MovePlan | NoPlan
    if wanted is None:
        found = NoPlan(reason=_not_waiting(job))
    else:
        grace = objects.settings.preemption.grace
        limits = Rules(
            grace_seconds=grace,
            most_moves=min(Rules().most_moves, rules.left(objects.jobs, now=now)) if to_apply else Rules().most_moves,
            disruptions_allowed=disruptions_allowed(budgets or ()),
        )
        able = MovableJobs(movable, ledger=queue.view.ledger, rules=limits)
        found = plan_moves(wanted, queue=_queue_of(queue), movable=able, pause=checkpoint)
    notes = [_BUDGETS_UNREAD] if budgets is None else []
    jobs = {each.metadata.uid: each for each in objects.jobs}
    if isinstance(found, NoPlan):
        reason = reader.readable(found.reason)
        return _no_answer(job, reason=reason, movable=len(movable), notes=notes)
    return MovesAnswer(
        job=job_reference(job),
        summary=_summary(job, plan=found),
        holds=True,
        moves=[_row(each, job=jobs[each.mover.job.key], rules=rules, reader=reader) for each in found.moves],
        workers=_workers(found.claims),
        starts_in_seconds=found.in_seconds,
        otherwise_seconds=found.otherwise_seconds,
        lost_device_seconds=found.lost_device_seconds,
        gained_device_seconds=found.gained_device_seconds,
        compared=found.compared,
        movable=len(movable),
        notes=notes,
    )


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


def _queue_of(view: QueueView) -> Queue:
    """The queue's view as the proof reads it."""
    ledger = view.view.ledger
    return Queue(
        ledger=ledger,
        sites=view.sites,
        waiting=view.waiting,
        leaving=view.expected,
        windows=view.windows(
            ledger=ledger, leaving=view.expected, gate=view.gate(None) if view.quotas.reserve else None
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
    pods_of, allowed = pods_of_batch_jobs(objects.pods), disruptions_allowed(budgets)
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
        found = movable_of(job, candidate=candidate, pods=pods, budgets=budgets, now=queue.now)
        if all(count <= allowed[budget] for budget, count in found.covered_pods.items()):
            yield found


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
