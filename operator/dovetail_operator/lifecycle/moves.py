"""The move of a job to other nodes, in its status. Pure.

The steps are:

1. The status names the room that is held for the job elsewhere, before anything ends. The extender holds it from then
   on.
2. The job gets its notice, and its pods end, as those of a preempted job (`lifecycle.preemption`).
3. The queue admits the job to the room that is held, and the plan of that run replaces what was held.
4. The move is over once the run there begins.

A move is given up while the job runs where the job for which it moves no longer starts by that: then nothing has ended.
If the room is lost once the job has ended, the job waits before all others. Each step follows from what the API server
has, so the operator can stop and resume between any two of them.

A module of its own: a state machine across several runs of a job, where `status` says what holds in this one.
"""

import msgspec

from dovetail.api.gpujob import FINISHED, Move
from dovetail.jobs.moves import moved, under_way
from dovetail_operator.job.actions import Stage
from dovetail_operator.job.observation import Observed

_RUNS = frozenset({"Starting", "Running"})


def move_of(seen: Observed, *, stage: Stage) -> Move | None:
    """The move entry of the status."""
    move = seen.move or seen.job.status.move
    if move is None or not under_way(move):
        return move
    if stage.phase in FINISHED or stage.phase in {"Held", "Suspended"}:
        return _over(move)
    if stage.phase not in _RUNS:
        return moved(move, now=seen.now) if stage.phase == "Preempted" and seen.job.status.phase in _RUNS else move
    is_at_work = seen.child is not None and not seen.child.spec.suspend
    if not is_at_work:
        # From here on, the plan holds the room.
        return msgspec.structs.replace(move, reserved=None)
    return _over(move) if stage.phase == "Running" and move.reserved is None else move


def _over(move: Move) -> Move:
    return msgspec.structs.replace(move, by="", reserved=None)
