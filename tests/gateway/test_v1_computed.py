"""The reservation of a v1 request beside one that is searched for in the devices of random nodes."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from dovetail.answers.inventory import NodeUse, take
from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.decoding import convert
from dovetail_gateway.v1.request import NoSuchGPU, reservation
from dovetail_gateway.v1.types import Wanted
from tests.extender.builders import make_gpunode, make_node

# Of each model, what a driver reports in MiB, and the GB on the box.
SIZES: Final = {"V100": {16160: 16, 32768: 32}, "A100": {40536: 40, 81559: 80}, "T4": {15360: 16}}
Devices = Sequence[tuple[str, int]]


def drawn_nodes(rng: Random) -> tuple[list[NodeUse], list[Devices]]:
    """Nodes whose devices differ, and the model and the GB of each device."""
    nodes, devices = list[NodeUse](), list[Devices]()
    for at in range(rng.randrange(1, 5)):
        made, own = make_gpunode(f"n-{at}", gpus=rng.randrange(1, 9)), list[tuple[str, int]]()
        models = rng.sample(sorted(SIZES), rng.randrange(1, 3))
        for device in made["status"]["devices"]:
            model = rng.choice(models)
            mib, gb = rng.choice(sorted(SIZES[model].items()))
            device |= {"model": model, "memoryMiB": mib}
            own.append((model, gb))
        taken = take(
            [convert(made, as_type=GPUNode)],
            pods=[],
            scheduler="",
            namespace="",
            nodes=[convert(make_node(f"n-{at}"), as_type=Node)],
        )
        nodes.append(taken.nodes[f"n-{at}"])
        devices.append(own)
    return nodes, devices


def drawn_request(rng: Random) -> tuple[dict[str, Any], str | None, float]:
    """A request, and the model and the GB that it names."""
    model = rng.choice([None, *SIZES])
    gb = rng.choice([0, 0, 16, 24, 32, 40, 41, 80, 81])
    count, spread = rng.randrange(1, 25), rng.random() < 0.8
    if rng.random() < 0.4:
        text = f"{count}({model or f'>={gb}G'})" if model or gb else str(count)
        return {"gpu_requirement": text, "distributed_training": spread}, model, 0 if model else gb
    sizes = {"memory_gb": gb} if gb else {}
    models = {"gpu_type": model} if model else {}
    return {"gpu_count": count, "distributed_training": spread, **sizes, **models}, model, gb


def expected_split(count: int, *, on_nodes: Sequence[int]) -> int:
    """GPUs of each worker: the most for which all workers have places at once, or which one node has at all."""
    splits = [each for each in range(1, count + 1) if count % each == 0]
    placed = [each for each in splits if sum(have // each for have in on_nodes) >= count // each]
    within = [each for each in splits if each <= max(on_nodes)]
    return max(placed or within or [count])


@pytest.mark.parametrize("seed", range(10))
def test_each_worker_gets_as_many_as_the_nodes_have_of_what_is_asked_for(seed: int) -> None:
    rng = Random(seed)
    for _ in range(40):
        nodes, devices = drawn_nodes(rng)
        wanted, model, gb = drawn_request(rng)
        named = [[size for of, size in own if model in {None, of}] for own in devices]
        on_nodes = [sum(size >= gb for size in own) for own in named]
        found = reservation(Wanted(**wanted), nodes=nodes)
        if "gpu_count" in wanted and gb and not any(on_nodes):
            largest = max((size for own in named for size in own), default=0)
            assert isinstance(found, NoSuchGPU)
            assert (str(largest) in found.suggestion) == bool(largest), (wanted, devices)
            continue
        assert not isinstance(found, NoSuchGPU), (wanted, devices)
        text = wanted.get("gpu_requirement", "")
        count = int(text.partition("(")[0]) if text else wanted["gpu_count"]
        each = expected_split(count, on_nodes=on_nodes) if wanted["distributed_training"] else count
        assert found.workers == count // each, (wanted, devices)
        if text:
            assert int(found.spec["gpu"].partition("(")[0]) == each, (wanted, devices)
        else:
            assert found.spec["resources"]["count"] == each, (wanted, devices)
