"""Measure the planning of GPUJobs by price against best fit: CPU time of the queue's own code, without an API server.

A ledger of 5,000 nodes with 8 GPUs holds 40,000 pods. Rounds of the two terms take turns: each round copies the
ledger, as a scheduling cycle does, and plans jobs of a dozen shapes one after the other. The times are those of the
process's CPU clock. Run it on an idle machine: other load makes caches cold, which CPU time contains.

    python benchmarks/planning.py [--nodes 5000] [--pods 40000] [--rounds 5] [--json FILE]
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
from counts import count

from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import LiveFragmentation, price_by
from dovetail.gpu.request import WHOLE_MILLI, GPURequest
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate

GPUS = 8
SHARES = (100, 200, 250, 300, 400, 500, 600, 700)
WHOLE = (1,) * 8 + (2, 4, 8)
JOBS_A_ROUND = 200
# A pod is tried on so many random nodes, which leaves the free capacity in pieces on all of them.
TRIES = 3


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=5_000)
    options.add_argument("--pods", type=count, default=40_000)
    options.add_argument("--rounds", type=count, default=5)
    options.add_argument("--json", type=Path, default=Path("out/planning.json"), help="where it is written too")
    args = options.parse_args()
    random = np.random.default_rng(1)
    ledger = make_ledger(args.nodes)
    term = LiveFragmentation(ledger)
    term.follow()
    placed = fill(ledger, term=term, pods=args.pods, random=random)
    asks = [draw(random) for _ in range(12)]
    rounds: dict[str, list[dict[str, float]]] = {"best fit": [], "by price": []}
    for _ in range(args.rounds):
        for name, measured in rounds.items():
            if name == "by price":
                price_by(term, ledger=ledger)
            else:
                ledger.prices = None
            measured.append(measure(ledger, asks=asks))
    result = {
        name: {key: median(each[key] for each in measured) for key in measured[0]} for name, measured in rounds.items()
    }
    print(f"{args.nodes} nodes with {GPUS} GPUs, {placed} pods on them, {len(term.record().in_use)} classes")
    print("| CPU time, ms | best fit | by price | ratio |\n|---|---|---|---|")
    for key, plain in result["best fit"].items():
        by_price = result["by price"][key]
        print(f"| {key} | {plain:.2f} | {by_price:.2f} | {by_price / plain:.2f} |")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"placed": placed, "rounds": rounds}, indent=2) + "\n")


def measure(ledger: Ledger, *, asks: list[Ask]) -> dict[str, float]:
    """One cycle, in ms: its start, the first job of each shape, and later jobs."""
    started = time.process_time()
    cycle = SchedulingCycle(ledger.copy(), sites={})
    copied = time.process_time()
    times = []
    for number in range(JOBS_A_ROUND):
        before = time.process_time()
        cycle.at(Candidate(key=f"job-{number}", ask=asks[number % len(asks)]))
        times.append(1_000 * (time.process_time() - before))
    first, later = times[: len(asks)], times[len(asks) :]
    return {
        "copy of the ledger": 1_000 * (copied - started),
        "first job of a shape in a cycle, p50": median(first),
        "each later job, p50": median(later),
        "each later job, p90": float(np.percentile(later, 90)),
        "all jobs of the cycle, p50": median(times),
    }


def make_ledger(nodes: int) -> Ledger:
    """Empty nodes."""
    ledger = Ledger()
    for number in range(nodes):
        name = f"n{number}"
        ledger.set_node(NodeFacts(name=name, cpu_milli=96_000, memory_mib=786_432))
        devices = [
            DeviceFacts(index=index, uuid=f"{name}-{index}", vendor="nvidia", model="A100", memory_mib=81_920)
            for index in range(GPUS)
        ]
        ledger.set_devices(name, devices=devices)
    return ledger


def draw(random: np.random.Generator) -> Ask:
    """What a job or pod requests: a share, or whole GPUs."""
    cpu_milli, memory_mib = int(random.choice([1_000, 2_000, 4_000, 8_000])), int(random.choice([4_096, 16_384]))
    if random.random() < 0.6:
        share = GPURequest(count=1, share_milli=int(random.choice(SHARES)))
        return Ask(gpu=share, mode="Fractional", cpu_milli=cpu_milli, memory_mib=memory_mib)
    whole = GPURequest(count=int(random.choice(WHOLE)), share_milli=WHOLE_MILLI)
    return Ask(gpu=whole, cpu_milli=cpu_milli, memory_mib=memory_mib)


def fill(ledger: Ledger, *, term: LiveFragmentation, pods: int, random: np.random.Generator) -> int:
    """Put pods on random nodes, and learn from them; how many found a place."""
    fit_cache, nodes, placed = FitCache(ledger), ledger.nodes(), 0
    for number in range(pods):
        ask, key = draw(random), f"pod-{number}"
        term.arrived(ask, key=key)
        for at in random.integers(len(nodes), size=TRIES).tolist():
            found = fit_cache.check(ask, node=nodes[at], key=key)
            if isinstance(found, Fit):
                ledger.commit(found.claim)
                placed += 1
                break
    while term.work():
        pass
    term.follow()
    return placed


if __name__ == "__main__":
    main()
