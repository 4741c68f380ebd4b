"""Freezes and thaws pods with the kernel's freezer; memory, sockets and devices stay.

A module of its own: one implementation of `Suspender`; with the checkpoint, another one wraps it.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.turns.cgroup_freezer import Freezing, group_of_pod
from dovetail_agent.turns.state_files import Marks
from dovetail_agent.turns.suspender import Refusal

# A process in an uninterruptible driver call freezes when the call returns.
DEADLINE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.002
# cgroup v1 can stay FREEZING because of processes that were forked meanwhile. A short thaw lets the next freeze include
# them.
_AGAIN_EVERY: Final = 50


class Freezer:
    """A `Suspender` by cgroups. A pod that something else has frozen is left alone."""

    name = "freezer"

    def __init__(
        self,
        freezing: Freezing,
        *,
        marks: Marks,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._freezing = freezing
        self._marks = marks
        self._clock = clock
        self._sleep = sleep
        self._groups: dict[str, Path] = {}

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        """Implement `Suspender.suspend`. Takes milliseconds, and at most `DEADLINE_SECONDS`."""
        group = self._group(tenant.uid)
        if group is None:
            return None
        who = f"{tenant.namespace}/{tenant.name}"
        try:
            if self._freezing.state(group) != "thawed" and not self._marks.has(tenant.uid):
                return Refusal(reason="FrozenByOthers", message=f"pod {who} is frozen by another process")
            self._marks.mark(tenant.uid, group=group.relative_to(self._freezing.root))
            if self._freeze(group):
                return None
            self._thaw(tenant.uid, group=group)
        except FileNotFoundError:  # the pod has ended
            self.forget(tenant.uid)
            return None
        except OSError as error:
            return Refusal(reason="FreezeFailed", message=f"pod {who} cannot be frozen: {error}")
        late = f"pod {who} did not freeze within {DEADLINE_SECONDS:g} s: a process of it is in a call of the kernel"
        return Refusal(reason="FreezeTimedOut", message=late)

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        """Implement `Suspender.resume`."""
        group = self._group(tenant.uid)
        if group is None:
            self.forget(tenant.uid)
            return None
        if not self._marks.has(tenant.uid):
            return None
        try:
            self._thaw(tenant.uid, group=group)
        except FileNotFoundError:
            self.forget(tenant.uid)
        except OSError as error:
            what = f"pod {tenant.namespace}/{tenant.name} cannot be thawed: {error}"
            return Refusal(reason="ThawFailed", message=what)
        return None

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that is gone, with its cgroup."""
        self._groups.pop(uid, None)
        self._marks.drop(uid)

    def thaw_all(self) -> list[str]:
        """Thaw every marked pod, whichever agent froze it. Return a sentence for each failure."""
        failed = []
        for mark in self._marks.all():
            try:
                self._thaw(mark.uid, group=self._freezing.root / mark.group)
            except FileNotFoundError:
                self.forget(mark.uid)
            except OSError as error:
                failed.append(f"pod {mark.uid} cannot be thawed: {error}")
        return failed

    def _group(self, uid: str) -> Path | None:
        if uid not in self._groups and (found := group_of_pod(self._freezing.root, uid=uid)):
            self._groups[uid] = found
        return self._groups.get(uid)

    def _freeze(self, group: Path) -> bool:
        limit = self._clock() + DEADLINE_SECONDS
        tries = 0
        while self._clock() < limit:
            self._freezing.freeze(group)
            if self._freezing.state(group) == "frozen":
                return True
            tries += 1
            if tries % _AGAIN_EVERY == 0:
                self._freezing.thaw(group)
            self._sleep(_POLL_SECONDS)
        return False

    def _thaw(self, uid: str, *, group: Path) -> None:
        self._freezing.thaw(group)
        self._marks.drop(uid)
