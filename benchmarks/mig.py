"""Requests for MIG instances on partitioned GPUs: compute slices that are allocated under prices and under best fit.

Requests arrive up to 130 % of the cluster's slices and do not leave. Each goes where the engine's own code puts it:
the nodes that fit, their scores under the policy PACK, and a mix that is learned from earlier requests and from the
arrivals. Refused requests count as arrived. In percent of the slices, so that no load of the machine changes it.

    python benchmarks/mig.py [--nodes 40] [--seeds 3] [--learned 3000] [--json FILE]
"""

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from counts import count

from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation
from dovetail.gpu import mig
from dovetail.gpu.request import GPURequest

POLICIES: Final[tuple[FragmentationPolicy, ...]] = ("ph", "fgd", "bestfit")
ARRIVED: Final = (95, 100, 130)
MODELS: Final = ("A100", "H100")
CARDS: Final = 8
# How the GPUs are partitioned, and how often.
PARTITIONS: Final = {
    ("1g.10gb",) * 7: 0.3,
    ("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"): 0.2,
    ("3g.40gb", "3g.40gb"): 0.2,
    ("4g.40gb", "2g.20gb", "1g.10gb"): 0.1,
    ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"): 0.15,
    ("7g.80gb",): 0.05,
}
# CPUs for each slice that is requested, and how often.
CPUS_OF_SLICE: Final = {0.5: 0.3, 1.0: 0.4, 2.0: 0.2, 4.0: 0.1}
# The number of instances of a request for several, and how often.
SEVERAL: Final = {2: 0.6, 4: 0.3, 8: 0.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A cluster and what comes. `alike`: all GPUs of a node are partitioned alike.

    `tied` and `several` are the parts of the requests that name a model and that request several instances.
    """

    cpus: tuple[int, ...]
    tied: float = 0.0
    several: float = 0.0
    alike: bool = False


WORKLOADS: Final = {
    "enough CPU": Workload(cpus=(256,)),
    "enough CPU, three in ten request 2 to 8 instances": Workload(cpus=(256,), several=0.3),
    "enough CPU, a third tied to a model": Workload(cpus=(256,), tied=0.33),
    "64 to 128 CPUs": Workload(cpus=(64, 96, 128)),
    "64 to 128 CPUs, nodes partitioned alike": Workload(cpus=(64, 96, 128), alike=True),
    "96 to 128 CPUs, a third tied, three in ten for several": Workload(cpus=(96, 128), tied=0.33, several=0.3),
}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=40, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument(
        "--seeds", type=int, default=3, help="clusters and arrivals of each kind (default: %(default)s)"
    )
    options.add_argument("--learned", type=count, default=3000, help="earlier requests (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/mig.json"), help="where it is written too")
    args = options.parse_args()
    found: dict[str, Any] = {}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    print(f"| slices allocated, % at 95 / 100 / 130 % arrived | {' | '.join(POLICIES)} |\n|---|---|---|---|")
    for name, workload in WORKLOADS.items():
        shown = []
        for policy in POLICIES:
            runs = [
                allocated(workload, policy=policy, nodes=args.nodes, learned=args.learned, seed=seed)
                for seed in range(args.seeds)
            ]
            means = {at: statistics.mean(run[at] for run in runs) for at in ARRIVED}
            found.setdefault(name, {})[policy] = {"mean": means, "runs": runs}
            shown.append(" / ".join(f"{mean:.2f}" for mean in means.values()))
        print(f"| {name} | {' | '.join(shown)} |", flush=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")


def allocated(
    workload: Workload, *, policy: FragmentationPolicy, nodes: int, learned: int, seed: int
) -> dict[int, float]:
    """The allocated slices in percent of all, by percent arrived, after the mix of so many earlier requests."""
    random = np.random.default_rng(seed)
    ledger = cluster(workload, nodes=nodes, random=random)
    capacity = Counter(device.mig for name in ledger.partitioned() for device in ledger.instances(name))
    slices = sum(mig.compute_slices(profile) * count for profile, count in capacity.items())
    term = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
    fit_cache, names = FitCache(ledger, term=term), ledger.nodes()
    arrived = taken = 0
    found: dict[int, float] = {}
    earlier = arrivals(workload, capacity=capacity, random=np.random.default_rng(1000 + seed))
    for number, ask in enumerate(islice(earlier, learned)):
        term.arrived(ask, key=f"earlier-{number}")
    for number, ask in enumerate(arrivals(workload, capacity=capacity, random=random)):
        key = f"request-{number}"
        term.arrived(ask, key=key)
        while term.work():
            pass
        requested = mig.compute_slices(ask.profile) * (ask.gpu.count if ask.gpu else 0)
        for node in fit_cache.best(ask, nodes=names, key=key, limit=1):
            fit = fit_cache.check(ask, node=node, key=key)
            assert isinstance(fit, Fit), "it was asked which nodes fit"
            ledger.commit(fit.claim)
            taken += requested
        arrived += requested
        for at in ARRIVED:
            if arrived >= slices * at / 100:
                found.setdefault(at, round(100 * taken / slices, 2))
        if len(found) == len(ARRIVED):
            break
    return found


def cluster(workload: Workload, *, nodes: int, random: np.random.Generator) -> Ledger:
    """Nodes whose GPUs are all partitioned."""
    ledger = Ledger()
    for number in range(nodes):
        name, model = f"node-{number}", str(random.choice(MODELS))
        cpu_milli = 1000 * int(random.choice(workload.cpus))
        ledger.set_node(NodeFacts(name=name, cpu_milli=cpu_milli, memory_mib=1 << 21))
        kinds = random.choice(len(PARTITIONS), size=CARDS, p=list(PARTITIONS.values()))
        cards = [list(PARTITIONS)[kinds[0] if workload.alike else kind] for kind in kinds]
        ledger.set_devices(
            name,
            devices=[
                DeviceFacts(
                    index=CARDS + at,
                    uuid=f"{name}-{at}",
                    vendor="nvidia",
                    model=model,
                    memory_mib=mig.memory_mib(profile),
                    mig=profile,
                )
                for at, profile in enumerate(profile for card in cards for profile in card)
            ],
        )
    return ledger


def arrivals(workload: Workload, *, capacity: Counter[str], random: np.random.Generator) -> Iterator[Ask]:
    """Requests for the profiles that the cluster has, each as often as it has instances of it."""
    profiles = sorted(capacity)
    weights = np.array([capacity[profile] for profile in profiles]) / capacity.total()
    while True:
        profile = str(random.choice(profiles, p=weights))
        count = _drawn(SEVERAL, random=random) if random.random() < workload.several else 1
        cpus = mig.compute_slices(profile) * count * _drawn(CPUS_OF_SLICE, random=random)
        models = (str(random.choice(MODELS)),) if random.random() < workload.tied else ()
        gpu = GPURequest(count=int(count), models=models, mig=profile)
        yield Ask(gpu=gpu, policy="Pack", cpu_milli=max(500, round(1000 * cpus)), memory_mib=1024)


def _drawn(weights: dict[Any, float], *, random: np.random.Generator) -> float:
    return float(random.choice(list(weights), p=list(weights.values())))


if __name__ == "__main__":
    main()
