"""`python -m dovetail_agent.turns.watchdog`: thaws what an ended agent has frozen.

It runs in a pod of its own, because kubelet ends all containers of a pod together. It depends on no API server, device
or library other than Python's own. It covers both failures: if the agent ends, the watchdog thaws; if the watchdog
ends, it thaws and removes its own heartbeat, without which the agent freezes no pod.

The watchdog thaws a pod once for each freeze, so that a pod that something else freezes later stays frozen.

A module of its own: a program.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail_agent.processes.cgroups import MOUNT
from dovetail_agent.turns.cgroup_freezer import Freezing, NoFreezer, freezer_at
from dovetail_agent.turns.state_files import Mark, Marks

AGENT: Final = "agent"
WATCHDOG: Final = "watchdog"
POLL_SECONDS: Final = 1.0
_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


class Watchdog:
    """Takes one look at a time, so that its tests need no clock."""

    def __init__(self, freezing: Freezing, *, marks: Marks) -> None:
        self._freezing = freezing
        self._marks = marks
        self._thawed: set[Mark] = set()

    def check(self) -> list[str]:
        """Write a heartbeat, and thaw every marked pod if the agent is silent.

        Return a sentence for each.
        """
        self._marks.beat(WATCHDOG)
        return [] if self._marks.alive(AGENT) else self._thaw_all("the agent is silent")

    def leave(self) -> list[str]:
        """Remove the heartbeat and thaw every marked pod: without a watchdog none may stay frozen."""
        self._marks.leave(WATCHDOG)
        return self._thaw_all("the watchdog ends")

    def _thaw_all(self, why: str) -> list[str]:
        marks = self._marks.all()
        self._thawed &= set(marks)
        return [done for mark in marks if mark not in self._thawed and (done := self._thaw(mark, why=why))]

    def _thaw(self, mark: Mark, *, why: str) -> str:
        try:
            self._freezing.thaw(self._freezing.root / mark.group)
        except FileNotFoundError:  # a UID is never reused: no agent freezes it again
            self._marks.drop(mark.uid)
            return ""
        except OSError as error:
            return f"pod {mark.uid} cannot be thawed: {error}"
        self._thawed.add(mark)
        return f"pod {mark.uid} thawed: {why}"


def main() -> None:
    """Watch until SIGTERM. Exits 1 with one sentence if there is no freezer."""
    args = _parser().parse_args()
    # Waits for blocked signals: a handler that sets an event can meet the lock that the waiter holds.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        marks = Marks(args.marks, clock=time.monotonic)
        marks.prepare()
        watch(Watchdog(freezer_at(args.cgroups), marks=marks), is_told_to_end=_should_end)
    except (NoFreezer, OSError) as error:
        sys.exit(f"dovetail-thaw: {error}")


def watch(watchdog: Watchdog, *, is_told_to_end: Callable[[float], bool]) -> None:
    """Look every second until the end is requested, then leave no pod frozen.

    `is_told_to_end` waits that long.
    """
    try:
        while True:
            _say(watchdog.check())
            if is_told_to_end(POLL_SECONDS):
                return
    finally:
        _say(watchdog.leave())


def _should_end(seconds: float) -> bool:
    return signal.sigtimedwait(_ENDS, seconds) is not None


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="dovetail-thaw", description="Thaws what an agent that is gone has frozen.")
    options.add_argument(
        "--marks", type=Path, required=True, metavar="FOLDER", help="where the agent says whom it froze"
    )
    options.add_argument("--cgroups", type=Path, default=MOUNT, metavar="FOLDER", help="where the node's cgroups are")
    return options


def _say(sentences: list[str]) -> None:
    for sentence in sentences:
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - its log; structlog would be a library


if __name__ == "__main__":
    main()
