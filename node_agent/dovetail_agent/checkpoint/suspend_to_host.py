"""Moves tenants off their devices and back: a `Suspender` around the freezer.

A tenant that fits on the device with the others is frozen in place. Where the tenants of a device do not fit together,
the agent suspends one in this order: lock it, move its memory to the host, freeze it. To resume it: thaw it, move its
memory back once the device has room, unlock it.

Each step follows from the process's state, as the driver and the freezer report it after the last one, and from its
goal. So it continues correctly from any interrupted sequence, whichever agent started it, and reaches one of three
ends: out and frozen, back and running, or lost, which is final and reported. The driver's calls hang on a frozen
process, so a frozen process is thawed before any of them.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, Protocol

from dovetail.api.gpunodetenants import NodeTenant
from dovetail.logs import get_logger
from dovetail_agent.checkpoint.admission import Candidate, refusal_of, room_for
from dovetail_agent.checkpoint.calls import Calls, CheckpointFailed, ProcessState
from dovetail_agent.checkpoint.state_files import CheckpointMarks, Mark
from dovetail_agent.turns.suspender import Refusal, Suspender

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


log = get_logger(__name__)

# A kernel that runs longer than this keeps its process from being locked. The process is then frozen in place.
LOCK_MILLISECONDS: Final = 5000
# The longest sequence has six steps. This limit ends a loop with a driver that reports inconsistent states.
_MOST_STEPS: Final = 12


class World(Protocol):
    """The node's last observed state, and its current free memory. No method raises."""

    def candidate(self, tenant: NodeTenant) -> Candidate:
        """Describe the tenant as a candidate for a move."""
        ...

    def crowded(self, tenant: NodeTenant) -> bool:
        """Whether the tenants of one of its devices do not fit there together."""
        ...

    def free_mib(self) -> Mapping[str, int]:
        """Free MiB of each device by UUID. A device that cannot be read is missing."""
        ...

    def started(self, pid: int, *, pod_uid: str = "") -> int | None:
        """Start time of a process in ticks since boot.

        None if the process has ended, or is not in the pod `pod_uid` if one is given.
        """
        ...


class SuspendToHost:
    """Suspends and resumes tenants with their memory, as the module describes.

    `troubles` maps pod UIDs to the last problem: why the pod was frozen in place, or that it is lost.
    """

    name = "suspend-to-host"

    def __init__(self, inner: Suspender, *, calls: Calls, marks: CheckpointMarks, world: World) -> None:
        self.moves: Counter[str] = Counter()
        self._inner = inner
        self._calls = calls
        self._marks = marks
        self._world = world
        # A tenant that was left on the host can also be frozen.
        self._frozen = {mark.uid for mark in marks.all()}
        self._held: set[str] = set()
        self._troubles: dict[str, Refusal] = {}
        self._away: frozenset[str] = frozenset()
        self._hand = threading.Lock()

    @property
    def troubles(self) -> Mapping[str, Refusal]:
        """The last problem of each pod, by UID, until a later attempt succeeds."""
        return MappingProxyType(dict(self._troubles))

    @property
    def away(self) -> frozenset[str]:
        """UIDs of pods whose memory is on the host or moving there: no driver lists their processes."""
        return self._away

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        """Implement `Suspender.suspend`.

        A tenant that cannot be moved is frozen in place; see `troubles`.
        """
        with self._hand:
            mark = self._marks.get(tenant.uid)
            if mark is None and self._world.crowded(tenant):
                mark = self._marked(tenant)
            if mark is not None:
                refusal = self._drive("Out", tenant=tenant, mark=mark)
                self._look()
                if refusal is not None:
                    return refusal
            refusal = self._freeze(tenant)
            if refusal is None:
                self._held.add(tenant.uid)
            return refusal

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        """Implement `Suspender.resume`.

        Without room on its devices, the tenant stays frozen and the next call tries again.
        """
        with self._hand:
            mark = self._marks.get(tenant.uid)
            refusal = None if mark is None else self._drive("Back", tenant=tenant, mark=mark)
            self._look()
            if refusal is None or refusal.lost:
                self._held.discard(tenant.uid)
                return self._thaw(tenant) or refusal
            return self._freeze(tenant) or refusal

    def recover(self) -> None:
        """Restore tenants that an earlier agent left on the host.

        The next call retries those without room.
        """
        with self._hand:
            for mark in list(self._marks.all()):
                tenant = NodeTenant(uid=mark.uid, running=True, namespace=mark.namespace, name=mark.name)
                if mark.uid not in self._held and (refusal := self._drive("Back", tenant=tenant, mark=mark)):
                    log.warning("left at the host by an agent before", pod=tenant.name, problem=refusal.message)
            self._look()

    def forget(self, uids: frozenset[str]) -> None:
        """Drop all state of pods other than these."""
        with self._hand:
            self._troubles = {uid: trouble for uid, trouble in self._troubles.items() if uid in uids}
            self._frozen &= uids
            self._held &= uids

    def _marked(self, tenant: NodeTenant) -> Mark | None:
        """Mark a tenant that can be moved. No call is made on a process before it is marked."""
        candidate = self._world.candidate(tenant)
        if not candidate.processes:
            return None
        refusal = refusal_of(candidate)
        pid = candidate.processes[0].pid
        if refusal is None and (began := self._world.started(pid, pod_uid=tenant.uid)) is not None:
            mark = Mark(
                uid=tenant.uid, namespace=tenant.namespace, name=tenant.name, pid=pid, started=began,
                memory_mib=candidate.needs_mib,
            )  # fmt: skip
            try:
                self._marks.write(mark)
            except OSError as error:
                refusal = Refusal(reason="NotWritten", message=f"{candidate.name} cannot be marked: {error}")
            else:
                return mark
        if refusal is not None:
            self._trouble(tenant, refusal=refusal)
        return None

    def _drive(self, goal: Goal, *, tenant: NodeTenant, mark: Mark) -> Refusal | None:
        """Drive the process to `goal`.

        A failure on the way out leads back and is recorded in `troubles`. It is returned only if the tenant is lost.
        """
        out = goal == "Out"
        failed: Step | None = None
        refusal: Refusal | None = None
        for _ in range(_MOST_STEPS):
            step, why = self._next(goal, tenant=tenant, mark=mark)
            if step is Step.DONE:
                self._arrived(goal, tenant=tenant, mark=mark, clean=refusal is None)
                return None
            if step is Step.LOST:
                self._thaw(tenant)
                return self._trouble(tenant, refusal=_lost(mark))
            if step in _STANDS_STILL:
                refusal = self._trouble(tenant, refusal=_refused(step, mark=mark, problem=why))
            if step in _STANDS_STILL or step is failed:
                break
            if problem := self._do(step, tenant=tenant, mark=mark):
                refusal, failed, goal = (
                    self._trouble(tenant, refusal=_refused(step, mark=mark, problem=problem)),
                    step,
                    "Back",
                )
        else:
            refusal = self._trouble(tenant, refusal=_refused(step, mark=mark, problem="the driver leads in circles"))
        return None if out else refusal

    def _next(self, goal: Goal, *, tenant: NodeTenant, mark: Mark) -> tuple[Step, str]:
        """Return the next step, and why it must wait if it must."""
        if not self._alive(mark):
            return Step.DONE, ""
        try:
            state = self._calls.state(mark.pid)
        except CheckpointFailed as error:
            return (Step.UNREADABLE, str(error)) if self._alive(mark) else (Step.DONE, "")
        short = room_for(mark.memory_mib, free_mib=self._world.free_mib()) if _returns(goal, state=state) else ""
        return next_step(goal, state=state, frozen=tenant.uid in self._frozen, room=not short), short

    def _do(self, step: Step, *, tenant: NodeTenant, mark: Mark) -> str:
        """Run one step and return the problem; empty if it succeeded."""
        if step in {Step.FREEZE, Step.THAW}:
            refusal = self._freeze(tenant) if step is Step.FREEZE else self._thaw(tenant)
            return "" if refusal is None else refusal.message
        try:
            if step is Step.LOCK:
                self._calls.lock(mark.pid, timeout_ms=LOCK_MILLISECONDS)
            else:
                {
                    Step.CHECKPOINT: self._calls.checkpoint,
                    Step.RESTORE: self._calls.restore,
                    Step.UNLOCK: self._calls.unlock,
                }[step](mark.pid)
        except CheckpointFailed as error:
            return str(error)
        self.moves[step.value] += 1
        return ""

    def _arrived(self, goal: Goal, *, tenant: NodeTenant, mark: Mark, clean: bool) -> None:
        if goal == "Back" or not self._alive(mark):
            self._marks.drop(tenant.uid)
        if clean:
            self._troubles.pop(tenant.uid, None)

    def _alive(self, mark: Mark) -> bool:
        return self._world.started(mark.pid) == mark.started

    def _freeze(self, tenant: NodeTenant) -> Refusal | None:
        refusal = self._inner.suspend(tenant)
        if refusal is None:
            self._frozen.add(tenant.uid)
        return refusal

    def _thaw(self, tenant: NodeTenant) -> Refusal | None:
        refusal = self._inner.resume(tenant)
        if refusal is None:
            self._frozen.discard(tenant.uid)
        return refusal

    def _trouble(self, tenant: NodeTenant, *, refusal: Refusal) -> Refusal:
        if self._troubles.get(tenant.uid) != refusal:
            self._troubles[tenant.uid] = refusal
            log.warning("not moved", pod=f"{tenant.namespace}/{tenant.name}", why=refusal.reason, said=refusal.message)
        return refusal

    def _look(self) -> None:
        self._away = frozenset(mark.uid for mark in self._marks.all() if self._alive(mark))


def _returns(goal: Goal, *, state: ProcessState) -> bool:
    return goal == "Back" and state is ProcessState.CHECKPOINTED


def _lost(mark: Mark) -> Refusal:
    message = f"the driver has failed {mark.namespace}/{mark.name} for good: what it had on its cards is lost"
    return Refusal(reason="Lost", message=message, lost=True)


_REASONS: Final = {
    Step.LOCK: "LockFailed",
    Step.CHECKPOINT: "CheckpointFailed",
    Step.FREEZE: "FreezeFailed",
    Step.THAW: "ThawFailed",
    Step.RESTORE: "RestoreFailed",
    Step.UNLOCK: "UnlockFailed",
    Step.NO_ROOM: "NoRoom",
    Step.UNREADABLE: "StateUnreadable",
}
_STANDS_STILL: Final = frozenset({Step.NO_ROOM, Step.UNREADABLE})


def _refused(step: Step, *, mark: Mark, problem: str) -> Refusal:
    return Refusal(reason=_REASONS[step], message=f"{mark.namespace}/{mark.name}: {problem}")
