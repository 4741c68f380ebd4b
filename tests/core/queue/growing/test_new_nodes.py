"""A node that a pool is expected to get, beside the same node once it is there and its agent reports."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node, Taint
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.growing.pools import GrowingPool
from tests.operator_.builders import NOW, at

POOL = GrowingPool(
    name="p", labels={"pool": "p"}, max_nodes=4, gpus=2, model="V100", gpu_memory_mib=32768, cpu_milli=16_000,
    memory_mib=65_536, pods=30, node_labels={"topology.kubernetes.io/zone": "z1", "dovetail.dev/rack": "r7"},
    taints=(Taint(key="gpu", effect="NoSchedule"),),
)  # fmt: skip


def come(name: str) -> Ledger:
    """A cluster with a node of the pool, as kubelet and agent report it."""
    view, template = ClusterView(ledger=Ledger()), POOL.template()
    amounts = {"cpu": f"{POOL.cpu_milli}m", "memory": f"{POOL.memory_mib}Mi", "pods": str(POOL.pods)}
    values: dict[str, Any] = {
        "metadata": {"name": name, "labels": template.metadata.labels},
        "spec": {"taints": [msgspec.to_builtins(taint) for taint in template.spec.taints]},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    view.node_changed(msgspec.convert(values, Node))
    card = {"vendor": POOL.vendor, "model": POOL.model, "memoryMiB": POOL.gpu_memory_mib}
    devices = [{"index": index, "uuid": f"GPU-{index}", **card} for index in range(POOL.gpus)]
    view.gpunode_changed(msgspec.convert({"metadata": {"name": name}, "status": {"devices": devices}}, GPUNode))
    return view.ledger


def test_a_node_is_planned_as_it_comes() -> None:
    ledger = come("n")
    planned, there = POOL.facts("n"), ledger.facts("n")
    assert there is not None
    for field in ("managed", "cpu_milli", "memory_mib", "pods", "resource", "offered", "unavailable"):
        assert getattr(planned, field) == getattr(there, field), field
    assert {**POOL.labels, **POOL.node_labels}.items() <= planned.labels.items() <= there.labels.items()
    for field in ("index", "vendor", "model", "memory_mib", "unavailable"):
        ours, theirs = ([getattr(each, field) for each in found] for found in (POOL.devices("n"), ledger.devices("n")))
        assert ours == theirs, field


@pytest.mark.parametrize(("seconds", "counts"), [(-1, False), (0, True), (1, True)])
@pytest.mark.parametrize(
    ("labels", "is_its"), [({"pool": "p", "disk": "ssd"}, True), ({"pool": "q"}, False), ({}, False)]
)
def test_a_node_came_since_a_request_if_it_is_not_older(
    seconds: int, counts: bool, labels: dict[str, str], is_its: bool
) -> None:
    """Kubernetes writes whole seconds: a node of the same second may be newer."""
    values = {"metadata": {"name": "n", "labels": labels, "creationTimestamp": at(seconds)}}
    node, pool = msgspec.convert(values, Node), POOL
    assert pool.has(node) == is_its
    assert pool.came_since(node, time=NOW) == (counts and is_its)
    assert not pool.came_since(node, time=NOW + timedelta(hours=1))
