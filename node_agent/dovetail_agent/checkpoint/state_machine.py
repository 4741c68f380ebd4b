"""Chooses the next step for a process that leaves its devices or returns to them. Pure.

Each step follows from the process's state, as the driver and the freezer report it, and from its goal. This continues
correctly from any interrupted sequence, whichever agent started it. The calls hang on a frozen process, so a frozen
process is thawed before any of them.
"""

from enum import Enum
from typing import Literal

from dovetail_agent.checkpoint.calls import ProcessState

Goal = Literal["Out", "Back"]


class Step(Enum):
    """The next action, or why there is none."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    FREEZE = "freeze"
    THAW = "thaw"
    RESTORE = "restore"
    UNLOCK = "unlock"
    DONE = "done"
    NO_ROOM = "no room"
    UNREADABLE = "unreadable"
    LOST = "lost"


def next_step(goal: Goal, *, state: ProcessState, frozen: bool, room: bool) -> Step:
    """Return the next step towards `goal`.

    `room` says whether the devices have room for all memory that the process brings back.
    """
    if state is ProcessState.FAILED:
        return Step.LOST
    return _out(state, frozen=frozen) if goal == "Out" else _back(state, frozen=frozen, room=room)


def _out(state: ProcessState, *, frozen: bool) -> Step:
    if state is ProcessState.CHECKPOINTED:
        return Step.DONE if frozen else Step.FREEZE
    if frozen:
        return Step.THAW
    return Step.LOCK if state is ProcessState.RUNNING else Step.CHECKPOINT


def _back(state: ProcessState, *, frozen: bool, room: bool) -> Step:
    if state is ProcessState.CHECKPOINTED and not room:
        return Step.NO_ROOM
    if frozen:
        return Step.THAW
    steps = {ProcessState.CHECKPOINTED: Step.RESTORE, ProcessState.LOCKED: Step.UNLOCK}
    return steps.get(state, Step.DONE)
