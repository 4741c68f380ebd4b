"""Say what moves are worth where pods also leave: a bound first, then the allocation against the moves in 100 arrivals.

The arrivals are those of `departures.py`. The bound is a relaxation: each pod is accepted if it fits once everything is
repacked at no cost, on devices without nodes, by the linear programme of cutting stock. A pod that fits is never
refused, with moves or in the bound. Each replayed move costs what its pod did since it last saved its work, and the
restart; the net allocation is less by that. With `--decision NODES`, times decisions with their proof instead, on a
ledger of so many nodes with 8 GPUs and a queue. With `--consolidation JOBS`, times one decision for so many jobs of 8
GPUs on 500 such nodes, of which none has room for one: the case of KAI-Scheduler's consolidation test. With `--plane`,
runs that test on a sandbox (`moves_plane.py`).

    python benchmarks/moves.py --traces FOLDER [--seed 42] [--saved-every 1800] [--json FILE]
    python benchmarks/moves.py --decision 5000
    python benchmarks/moves.py --consolidation 41
    python benchmarks/moves.py --consolidation 41 --plane [--nodes 500]
"""

import argparse
import heapq
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import moves_plane
import numpy as np
import queue_plane
import simulator
from counts import count

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.fragmentation.arrivals import Online
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.gpu.request import GPURequest
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.moves.plan import Movable, MovePlan
from dovetail.queue.moves.proof import expected_starts, plan_moves, plan_together
from dovetail.queue.moves.search import MovableJobs, Queue
from dovetail.simulator.curve import average_allocation, lost_by_moves
from dovetail.simulator.experiment import Outcome, kind
from dovetail.simulator.moves import Moves, MovesSettings
from dovetail.simulator.parallel import Scene, run_one

Pattern = tuple[tuple[int, int], ...]
# Below this part of the GPUs, everything fits.
EMPTY_ENOUGH = 0.93
# A knapsack whose worth exceeds one device by less adds no column.
LEAST_GAIN = 1e-6
# What a move must gain, in GPUs for one lifetime: the points of the curve.
WORTH = (1.15, 0.65)
HOUR = 3600.0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--traces", type=Path, help="folder with a trace")
    options.add_argument("--seed", type=int, default=42, help="which arrivals of the folder (default: %(default)s)")
    options.add_argument(
        "--saved-every", type=float, default=1800.0, help="seconds; inf for never (default: %(default)s)"
    )
    options.add_argument("--decision", type=count, metavar="NODES", help="time decisions on so many nodes with 8 GPUs")
    options.add_argument("--consolidation", type=count, metavar="JOBS", help="time the plans for so many jobs")
    options.add_argument("--plane", action="store_true", help="start these jobs on a sandbox")
    options.add_argument("--nodes", type=count, default=500, help="its nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/moves.json"), help="where it is written too")
    args = options.parse_args()
    if args.decision:
        print(json.dumps(decisions(args.decision), indent=2))
        return
    if args.consolidation and args.plane:
        if args.consolidation > args.nodes // 5:
            options.error(f"--consolidation: {args.consolidation}, but a fifth of --nodes {args.nodes} has small jobs")
        queue_plane.report(moves_plane.consolidated(nodes=args.nodes, jobs=args.consolidation), path=args.json)
        return
    if args.consolidation:
        print(json.dumps(consolidation(args.consolidation), indent=2))
        return
    if args.traces is None:
        options.error("--traces is required without --decision and --consolidation")
    scene = simulator.leaving(simulator.read(args.traces, name="default", seeds=[args.seed])[args.seed])
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "bound": lambda: row(bound(scene), arrivals=len(scene.visits)),
        "no moves": lambda: row(run_one("pack", scene=scene), arrivals=len(scene.visits)),
    }
    for worth in WORTH:
        settings = MovesSettings(move=worth, saved_every_seconds=args.saved_every)
        runs[f"moves that gain {worth:g}"] = lambda settings=settings: moved(scene, settings=settings)  # type: ignore[misc] # mypy infers no default's type
    found: dict[str, Any] = {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        found[name] = run()
        print(f"{name}: {found[name]}", flush=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")


def row(outcome: Outcome, *, arrivals: int) -> dict[str, Any]:
    """The figures of one run."""
    average, lost = average_allocation(outcome) or 0.0, lost_by_moves(outcome) or 0.0
    return {
        "average": average,
        "lost": lost,
        "net": round(average - lost, 3),
        "moves": len(outcome.lost),
        "moves in 100 arrivals": round(100 * len(outcome.lost) / arrivals, 2),
        "refused": dict(sorted(outcome.refused.items())),
    }


def moved(scene: Scene, *, settings: MovesSettings) -> dict[str, Any]:
    """One run with moves, and how long its decisions took."""
    made: list[Moves] = []

    def moving(columns: Columns, policy: Policy) -> Moves:
        assert isinstance(policy, Online), "pack learns its mix"
        made.append(Moves(columns, policy=policy, settings=settings, clock=time.process_time))
        return made[0]

    outcome = run_one("pack", scene=scene, moving=moving)
    p50, p99 = np.percentile(made[0].decision_seconds, [50, 99]) * 1000
    return row(outcome, arrivals=len(scene.visits)) | {"decision ms p50": round(p50, 1), "p99": round(p99, 1)}


class Repacked:
    """The fewest devices that hold some shares, by a linear programme over patterns: never more than any packing."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._row = {size: row for row, size in enumerate(sizes)}
        self._solver = highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._patterns: set[Pattern] = set()
        for _ in sizes:
            self._solver.addRow(0.0, highspy.kHighsInf, 0, np.array([], dtype=np.int32), np.array([]))
        for size in sizes:
            self._add(((size, WHOLE_MILLI // size),))

    def count(self, size: int, *, pods: int) -> None:
        """Set how many shares of a size there are."""
        self._solver.changeRowBounds(self._row[size], float(pods), highspy.kHighsInf)

    def fits(self, devices: float) -> bool:
        """Whether so many devices hold all shares."""
        while True:
            self._solver.run()
            least = self._solver.getInfo().objective_function_value
            if least <= devices + LEAST_GAIN:
                return True
            pattern = self._better(self._solver.getSolution().row_dual)
            if pattern is None:
                return False
            self._add(pattern)

    def _better(self, dual: list[float]) -> Pattern | None:
        """A pattern that is worth more than a device at the duals; None where the programme is solved."""
        best, last = [0.0] * (WHOLE_MILLI + 1), [0] * (WHOLE_MILLI + 1)
        for room in range(1, WHOLE_MILLI + 1):
            best[room] = best[room - 1]
            for row_, size in enumerate(self._sizes):
                if size <= room and best[room - size] + dual[row_] > best[room] + 1e-12:
                    best[room], last[room] = best[room - size] + dual[row_], size
        cut, room = Counter[int](), WHOLE_MILLI
        while room:
            cut.update([last[room]] if last[room] else [])
            room -= last[room] or 1
        pattern = tuple(sorted(cut.items()))
        return None if best[WHOLE_MILLI] <= 1 + LEAST_GAIN or pattern in self._patterns else pattern

    def _add(self, pattern: Pattern) -> None:
        self._patterns.add(pattern)
        rows = np.array([self._row[size] for size, _ in pattern], dtype=np.int32)
        counts = np.array([float(count) for _, count in pattern])
        self._solver.addCol(1.0, 0.0, highspy.kHighsInf, len(pattern), rows, counts)


def bound(scene: Scene) -> Outcome:
    """The outcome where everything is repacked at each arrival, at no cost, on devices without nodes."""
    gpus = sum(node.gpus for node in scene.nodes)
    repacked = Repacked(sorted({visit.shape.share_milli for visit in scene.visits if visit.shape.is_share}))
    staying: list[tuple[float, Shape]] = []
    shares, refused, whole, held_milli = Counter[int](), Counter[str](), 0, 0
    allocated = np.zeros(len(scene.visits))

    def change(shape: Shape, *, by: int) -> None:
        nonlocal whole
        if shape.is_share:
            shares[shape.share_milli] += by
            repacked.count(shape.share_milli, pods=shares[shape.share_milli])
        else:
            whole += by * shape.gpus

    for number, visit in enumerate(scene.visits):
        while staying and staying[0][0] <= visit.at:
            gone = heapq.heappop(staying)[1]
            change(gone, by=-1)
            held_milli -= gone.gpu_milli
        change(visit.shape, by=1)
        is_full = visit.shape.gpus and held_milli + visit.shape.gpu_milli > EMPTY_ENOUGH * gpus * WHOLE_MILLI
        if is_full and not repacked.fits(gpus - whole):
            change(visit.shape, by=-1)
            refused[kind(visit.shape)] += 1
        else:
            held_milli += visit.shape.gpu_milli
            heapq.heappush(staying, (visit.leaves_at, visit.shape))
        allocated[number] = held_milli
    return Outcome(
        policy="bound",
        capacity_milli=WHOLE_MILLI * gpus,
        at=np.array([visit.at for visit in scene.visits]),
        arrived_milli=np.cumsum([visit.shape.gpu_milli for visit in scene.visits], dtype=np.float64),
        allocated_milli=allocated,
        fragments_milli={},
        refused=dict(refused),
        placed=len(scene.visits) - refused.total(),
        seconds=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A ledger with jobs on most of its GPUs, the jobs that may move, and their ends."""

    ledger: Ledger
    movable: list[Movable]
    leaving: list[Leaving]


def decisions(nodes: int, *, rounds: int = 60, waiting: int = 20) -> dict[str, Any]:
    """How long plans take, with their proof, for one job after the other that requests all GPUs of a node."""
    random = np.random.default_rng(1)
    full = filled(nodes, random=random)
    seconds, estimates, plans = list[float](), list[float](), 0
    began = time.process_time()
    movable = MovableJobs(full.movable, ledger=full.ledger)
    built = time.process_time() - began
    for number in range(rounds):
        job = waits(f"waits-{number}", gpus=8, at=0)
        others = [waits(f"other-{each}", gpus=int(random.integers(4, 9)), at=each + 1) for each in range(waiting)]
        queue = Queue(ledger=full.ledger, waiting=[job, *others], leaving=full.leaving)
        began = time.process_time()
        starts = expected_starts(queue)
        estimated = time.process_time()
        found = plan_moves(job, queue=queue, movable=movable, starts=starts)
        seconds.append(time.process_time() - estimated)
        estimates.append(estimated - began)
        plans += isinstance(found, MovePlan)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {
        "nodes": nodes,
        "jobs": len(full.movable),
        "waiting": waiting + 1,
        "decisions": rounds,
        "plans": plans,
        "columns of all jobs, once, ms": round(1000 * built),
        "estimates before, p50 ms": round(1000 * float(np.median(estimates))),
        "p50 ms": round(float(p50)),
        "p99 ms": round(float(p99)),
    }


def consolidation(jobs: int, *, nodes: int = 500) -> dict[str, Any]:
    """How long one decision takes for jobs that each request all GPUs of a node: plans for all of them, together."""
    full = filled(nodes, random=np.random.default_rng(1))
    waiting = [waits(f"waits-{number}", gpus=8, at=number) for number in range(jobs)]
    queue = Queue(ledger=full.ledger, waiting=waiting, leaving=full.leaving)
    began = time.process_time()
    movable = MovableJobs(full.movable, ledger=full.ledger)
    built = time.process_time()
    starts = expected_starts(queue)
    estimated = time.process_time()
    plans = [
        plan
        for plan in plan_together(waiting, queue=queue, movable=movable, starts=starts).values()
        if isinstance(plan, MovePlan)
    ]
    ended = time.process_time()
    return {
        "nodes": nodes,
        "running jobs": len(full.movable),
        "jobs": jobs,
        "plans": len(plans),
        "moves": sum(len(plan.moves) for plan in plans),
        "columns of all jobs, ms": round(1000 * (built - began)),
        "estimates before, ms": round(1000 * (estimated - built)),
        "search and proof, ms": round(1000 * (ended - estimated)),
        "all, ms": round(1000 * (ended - began)),
    }


def waits(name: str, *, gpus: int, at: int) -> Candidate:
    """A job that waits for whole GPUs of one node."""
    ask = Ask(gpu=GPURequest(count=gpus, share_milli=WHOLE_MILLI), cpu_milli=1000 * gpus)
    return Candidate(
        key=name, ask=ask, name=f"team/{name}", created=f"2026-01-01T00:{at:02d}:00Z", run_seconds=8 * HOUR
    )


def filled(nodes: int, *, random: np.random.Generator) -> Full:
    """Nodes with 8 GPUs, of which jobs of one, two and four hold all but one or two."""
    ledger, movable, leaving = Ledger(), list[Movable](), list[Leaving]()
    for number in range(nodes):
        name = f"node-{number}"
        ledger.set_node(NodeFacts(name=name, cpu_milli=96_000, memory_mib=1 << 20))
        uuids = [f"{name}-{index}" for index in range(8)]
        ledger.set_devices(
            name,
            devices=[
                DeviceFacts(index=index, uuid=uuid, vendor="nvidia", model="A100", memory_mib=81_920)
                for index, uuid in enumerate(uuids)
            ],
        )
        free, slot = int(random.integers(1, 3)), 0
        while slot < 8 - free:
            gpus = min(int(random.choice([1, 2, 4])), 8 - free - slot)
            job = waits(f"runs-{number}-{slot}", gpus=gpus, at=0)
            devices = tuple(
                AllocatedDevice(index=index, uuid=uuids[index], share_milli=WHOLE_MILLI, memory_mib=81_920)
                for index in range(slot, slot + gpus)
            )
            ledger.commit(Claim(key=f"pod-{job.key}", node=name, devices=devices, cpu_milli=1000 * gpus))
            ran = float(random.exponential(8 * HOUR))
            movable.append(Movable(job=job, claims=(f"pod-{job.key}",), run_seconds=ran, saved_every_seconds=HOUR / 2))
            ends = float(random.exponential(8 * HOUR))
            leaving.append(Leaving(at_seconds=ends, key=f"pod-{job.key}", job=job.key, assumed=True))
            slot += gpus
    return Full(ledger=ledger, movable=movable, leaving=leaving)


if __name__ == "__main__":
    main()
