"""Measure every target of the hot path with one command: each row with its value, target and verdict.

It runs the benchmarks of the single parts one after the other, with the rounds that are fixed here, in at most fifteen
minutes on an idle machine with two cores. With `--other`, the programs of another checkout run in turns with these,
which some rows need. A part that fails or exceeds its limit leaves its rows without a value, and the others go on.
The exit code is 1 if a target is missed, or a row that needs no other checkout has no value.

    python benchmarks/hotpath.py [--other CHECKOUT] [--only PART,PART] [--all] [--patience 1] [--json FILE]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
ALONE, PAIR = "kube-scheduler alone", "with the extender"
# A machine that runs something else makes rates by the clock meaningless.
BUSY_LOAD: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One row: what is measured, the best allowed value, and how it is read from a benchmark's JSON.

    - `what`: the row's name
    - `limit`: the target
    - `unit`: of value and target
    - `read`: the value in the benchmark's result; None if it was not measured
    - `is_floor`: whether the value must be at least the target, not at most
    - `note`: what the table adds to the value
    """

    what: str
    limit: float
    unit: str
    read: Callable[[Any], float | None]
    is_floor: bool = False
    note: Callable[[Any], str] = lambda _: ""

    def verdict(self, value: float | None) -> str:
        """Whether the target is met."""
        if value is None:
            return "not measured"
        return "met" if (value >= self.limit if self.is_floor else value <= self.limit) else "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One benchmark.

    - `name`: of the part
    - `script`: file name of the benchmark
    - `arguments`: its arguments
    - `limit_seconds`: when it is ended
    - `targets`: the rows that it gives
    - `takes_other`: whether another checkout can run in turns
    - `is_extra`: whether it runs with `--all` or by its name only
    """

    name: str
    script: str
    arguments: Sequence[str]
    limit_seconds: float
    targets: Sequence[Target]
    takes_other: bool = False
    is_extra: bool = False


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--other", type=Path, help="another checkout, whose programs run in turns with these")
    options.add_argument("--only", default="", help=f"some of the parts: {', '.join(part.name for part in PARTS)}")
    options.add_argument("--all", action="store_true", help="also the parts whose targets have long been met")
    options.add_argument(
        "--patience", type=float, default=1.0, help="factor on the limit of each part, for a slow machine (default: 1)"
    )
    options.add_argument("--json", type=Path, default=Path("out/hotpath.json"), help="where it is written too")
    args = options.parse_args()
    chosen = set(filter(None, args.only.split(",")))
    if unknown := chosen - {part.name for part in PARTS}:
        options.error(f"--only {', '.join(sorted(unknown))}: allowed are {', '.join(part.name for part in PARTS)}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY_LOAD * cores:
        print(f"The machine is busy: load {load:.1f} on {cores} cores. Do not report rates of this run.")
    rows = []
    for part in PARTS:
        if part.name in chosen or (not chosen and (args.all or not part.is_extra)):
            result = run(part, other=args.other, patience=args.patience)
            rows += [row_of(target, part=part, result=result) for target in part.targets]
    print(table(rows))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"load_at_start": round(load, 2), "cores": cores, "rows": rows}, indent=2) + "\n")
    is_good = all(
        row["verdict"] == "met" or (row["needs_other"] and row["value"] is None and not args.other) for row in rows
    )
    return 0 if is_good else 1


def run(part: Part, *, other: Path | None, patience: float = 1.0) -> Any:
    """The JSON of a benchmark; None if it failed or took too long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        turns = ["--other", str(other)] if part.takes_other and other is not None else []
        command = [sys.executable, str(FOLDER / part.script), *part.arguments, *turns, "--json", str(path)]
        print(f"== {part.name}: python benchmarks/{part.script} {' '.join([*part.arguments, *turns])}", flush=True)
        began = time.monotonic()
        failure = _wait(command, limit_seconds=patience * part.limit_seconds * (2 if turns else 1))
        print(f"   {failure or 'done'} after {time.monotonic() - began:.0f} s", flush=True)
        return None if failure else json.loads(path.read_text())


def _wait(command: Sequence[str], *, limit_seconds: float) -> str:
    """Run a benchmark to its end; why it has no result, or an empty text."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            # As by Ctrl-C, so that it removes its sandbox.
            process.send_signal(signal.SIGINT)
            process.wait()
            return f"not done within its limit of {limit_seconds:.0f} s"
    return "" if code == 0 else f"failed with exit code {code}"


def row_of(target: Target, *, part: Part, result: Any) -> dict[str, Any]:
    """One row as JSON."""
    value = None if result is None else target.read(result)
    return {
        "part": part.name,
        "what": target.what,
        "value": None if value is None else round(value, 2),
        "target": target.limit,
        "unit": target.unit,
        "verdict": target.verdict(value),
        "note": "" if value is None else target.note(result),
        "needs_other": target in NEED_OTHER,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All rows, as in docs/performance.md."""
    lines = ["| | now | target | verdict |", "|---|---|---|---|"]
    for row in rows:
        now = "" if row["value"] is None else f"{row['value']:g} {row['unit']}".strip()
        now += f" ({row['note']})" if row["note"] else ""
        hint = " (needs --other)" if row["needs_other"] and row["value"] is None else ""
        lines.append(f"| {row['what']} | {now} | {row['target']:g} {row['unit']} | {row['verdict']}{hint} |")
    return "\n".join(lines)


def _filter(percentile: str) -> Callable[[Any], float]:
    def read(result: Any) -> float:
        return float(next(each[percentile] for each in result[0]["requests"] if each["request"] == AFTER_A_CHANGE))

    return read


def _ratio(size: int) -> Callable[[Any], float]:
    def read(result: Any) -> float:
        rates = result[size]["pods_per_second"]
        return float(100 * median(ours / alone for ours, alone in zip(rates[PAIR], rates[ALONE], strict=True)))

    return read


def _interval(result: Any) -> str:
    """The 95 % interval of what the policies cost."""
    found = result["costs"].get("this", {})
    return (
        f"{found['from']:g} to {found['to']:g}; a pod without them: {result['costs']['without']:g} ms" if found else ""
    )


def _counted(result: Any, *, events: bool) -> dict[str, float]:
    """Writes for a GPUJob by verb and resource, without those that nodes and programs make by the clock."""
    found: dict[str, float] = result["medians"]["writes"]["this"]
    of_nodes = ("leases", "gpunodes")
    return {
        name: count
        for name, count in found.items()
        if (" events " in name) is events and name.split()[1].split("/")[0] not in of_nodes
    }


def _writes(result: Any) -> float:
    return sum(_counted(result, events=False).values())


def _events(result: Any) -> float:
    return sum(_counted(result, events=True).values())


def _named_writes(result: Any) -> str:
    return ", ".join(f"{count:g} {name.rpartition(' ')[0]}" for name, count in _counted(result, events=False).items())


# Every request of this kind is for a new pod, after the hold of the one before.
AFTER_A_CHANGE: Final = "filter"
_POD_TO_OTHER: Final = Target(
    what="extender CPU for a pod, against the other checkout",
    limit=0.8,
    unit="",
    read=lambda found: (
        median(a / b for a, b in zip(found["ms"]["this"], found["ms"]["other"], strict=True))
        if "other" in found["ms"]
        else None
    ),
)
_REASON_TO_OTHER: Final = Target(
    what="a waiting job's reason, all programs, against the other checkout",
    limit=0.5,
    unit="",
    read=lambda found: found["medians"]["ratios"].get("reasons_this_to_other"),
)
_RESTART_OF_FEW: Final = Target(
    what="extender's list of pods at its start, 200 nodes x 100, against the other checkout",
    limit=0.2,
    unit="",
    read=lambda found: found.get("this_to_other", {}).get("200x100"),
)
_RESTART_OF_MANY: Final = Target(
    what="extender's list of pods at its start, 5,000 nodes x 10, against the other checkout",
    limit=0.5,
    unit="",
    read=lambda found: found.get("this_to_other", {}).get("5000x10"),
)
_UNCHANGED_CYCLE: Final = Target(
    what="cycle with 50,000 waiting jobs where nothing changed, against the other checkout",
    limit=0.05,
    unit="",
    read=lambda found: found.get("this_to_other", {}).get("nothing changed"),
)
_FIRST_CYCLE: Final = Target(
    what="first cycle after a start with 50,000 waiting jobs, against the other checkout",
    limit=0.334,
    unit="",
    read=lambda found: found.get("this_to_other", {}).get("first"),
)
NEED_OTHER: Final = (
    _POD_TO_OTHER, _REASON_TO_OTHER, _RESTART_OF_FEW, _RESTART_OF_MANY, _UNCHANGED_CYCLE, _FIRST_CYCLE,
)  # fmt: skip
PARTS: Final = (
    Part(
        name="rest",
        script="at_rest.py",
        arguments=("--seconds", "60"),
        limit_seconds=300,
        targets=(
            Target(
                what="writes to the API server for 120 running jobs at rest, in a minute",
                limit=0.0,
                unit="",
                read=lambda found: found["medians"]["this"]["writes"],
            ),
            Target(
                what="CPU of all programs for a running job at rest",
                limit=0.05,
                unit="ms/s",
                read=lambda found: found["medians"]["this"]["ms_per_second_of_a_job"],
            ),
        ),
    ),
    Part(
        name="strangers",
        script="stranger_pods.py",
        # The verdict is the table's. Alone, it takes more pods, for a narrower interval.
        arguments=("--rounds", "12", "--pods", "50", "--target", "inf"),
        limit_seconds=300,
        targets=(
            Target(
                what="CPU of kube-apiserver that our policies add to a pod that is none of ours (mean of 600)",
                limit=0.4,
                unit="ms",
                read=lambda found: found["costs"].get("this", {}).get("ms"),
                note=_interval,
            ),
        ),
    ),
    Part(
        name="job",
        script="job_cost.py",
        arguments=("--nodes", "15", "--rounds", "2", "--asks", "100"),
        limit_seconds=240,
        takes_other=True,
        targets=(
            Target(
                what="one GPUJob, created to running: all programs, against a bare batch Job",
                limit=1.25,
                unit="",
                read=lambda found: found["medians"]["ratios"]["this_to_bare"],
            ),
            Target(what="writes for one GPUJob without events", limit=9.0, unit="", read=_writes, note=_named_writes),
            Target(what="events for one GPUJob", limit=2.0, unit="", read=_events),
            _REASON_TO_OTHER,
        ),
    ),
    Part(
        name="restart",
        script="restart.py",
        arguments=("--rounds", "3"),
        limit_seconds=120,
        takes_other=True,
        targets=(_RESTART_OF_FEW, _RESTART_OF_MANY),
    ),
    Part(
        name="cycle",
        script="waiting_cycle.py",
        arguments=("--rounds", "2"),
        limit_seconds=120,
        takes_other=True,
        targets=(_UNCHANGED_CYCLE, _FIRST_CYCLE),
    ),
    Part(
        name="pod",
        script="extender_pod.py",
        arguments=("--pods", "1200", "--rounds", "3"),
        limit_seconds=120,
        takes_other=True,
        targets=(_POD_TO_OTHER,),
    ),
    # Targets that are met and have to stay so: `--all`.
    Part(
        name="filter",
        script="extender_http.py",
        arguments=("--nodes", "1000", "--pods", "16"),
        limit_seconds=120,
        is_extra=True,
        targets=(
            Target(what="filter after a change, 1,000 x 8, p50", limit=0.8, unit="ms", read=_filter("p50_ms")),
            Target(what="filter after a change, 1,000 x 8, p99", limit=1.8, unit="ms", read=_filter("p99_ms")),
        ),
    ),
    Part(
        name="pods",
        script="end_to_end.py",
        arguments=("--sizes", "1000x500,5000x250", "--rounds", "1"),
        limit_seconds=240,
        is_extra=True,
        targets=(
            Target(
                what="plain pods against kube-scheduler alone, 1,000 nodes",
                limit=90.0,
                unit="%",
                read=_ratio(0),
                is_floor=True,
            ),
            Target(
                what="plain pods against kube-scheduler alone, 5,000 nodes",
                limit=98.0,
                unit="%",
                read=_ratio(1),
                is_floor=True,
            ),
        ),
    ),
    Part(
        name="planning",
        script="planning.py",
        arguments=("--rounds", "3"),
        limit_seconds=180,
        is_extra=True,
        targets=(
            Target(
                what="planning a GPUJob by price, 5,000 nodes x 8, 40,000 pods, p50",
                limit=5.0,
                unit="ms",
                read=lambda found: median(each["all jobs of the cycle, p50"] for each in found["rounds"]["by price"]),
            ),
        ),
    ),
    Part(
        name="gang",
        script="job_cost.py",
        arguments=("--workers", "512", "--nodes", "64", "--rounds", "1", "--asks", "0"),
        limit_seconds=180,
        is_extra=True,
        targets=(
            Target(
                what="gang of 512 against the same pinned Job",
                limit=1.25,
                unit="",
                read=lambda found: found["medians"]["ratios"]["this_to_bare"],
            ),
        ),
    ),
    Part(
        name="admissions",
        script="queue_admission.py",
        arguments=("--jobs", "2000", "--submissions", "300"),
        limit_seconds=180,
        is_extra=True,
        targets=(
            Target(
                what="admissions a second (2,000 jobs at once here; the target is for 15,000)",
                limit=100.0,
                unit="/s",
                read=lambda found: found["admissions"]["admissions_per_second"],
                is_floor=True,
            ),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main())
