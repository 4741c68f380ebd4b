"""Small clusters, shapes and histories of placements and releases, for hypothesis."""

from dataclasses import dataclass

from hypothesis import strategies as st

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.workload_mix import Mix, by_class
from tests.core.fragmentation.builders import fits

MODELS = ("A10", "T4", "V100")
CPUS = (0, 500, 2000, 6000)
MEMORIES = (0, 1024, 30000)


@st.composite
def shapes(draw) -> Shape:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 4]))
    milli = draw(st.sampled_from([1, 125, 333, 500, 999, 1000])) if gpus == 1 else 1000 * (gpus > 0)
    models = draw(st.sampled_from([(), (), ("T4",), ("A10", "V100")]))
    return Shape(
        cpu_milli=draw(st.sampled_from(CPUS)),
        memory_mib=draw(st.sampled_from(MEMORIES)),
        gpus=gpus,
        share_milli=milli,
        models=models,
    )


@st.composite
def clusters(draw) -> Columns:
    nodes = draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(MODELS)), min_size=1, max_size=6))
    count = len(nodes)
    return Columns(
        cpu_milli=draw(st.lists(st.sampled_from([0, 4000, 9000]), min_size=count, max_size=count)),
        memory_mib=draw(st.lists(st.sampled_from([2048, 65536]), min_size=count, max_size=count)),
        gpus=[gpus for gpus, _ in nodes],
        models=[model for _, model in nodes],
    )


def mixes() -> st.SearchStrategy[Mix]:
    return st.dictionaries(shapes(), st.integers(1, 50), min_size=1, max_size=8).map(by_class)


@dataclass(frozen=True)
class Step:
    """One event: a pod goes to some node where it fits, or with `release` the oldest pod there leaves."""

    shape: Shape
    pick: int
    release: bool


steps = st.builds(Step, shape=shapes(), pick=st.integers(0, 1000), release=st.sampled_from([False, False, True]))
histories = st.lists(steps, max_size=25)


def apply(columns: Columns, step: Step, *, running: list[Choice]) -> None:
    """Let the step happen, if it can."""
    if step.release and running:
        columns.release(running.pop(0))
        return
    nodes = [node for node in range(len(columns)) if fits(columns, step.shape, node=node)]
    if not nodes:
        return
    node = nodes[step.pick % len(nodes)]
    left = columns.left[node].tolist()
    able = [at for at, value in enumerate(left) if value >= (step.shape.share_milli if step.shape.is_share else 1000)]
    start = step.pick % max(1, len(able) - step.shape.gpus + 1)
    choice = Choice(shape=step.shape, node=node, devices=tuple(able[start : start + step.shape.gpus]))
    columns.place(choice)
    running.append(choice)
