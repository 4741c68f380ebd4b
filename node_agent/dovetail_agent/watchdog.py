"""`python -m dovetail_agent.watchdog`: thaws what the agent has frozen when the agent works no more.

It runs in a pod of its own, for kubelet ends all containers of a pod together, and it needs nothing: no API server, no
device, no library but Python's own. Both ways are covered: when the agent dies it thaws, and when it goes itself it
thaws and takes its sign of life away, without which the agent freezes nobody.

A pod is thawed once for each time that it was frozen, so that a pod which somebody else freezes later stays so.
"""

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from dovetail_agent.freezer_groups import MOUNT, Freezing, NoFreezer, freezer_at
from dovetail_agent.freezer_marks import Mark, Marks

AGENT: Final = "agent"
WATCHDOG: Final = "watchdog"
POLL_SECONDS: Final = 1.0


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
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        marks = Marks(args.marks, clock=time.monotonic)
        marks.prepare()
        watch(Watchdog(freezer_at(args.cgroups), marks=marks), stop=stop)
    except (NoFreezer, OSError) as error:
        sys.exit(f"dovetail-thaw: {error}")


def watch(watchdog: Watchdog, *, stop: threading.Event) -> None:
    """Look every second until `stop` is set, and leave nobody behind."""
    try:
        while True:
            _say(watchdog.look())
            if stop.wait(POLL_SECONDS):
                return
    finally:
        _say(watchdog.leave())


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
