"""What to do next with a process that is to leave its cards, or to come back. Pure.

Each step follows from how the process stands, as the driver and the freezer say, and from where it is to go: whatever
was begun by whom, and however it broke off, this leads on from there. The calls hang on a frozen process, so a frozen
one is thawed before any of them.
"""

from enum import Enum
from typing import Literal

from dovetail_agent.checkpoint.calls import ProcessState

Goal = Literal["Out", "Back"]


class Step(Enum):
    """What is to be done, or that nothing is."""

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
    """The step towards `goal`. `room` says whether the card has room for all that the process would bring back."""
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
