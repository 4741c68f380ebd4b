"""Compare how gangs that want one rack are planned: by price, in the first rack that fits, and without topology.

Gangs of 1 to 16 nodes arrive on 640 nodes in four blocks with ten racks each, run, and leave. All three planners see
the same arrivals, and the queue is first come, first served without backfill, so that only the choice of nodes differs.
Shapes like these are in the topology tests of other schedulers. A second part plans one gang of 512 workers on 5,000
nodes, in CPU time of this process.

    python benchmarks/topology.py [--gangs 600] [--load 0.9] [--seed 1] [--rounds 5]
"""

import argparse
import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median

import numpy as np
from counts import count

from dovetail.engine.gang.in_domains import GangByTopology
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.model.topology import DEFAULT_LEVELS, Topology
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import LiveFragmentation, price_by
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

GPUS = 8
RACK_NODES = 16
RACKS_A_BLOCK = 10
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
IN_ONE_RACK = Topology(levels=DEFAULT_LEVELS, required="rack")
ASK = Ask(gpu=GPURequest(count=GPUS, share_milli=WHOLE_MILLI), cpu_milli=8_000, memory_mib=65_536)
Planner = Callable[[Ledger, int, str, FitCache], list[Claim] | Shortage]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--gangs", type=count, default=600)
    options.add_argument("--load", type=float, default=0.9, help="the part of the cluster that the gangs would take")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rounds", type=count, default=5)
    args = options.parse_args()
    print("| planner | gangs in one rack | mean wait | p90 of waits | nodes in use |\n|---|---|---|---|---|")
    for name, planner in PLANNERS.items():
        print(f"| {name} | {play(planner, gangs=args.gangs, load=args.load, seed=args.seed)} |")
    large_gang(rounds=args.rounds)


def by_price(ledger: Ledger, workers: int, key: str, fit_cache: FitCache) -> list[Claim] | Shortage:
    """The queue's own plan."""
    return place(ledger, ask=replace(ASK, topology=IN_ONE_RACK), workers=workers, key=key, fit_cache=fit_cache)


def first_that_fits(ledger: Ledger, workers: int, key: str, fit_cache: FitCache) -> list[Claim] | Shortage:
    """The first rack with room, in the order of the nodes."""
    gang = GangByTopology(
        ledger,
        ask=replace(ASK, topology=IN_ONE_RACK),
        workers=workers,
        key=key,
        nodes=ledger.nodes(),
        fit_cache=fit_cache,
        least=workers,
    )
    able = np.flatnonzero(gang.capacity("rack") >= workers)
    if not able.size:
        return Shortage(reason="Resources", message="no rack has room")
    nodes = [node for node, rack in zip(gang.nodes, gang.codes("rack").tolist(), strict=True) if rack == able[0]]
    return place(ledger, ask=ASK, workers=workers, key=key, nodes=nodes, fit_cache=fit_cache)


def without_topology(ledger: Ledger, workers: int, key: str, fit_cache: FitCache) -> list[Claim] | Shortage:
    """Any nodes."""
    return place(ledger, ask=ASK, workers=workers, key=key, fit_cache=fit_cache)


PLANNERS: dict[str, Planner] = {
    "by price": by_price,
    "first that fits": first_that_fits,
    "without topology": without_topology,
}


def play(planner: Planner, *, gangs: int, load: float, seed: int) -> str:
    """Play the arrivals; the columns of the table."""
    random, ledger = np.random.default_rng(seed), make_ledger(640)
    sizes, runs = random.choice(SIZES, size=gangs), random.exponential(100.0, size=gangs)
    arrivals = np.cumsum(random.exponential(float(np.mean(SIZES)) * 100.0 / (640 * load), size=gangs))
    term = LiveFragmentation(ledger)
    price_by(term, ledger=ledger)
    fit_cache, ends, waiting = FitCache(ledger), list[tuple[float, int]](), deque[int]()
    waits, together, held, busy, now, at = [], 0, dict[int, list[Claim]](), 0.0, 0.0, 0
    while at < gangs or waiting:
        coming = float(arrivals[at]) if at < gangs else float("inf")
        then = min(coming, ends[0][0] if ends else float("inf"))
        busy += (then - now) * sum(map(len, held.values()))
        now = then
        if ends and ends[0][0] <= now:
            for claim in held.pop(heapq.heappop(ends)[1]):
                ledger.release(claim.key)
        else:
            waiting.append(at)
            at += 1
        while waiting:
            number = waiting[0]
            found = planner(ledger, int(sizes[number]), f"gang-{number}", fit_cache)
            if isinstance(found, Shortage):
                break
            waiting.popleft()
            ledger.commit_all(found)
            held[number] = found
            heapq.heappush(ends, (now + float(runs[number]), number))
            waits.append(now - float(arrivals[number]))
            racks = {ledger.place_of(claim.node, labels=IN_ONE_RACK.path("rack")) for claim in found}
            together += len(racks) == 1
    part = f"{together / gangs:.1%}"
    return f"{part} | {mean(waits):.1f} s | {np.percentile(waits, 90):.1f} s | {busy / now / 640:.1%}"


def make_ledger(nodes: int) -> Ledger:
    """Empty nodes in racks and blocks."""
    ledger = Ledger()
    for number in range(nodes):
        name, rack = f"n{number}", number // RACK_NODES
        labels = {"dovetail.dev/rack": f"r{rack}", "dovetail.dev/block": f"b{rack // RACKS_A_BLOCK}"}
        ledger.set_node(NodeFacts(name=name, cpu_milli=96_000, memory_mib=786_432, labels=labels))
        devices = [
            DeviceFacts(index=index, uuid=f"{name}-{index}", vendor="nvidia", model="A100", memory_mib=81_920)
            for index in range(GPUS)
        ]
        ledger.set_devices(name, devices=devices)
    return ledger


def large_gang(*, rounds: int) -> None:
    """Time the plan of 512 workers on 5,000 nodes, of which each tenth is in use, in turns with one without rules."""
    ledger = make_ledger(5_000)
    price_by(LiveFragmentation(ledger), ledger=ledger)
    for number in range(0, 5_000, 10):
        found = place(ledger, ask=ASK, workers=1, key=f"taken-{number}", nodes=[f"n{number}"])
        assert not isinstance(found, Shortage)
        ledger.commit_all(found)
    rules = {
        "preferred: rack": Topology(levels=DEFAULT_LEVELS, preferred="rack"),
        "groups of 4 in a rack": Topology(levels=DEFAULT_LEVELS, group_size=4, group_level="rack"),
        "no rules": None,
    }
    times: dict[str, list[float]] = {name: [] for name in rules}
    for _ in range(rounds):
        for name, topology in rules.items():
            copy = ledger.copy()
            fit_cache = FitCache(copy)
            fit_cache.best(ASK, nodes=copy.nodes(), key="first look", limit=1)
            before = time.process_time()
            found = place(copy, ask=replace(ASK, topology=topology), workers=512, key="gang", fit_cache=fit_cache)
            times[name].append(1_000 * (time.process_time() - before))
            assert not isinstance(found, Shortage)
    print("\n| 512 workers on 5,000 nodes | CPU time, ms, median |\n|---|---|")
    for name, measured in times.items():
        print(f"| {name} | {median(measured):.0f} |")


if __name__ == "__main__":
    main()
