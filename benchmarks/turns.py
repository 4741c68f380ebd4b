"""Programs of two checkouts in turns on one sandbox, and the CPU time that each program of the sandbox takes.

CPU time is that of the processes, from /proc. Other work on the machine changes it far less than times by the clock,
and turns within one run leave only the difference between the checkouts.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dovetail.config.settings import Settings
from dovetail.process import serving
from dovetail_sandbox import credential, progress, state
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate

T = TypeVar("T")

ROOTS = ("core", "operator", "scheduler_extender", "admission_webhook", "node_agent", "sandbox")
OURS = ("operator", "extender", "agent", "webhook", "gateway")
SWAPPED = ("operator", "extender", "webhook", "agent")
HERE = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_COUNTED = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RUNS = {"reconciles": "reconcile", "cycles": "queue_cycle"}
_READS = frozenset({"GET", "LIST", "WATCH", "CONNECT"})


def use(made: Cluster, *, checkout: Path) -> None:
    """Restart the swapped programs with the packages of a checkout, which come before the installed ones."""
    path = os.pathsep.join(str(checkout / root) for root in ROOTS)
    desired = state.read_desired(made.folder)
    running = {each.name for each in desired.components}
    components = [
        msgspec.structs.replace(each, env={**each.env, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""})
        if each.name in SWAPPED
        else each
        for each in desired.components
    ]
    made.desire(msgspec.structs.replace(desired, components=components))
    for name in SWAPPED:
        if name in running:
            made.restart(name)


@dataclass(kw_only=True)
class Used:
    """What one measured period took.

    seconds      seconds by the clock
    cpu_seconds  CPU seconds by program
    writes       requests that write, by verb and resource
    runs         the operator's reconciles and scheduling cycles
    restarted    programs that ended and were started again: what they took is not known, so the period does not count
    """

    seconds: float = 0.0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    runs: dict[str, float] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)

    def per(self, count: int, *, idle: Mapping[str, float]) -> dict[str, float]:
        """Milliseconds of CPU for each of `count`, without what the programs take when `idle`, in shares of a core."""
        ms = {name: 1000 * (cpu - idle.get(name, 0.0) * self.seconds) for name, cpu in self.cpu_seconds.items()}
        found = {name: round(value / count, 2) for name, value in sorted(ms.items())}
        ours = sum(value for name, value in ms.items() if name in OURS)
        return {"all": round(sum(ms.values()) / count, 2), "ours": round(ours / count, 2), **found}


@contextmanager
def measured(made: Cluster) -> Iterator[Used]:
    """Measure what the programs of the sandbox take while the context is open."""
    used, began, before, writes, runs = Used(), time.monotonic(), _cpu_seconds(made), _writes(made), _runs(made)
    pids = _pids(made)
    yield used
    used.seconds = time.monotonic() - began
    used.cpu_seconds = {name: cpu - before.get(name, 0.0) for name, cpu in _cpu_seconds(made).items()}
    used.writes = {name: count - writes.get(name, 0) for name, count in _writes(made).items()}
    used.writes = {name: count for name, count in sorted(used.writes.items()) if count}
    used.restarted = sorted(name for name, pid in _pids(made).items() if pids.get(name, pid) != pid)
    used.runs = {name: count - runs[name] for name, count in _runs(made).items()}


def of_processes(words: Sequence[str], *, other: Path | None, rounds: int) -> dict[str, Any]:
    """Run a script that prints numbers as JSON in a process of its own, with the packages of each checkout in turns.

    The first round counts too: each process starts cold. Returns the turns and their medians, and by number the median
    ratio of this checkout to the other one.
    """
    checkouts = ({} if other is None else {"other": other.resolve()}) | {"this": HERE}
    found: dict[str, list[Any]] = {name: [] for name in checkouts}
    for _ in range(rounds):
        for name, checkout in checkouts.items():
            path = os.pathsep.join(str(checkout / root) for root in ROOTS)
            env = {**os.environ, "PYTHONPATH": path}
            done = subprocess.run([sys.executable, *words], env=env, check=True, capture_output=True, text=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    result: dict[str, Any] = {"turns": found}
    result["medians"] = {
        name: {key: statistics.median(each[key] for each in taken) for key in taken[0]} for name, taken in found.items()
    }
    if "other" in found:
        pairs = list(zip(found["this"], found["other"], strict=True))
        result["this_to_other"] = {
            key: round(statistics.median(ours[key] / theirs[key] for ours, theirs in pairs), 3) for key in pairs[0][0]
        }
    return result


def as_program(measure: Coroutine[Any, Any, T]) -> T:
    """Run a measurement in this process as a deployable runs: with its settings of the garbage collector."""
    taken: list[T] = []

    async def program(_args: argparse.Namespace, _settings: Settings, _stop: asyncio.Event) -> None:
        taken.append(await measure)

    serving.run(program, args=argparse.Namespace(config=None, log_level="WARNING"))
    return taken[0]


def report(found: dict[str, Any], *, path: Path) -> None:
    """Write the results to a file, and all but the single turns to the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({name: each for name, each in found.items() if name != "turns"}, indent=2))


async def until_calm(made: Cluster, *, seconds: float = 5.0, at_most: float = 20.0) -> None:
    """Wait for a period of `seconds` with at most this many writes a second, Leases of nodes aside.

    The figures of running jobs and the reports of nodes are written all the time.
    """
    while True:
        before = _writes(made)
        await asyncio.sleep(seconds)
        after = _writes(made)
        if sum(after[name] - before.get(name, 0) for name in after if " leases " not in name) <= seconds * at_most:
            return


async def idle(made: Cluster, *, seconds: float) -> dict[str, float]:
    """The share of a core that each program takes while nothing happens."""
    with measured(made) as used:
        await asyncio.sleep(seconds)
    return {name: cpu / used.seconds for name, cpu in used.cpu_seconds.items()}


def _pids(made: Cluster) -> dict[str, int]:
    return {name: each.process.pid for name, each in made.observed().items() if each.process is not None}


def _cpu_seconds(made: Cluster) -> dict[str, float]:
    found = {}
    for name, component in made.observed().items():
        if component.process is not None and component.state == "running":
            fields = Path(f"/proc/{component.process.pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def _runs(made: Cluster) -> dict[str, float]:
    """Reconciles and scheduling cycles since the operator's start; nothing without an operator."""
    components = state.read_desired(made.folder).components
    ready = next((each.ready_url for each in components if each.name == "operator"), None)
    if ready is None:
        return {}
    text = credential.read(ready.replace("/readyz", "/metrics"), folder=made.credential)
    lines = dict(line.rpartition(" ")[::2] for line in text.splitlines() if line[0] != "#")
    return {name: float(lines[f"dovetail_{metric}_duration_seconds_count"]) for name, metric in _RUNS.items()}


def _writes(made: Cluster) -> dict[str, int]:
    """Writes since the API server's start, by verb and resource, as its metrics count them."""
    kubectl = locate.resolve(["kubectl"], report=progress.reporter())["kubectl"]
    command: Sequence[str] = [str(kubectl), f"--kubeconfig={made.kubeconfig}", "get", "--raw", "/metrics"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, int] = {}
    for line in text.splitlines():
        if (counted := _COUNTED.match(line)) is None:
            continue
        labels = dict(_LABEL.findall(counted["labels"]))
        if labels["verb"] in _READS:
            continue
        resource = "/".join(each for each in (labels["resource"], labels["subresource"]) if each)
        name = f"{labels['verb']} {resource} {labels['code']}"
        found[name] = found.get(name, 0) + int(float(counted["count"]))
    return found
