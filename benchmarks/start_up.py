"""Compare the start of the demo and of this machine's queue with that of an earlier commit, in turns.

The earlier commit gets a worktree and a virtual environment of its own in a temporary folder. Each start has a folder
of state of its own. A pair is one start of each version, one right after the other, and the order of the two changes
with each pair: what else the machine does hits both. The ratio is the geometric mean over the pairs, with its 95 %
interval by Student's t. CPU seconds are those of the command and of every process that it has started until it returns.

    python benchmarks/start_up.py [--base 8a65357d^] [--pairs 4] [--jobs 20] [--only demo]
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from counts import count

ROOT = Path(__file__).parents[1]
BASE = "8a65357d^"
TICKS = os.sysconf("SC_CLK_TCK")
# The 97.5 % quantile of Student's t by the degrees of freedom; more pairs have that of the normal distribution.
QUANTILES = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one start: by the clock, and of processors."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A command that starts something, and the one that ends it and removes its files."""

    name: str
    start: Sequence[str]
    end: Sequence[str]


def subjects(jobs: int) -> list[Subject]:
    """What is compared."""
    return [
        Subject(name="demo", start=("dovetail", "demo", "--jobs", str(jobs)), end=("dovetail", "demo", "--down")),
        Subject(name="gflowd up", start=("gflowd", "up"), end=("dovetail", "sandbox", "down", "--purge")),
    ]


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A worktree of the revision with its own virtual environment."""
    with tempfile.TemporaryDirectory(prefix="dovetail-start-") as folder:
        tree = Path(folder) / "tree"
        _run("git", "worktree", "add", "--quiet", "--detach", str(tree), revision, cwd=ROOT)
        try:
            _run("make", "install", cwd=tree)
            yield tree
        finally:
            _run("git", "worktree", "remove", "--force", str(tree), cwd=ROOT)


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")


def measure(subject: Subject, *, tree: Path) -> Cost:
    """Start it once, and end it."""
    with tempfile.TemporaryDirectory(prefix="dovetail-state-") as state:
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        environment["XDG_STATE_HOME"] = state
        command = [str(tree / ".venv/bin" / subject.start[0]), *subject.start[1:]]
        began = time.monotonic()
        with (Path(state) / "output").open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        cost = Cost(wall=wall, cpu=used.ru_utime + used.ru_stime + _cpu_seconds(state))
        said = (Path(state) / "output").read_text(encoding="utf-8", errors="replace")
        end = [str(tree / ".venv/bin" / subject.end[0]), *subject.end[1:]]
        subprocess.run(end, env=environment, capture_output=True, check=False)
        if process.returncode:
            sys.exit(f"{subject.name} of {tree} failed: {said[-2000:]}")
    return cost


def _cpu_seconds(state: str) -> float:
    """Of all processes that have this folder of state, and of their children that have ended."""
    ticks, mark = 0, f"XDG_STATE_HOME={state}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / TICKS


def ratio(pairs: Sequence[tuple[Cost, Cost]], *, of: Callable[[Cost], float]) -> tuple[float, float, float]:
    """The ratio of the second to the first, and its 95 % interval."""
    logs = [math.log(of(now) / of(before)) for before, now in pairs]
    half = QUANTILES.get(len(logs) - 1, 1.96) * stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    middle = fmean(logs)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def compare(subject: Subject, *, before: Path, count: int) -> None:
    """Measure pairs, and print the ratios."""
    pairs: list[tuple[Cost, Cost]] = []
    for number in range(count):
        trees = (before, ROOT) if number % 2 == 0 else (ROOT, before)
        costs = {tree: measure(subject, tree=tree) for tree in trees}
        pairs.append((costs[before], costs[ROOT]))
        was, now = pairs[-1]
        print(f"{subject.name}: {was.wall:.1f} and {now.wall:.1f} s, {was.cpu:.1f} and {now.cpu:.1f} CPU s", flush=True)
    for what, of in (("CPU seconds", lambda cost: cost.cpu), ("seconds", lambda cost: cost.wall)):
        middle, low, high = ratio(pairs, of=of)
        print(f"{subject.name}, {what}: {middle:.3f} of the base ({low:.3f} to {high:.3f}), {count} pairs", flush=True)


def main() -> None:
    """Compare each subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="the earlier commit (default: %(default)s)")
    parser.add_argument("--pairs", type=count, default=4)
    parser.add_argument("--jobs", type=count, default=20, help="jobs of the demo")
    parser.add_argument("--only", choices=[each.name for each in subjects(1)])
    chosen = parser.parse_args()
    with checked_out(chosen.base) as before:
        for subject in subjects(chosen.jobs):
            if chosen.only in (None, subject.name):
                compare(subject, before=before, count=chosen.pairs)


if __name__ == "__main__":
    main()
