"""The live PACK and the simulator's `pack` are one policy: the same arrivals, the same allocation."""

from collections.abc import Iterator

import numpy as np
import pytest

from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import DeviceFacts, Ledger, NodeFacts
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import LiveFragmentation
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.workload_mix import by_class
from dovetail.gpu.request import GPURequest
from dovetail.simulator.policies import POLICIES, Setting

# GPUs, CPU milli, memory in MiB and model of each kind of node, and how many there are.
KINDS = [(8, 96_000, 393_216, "V100", 14), (2, 64_000, 262_144, "T4", 20), (4, 48_000, 196_608, "P100", 8)]
NODES = [kind[:4] for kind in KINDS for _ in range(kind[4])]
GPUS = sum(gpus for gpus, *_ in NODES)


def arrivals(*, percent: int) -> Iterator[Shape]:
    """Shares, whole GPUs, several of them, and pods without any, until they ask for this much of the cluster."""
    random = np.random.default_rng(7)
    asked = 0
    while asked < GPUS * WHOLE_MILLI * percent // 100:
        draw = random.random()
        cpu = int(random.choice([1000, 2000, 4000, 8000, 11_000]))
        memory = int(random.choice([2048, 8192, 16_384, 30_000]))
        models = ("T4",) if random.random() < 0.1 else ()
        if draw < 0.5:
            milli = int(random.choice([100, 250, 330, 400, 500, 600, 800]))
            shape = Shape(cpu_milli=cpu, memory_mib=memory, gpus=1, share_milli=milli, models=models)
        elif draw < 0.9:
            gpus = int(random.choice([1] * 12 + [2, 4, 8]))
            shape = Shape(
                cpu_milli=cpu * min(gpus, 4), memory_mib=memory, gpus=gpus, share_milli=1000, models=models[: gpus == 1]
            )
        else:
            shape = Shape(cpu_milli=cpu, memory_mib=memory)
        asked += shape.gpu_milli
        yield shape


def simulated(fit_cache: list[Shape]) -> float:
    """Allocation by the simulator's `pack`, as a part of the cluster."""
    columns = Columns(
        cpu_milli=[cpu for _, cpu, _, _ in NODES],
        memory_mib=[memory for _, _, memory, _ in NODES],
        gpus=[gpus for gpus, *_ in NODES],
        models=[model for *_, model in NODES],
    )
    policy = POLICIES["pack"].make(Setting(columns=columns, mix=by_class({})))
    for shape in fit_cache:
        choice = policy.choose(shape)
        if choice is not None:
            columns.place(choice)
    return 1 - columns.idle_milli / columns.capacity_milli


def live(fit_cache: list[Shape]) -> float:
    """Allocation by the engine's PACK, asked as kube-scheduler asks: the best few, their scores, the devices."""
    ledger = Ledger()
    for number, (gpus, cpu_milli, memory_mib, model) in enumerate(NODES):
        ledger.set_node(NodeFacts(name=f"n{number}", cpu_milli=cpu_milli, memory_mib=memory_mib))
        ledger.set_devices(
            f"n{number}",
            devices=[
                DeviceFacts(index=index, uuid=f"{number}-{index}", vendor="nvidia", model=model, memory_mib=16_384)
                for index in range(gpus)
            ],
        )
    fragments = LiveFragmentation(ledger)
    kept = FitCache(ledger, term=fragments)
    for number, shape in enumerate(fit_cache):
        ask, key = ask_of(shape), f"pod-{number}"
        fragments.arrived(ask, key=key)
        fragments.work()
        best = kept.best(ask, nodes=ledger.nodes(), key=key, limit=64)
        if best:
            scores = kept.scores(ask, nodes=best, key=key)
            found = kept.check(ask, node=best[scores.index(max(scores))], key=key)
            assert isinstance(found, Fit)
            ledger.commit(found.claim)
    totals = ledger.totals()
    return totals.promised_milli / totals.milli


def ask_of(shape: Shape) -> Ask:
    gpu = GPURequest(count=shape.gpus, share_milli=shape.share_milli, models=shape.models) if shape.gpus else None
    return Ask(
        gpu=gpu,
        mode="Fractional" if shape.is_share else "Exclusive",
        policy="Pack",
        cpu_milli=shape.cpu_milli,
        memory_mib=shape.memory_mib,
    )


@pytest.mark.parametrize("percent", [70, 100, 120])
def test_live_pack_allocates_what_the_simulator_s_pack_does(percent: int) -> None:
    fit_cache = list(arrivals(percent=percent))
    assert live(fit_cache) == pytest.approx(simulated(fit_cache), abs=0.005)
