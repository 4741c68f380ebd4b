"""`python -m dovetail_agent.turns.watchdog`: thaws what the agent has frozen when the agent works no more.

It runs in a pod of its own, for kubelet ends all containers of a pod together, and it needs nothing: no API server, no
device, no library but Python's own. Both ways are covered: when the agent dies it thaws, and when it goes itself it
thaws and takes its sign of life away, without which the agent freezes nobody.

A pod is thawed once for each time that it was frozen, so that a pod which somebody else freezes later stays so.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail_agent.turns.cgroup_freezer import MOUNT, Freezing, NoFreezer, freezer_at
from dovetail_agent.turns.state_files import Mark, Marks

AGENT: Final = "agent"
WATCHDOG: Final = "watchdog"
POLL_SECONDS: Final = 1.0
_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


class Watchdog:
    """One look at a time, so that its tests need no clock."""

    def __init__(self, freezing: Freezing, *, marks: Marks) -> None:
        self._freezing = freezing
        self._marks = marks
        self._thawed: set[Mark] = set()

    def look(self) -> list[str]:
        """Say that we watch, and thaw what is marked if the agent is silent. Returns what was done, in sentences."""
        self._marks.beat(WATCHDOG)
        return [] if self._marks.alive(AGENT) else self._thaw_all("the agent is silent")

    def leave(self) -> list[str]:
        """Nobody watches from here on: nobody may stand still."""
        self._marks.leave(WATCHDOG)
        return self._thaw_all("the watchdog ends")

    def _thaw_all(self, why: str) -> list[str]:
        marks = self._marks.all()
        self._thawed &= set(marks)
        return [done for mark in marks if mark not in self._thawed and (done := self._thaw(mark, why=why))]

    def _thaw(self, mark: Mark, *, why: str) -> str:
        try:
            self._freezing.thaw(self._freezing.root / mark.group)
        except FileNotFoundError:  # a UID never comes back: nobody freezes it again
            self._marks.drop(mark.uid)
            return ""
        except OSError as error:
            return f"pod {mark.uid} cannot be thawed: {error}"
        self._thawed.add(mark)
        return f"pod {mark.uid} thawed: {why}"


def main() -> None:
    """Watch until SIGTERM. Exits 1 with one sentence where there is nothing to thaw with."""
    args = _parser().parse_args()
    # Taken by waiting for them: a handler that sets an event can meet the very lock that waiting for it holds.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        marks = Marks(args.marks, clock=time.monotonic)
        marks.prepare()
        watch(Watchdog(freezer_at(args.cgroups), marks=marks), is_told_to_end=_is_told_to_end)
    except (NoFreezer, OSError) as error:
        sys.exit(f"dovetail-thaw: {error}")


def watch(watchdog: Watchdog, *, is_told_to_end: Callable[[float], bool]) -> None:
    """Look every second until told to end, and leave nobody behind. `is_told_to_end` waits that long for it."""
    try:
        while True:
            _say(watchdog.look())
            if is_told_to_end(POLL_SECONDS):
                return
    finally:
        _say(watchdog.leave())


def _is_told_to_end(seconds: float) -> bool:
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
