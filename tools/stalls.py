"""`python -m tools.stalls`: see `--help`. Its exit code is that of the command."""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dovetail.process import identity
from dovetail.process.identity import ProcessId

# The command's environment has this; so has all that it starts, also what outlives it, and nothing else has.
MARK: Final = "DOVETAIL_STALLS"
# Part of a command line. etcd and the API server are not here: with them, everything waits, and nothing is late.
PROGRAMS: Final = (
    "dovetail-operator", "dovetail-extender", "dovetail-gateway", "dovetail-webhook", "dovetail-agent", "one_process",
    "dovetail_local_node.main", "kwok-controller", "kube-scheduler", "kube-controller-manager",
)  # fmt: skip
# Tests wait a minute for what they expect.
_LONGEST_SECONDS: Final = 30
_LOOK_SECONDS: Final = 1.0
_STEP_SECONDS: Final = 0.05


@dataclass(slots=True, kw_only=True)
class Turn:
    """A process and until when it runs, or is stopped."""

    until: float
    stopped: bool = False


@dataclass(kw_only=True)
class Stalls:
    """Processes that are stopped and continued in turns, each for spans that are random and its own."""

    mark: str
    programs: re.Pattern[bytes]
    longest_seconds: float
    chances: random.Random
    turns: dict[ProcessId, Turn] = field(default_factory=dict)
    count: int = 0

    def look(self, now: float) -> None:
        """Learn which processes there are."""
        found = [process for process in identity.marked(MARK, value=self.mark) if self.programs.search(_words(process))]
        self.turns = {each: self.turns.get(each) or Turn(until=now + self._span()) for each in found}

    def step(self, now: float) -> None:
        """Stop or continue each process whose time has come; one that the command itself has stopped waits for it."""
        for process, turn in self.turns.items():
            if now < turn.until or (not turn.stopped and identity.stat_of(process.pid)[:1] == ["T"]):
                continue
            turn.stopped, turn.until = not turn.stopped, now + self._span()
            self.count += turn.stopped
            identity.send(process, signal_number=signal.SIGSTOP if turn.stopped else signal.SIGCONT)

    def end(self) -> None:
        """Let all run on."""
        for process in self.turns:
            identity.send(process, signal_number=signal.SIGCONT)

    def _span(self) -> float:
        return self.chances.uniform(0.2 * self.longest_seconds, self.longest_seconds)


def _words(process: ProcessId) -> bytes:
    with suppress(OSError):
        return (identity.PROC / str(process.pid) / "cmdline").read_bytes()[:300]
    return b""


def keep(stalls: Stalls, *, ended: threading.Event) -> None:
    """Stall until the command has ended."""
    looked = float("-inf")
    try:
        while not ended.wait(_STEP_SECONDS):
            now = time.monotonic()
            if now >= looked + _LOOK_SECONDS:
                stalls.look(now)
                looked = now
            stalls.step(now)
    finally:
        stalls.end()


def main(arguments: list[str]) -> int:
    """Run a command while the programs of the sandboxes that it starts are late; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.stalls",
        usage="%(prog)s [options] -- COMMAND...",
        description="Run a command, mostly tests, while each program of the sandboxes that it starts is stopped for "
        "random spans, as on a machine that is too busy. What fails takes for granted that another program has "
        "already written what it does. Tests of deadlines in real time, and those that pause a program themselves, may "
        "fail as well.",
    )
    parser.add_argument(
        "--programs", nargs="+", metavar="NAME", default=PROGRAMS,
        help=f"which are stopped, by a part of their command line (default: {' '.join(PROGRAMS)})",
    )  # fmt: skip
    parser.add_argument("--longest", type=float, default=1.2, help="seconds of the longest stop (default: 1.2)")
    parser.add_argument("--seed", type=int, default=1, help="of the spans (default: 1)")
    parser.add_argument("command", nargs="+", help="what runs, after --")
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.longest <= _LONGEST_SECONDS:
        parser.error(f"--longest {chosen.longest:g} is not allowed; use a number above 0, at most {_LONGEST_SECONDS}")
    stalls = Stalls(
        mark=uuid.uuid4().hex,
        programs=re.compile(b"|".join(re.escape(each.encode()) for each in chosen.programs)),
        longest_seconds=chosen.longest,
        chances=random.Random(chosen.seed),
    )
    ended = threading.Event()
    stalling = threading.Thread(target=keep, args=(stalls,), kwargs={"ended": ended})
    stalling.start()
    try:
        code = _outcome(chosen.command, mark=stalls.mark)
    except OSError as error:
        parser.error(f"{chosen.command[0]} does not start: {error.strerror}")
    finally:
        ended.set()
        stalling.join()
    print(f"{stalls.count} stops", file=sys.stderr)
    return code


def _outcome(command: list[str], *, mark: str) -> int:
    """The exit code. Ctrl-C reaches the command as well, SIGTERM is passed on: it ends as it wants to."""
    with subprocess.Popen(command, env={**os.environ, MARK: mark}) as running:
        before = signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        try:
            while True:
                with suppress(KeyboardInterrupt):
                    return running.wait()
        finally:
            signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
