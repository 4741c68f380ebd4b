"""A small cluster with a workload of its own, drawn with a seed: no trace is read."""

from collections.abc import Sequence

import numpy as np

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.arrivals import filling, sample, visiting
from dovetail.simulator.parallel import Scene
from dovetail.simulator.trace import Node, parse_nodes, parse_pods

NODES = """sn,cpu_milli,memory_mib,gpu,model
a,64000,262144,8,V100
b,64000,262144,8,V100
c,32000,131072,4,T4
d,32000,131072,4,T4
e,16000,65536,2,A10
f,96000,262144,8,A10
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
small,2000,4096,1,230,
half,4000,8192,1,500,
most,3000,8192,1,810,
one,6000,16384,1,1000,
pair,8000,16384,2,1000,V100|A10
all,60000,131072,8,1000,
host,8000,16384,0,0,
"""
# How often each of PODS comes.
COUNTS = (20, 15, 20, 30, 4, 1, 10)


def nodes() -> tuple[Node, ...]:
    return parse_nodes(NODES, source="nodes.csv")


def pods() -> list[Shape]:
    shapes = parse_pods(PODS, source="pods.csv").values()
    return [shape for shape, count in zip(shapes, COUNTS, strict=True) for _ in range(count)]


def capacity_milli(among: Sequence[Node]) -> int:
    return sum(node.gpus for node in among) * 1000


def make_scene(*, seed: int = 1, percent: float = 130, copies: int = 1, departures: bool = False) -> Scene:
    """The small cluster, `copies` times, and arrivals for it."""
    random = np.random.default_rng(seed)
    cluster = nodes() * copies
    capacity = capacity_milli(cluster)
    shapes = sample(pods(), capacity_milli=capacity, percent=percent, random=random)
    visits = visiting(shapes, capacity_milli=capacity, load=1.0, random=random) if departures else filling(shapes)
    return Scene(nodes=cluster, visits=visits, pods=pods(), departures=departures, seed=seed)
