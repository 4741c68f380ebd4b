"""A cluster and a workload drawn from the published statistics of the openb traces, for benchmarks without a trace.

The statistics are of Weng et al. (ATC'23): nodes by model and size, the part of the pods that requests no GPU, a share,
or 1, 2, 4 or 8 GPUs, and the mean CPU of each. The pods themselves are drawn by the seed: sizes of shares, CPU, and how
often each comes. So nothing here repeats a trace, and each seed is another workload.
"""

from collections.abc import Sequence

import numpy as np
import simulator

from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.simulator.arrivals import filling, sample
from dovetail.simulator.parallel import Scene
from dovetail.simulator.trace import Node

# How many nodes of a kind, its model and GPUs, CPUs and GiB of memory.
NODES = (
    (549, "G2", 8, 96, 384),
    (387, "T4", 2, 104, 512),
    (107, "P100", 2, 16, 120),
    (39, "G3", 8, 128, 768),
    (28, "V100M16", 4, 32, 128),
    (24, "P100", 2, 64, 256),
    (21, "V100M32", 8, 96, 768),
    (19, "V100M16", 1, 8, 32),
    (17, "T4", 4, 96, 384),
    (9, "V100M32", 4, 48, 368),
    (8, "V100M16", 8, 64, 256),
)
# Of a thousand pods, how many request so many GPUs (0.5 for a share), and their mean CPUs.
PODS = ((133, 0.0, 17.6), (378, 0.5, 5.9), (480, 1.0, 11.1), (2, 2.0, 16.9), (2, 4.0, 37.8), (5, 8.0, 80.3))
MOST_CPUS = {0.0: 64, 0.5: 32, 1.0: 32, 2.0: 32, 4.0: 60, 8.0: 92}
GIB_PER_CPU = 4
# Shapes of each number of GPUs, and how much their frequency and CPU vary.
SHAPES = 20
FREQUENCY_SIGMA, CPU_SIGMA = 1.5, 0.6
SHARES_MILLI = range(50, 1000, 10)
POOL = 8_000


def scene(*, seed: int, size: float = 1.0, percent: float = 130) -> Scene:
    """The cluster, or a part of it, with pods that arrive until they request `percent` of its GPUs."""
    random = np.random.default_rng(seed)
    nodes = [
        Node(name=f"{model}-{number}-{at}", cpu_milli=cpus * 1000, memory_mib=gib * 1024, gpus=gpus, model=model)
        for at, (count, model, gpus, cpus, gib) in enumerate(NODES)
        for number in range(max(1, round(count * size)))
    ]
    random.shuffle(nodes)  # type: ignore[arg-type] # NumPy's types lack lists
    pods = pods_of(random)
    arriving = sample(pods, capacity_milli=simulator.columns_of(nodes).capacity_milli, percent=percent, random=random)
    return Scene(nodes=nodes, visits=filling(arriving), pods=pods, seed=seed)


def pods_of(random: np.random.Generator) -> list[Shape]:
    """A table of pods, each as often as it comes."""
    return [shape for count, gpus, cpus in PODS for shape in _of_kind(random, count=count, gpus=gpus, mean_cpus=cpus)]


def _of_kind(random: np.random.Generator, *, count: int, gpus: float, mean_cpus: float) -> Sequence[Shape]:
    often = random.lognormal(sigma=FREQUENCY_SIGMA, size=SHAPES)
    cpus = random.lognormal(sigma=CPU_SIGMA, size=SHAPES)
    cpus *= mean_cpus * often.sum() / (often @ cpus)
    whole = np.clip(np.rint(cpus), 1, MOST_CPUS[gpus]).astype(int).tolist()
    shapes = [
        Shape(
            cpu_milli=one * 1000,
            memory_mib=one * GIB_PER_CPU * 1024,
            gpus=int(np.ceil(gpus)),
            share_milli=int(random.choice(SHARES_MILLI)) if gpus == 0.5 else WHOLE_MILLI * bool(gpus),
        )
        for one in whole
    ]
    return [shapes[at] for at in random.choice(SHAPES, size=POOL * count // 1000, p=often / often.sum()).tolist()]
