"""NodePools of Karpenter as growing pools: scenarios as data."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Taint
from dovetail.queue.growing.karpenter import NodePool, shape_of, with_node_pools
from dovetail.queue.growing.pools import GrowingPool, GrowingRules

DECLARED = GrowingPool(name="a100", labels={}, max_nodes=8, gpus=8, model="A100", cpu_milli=90_000, memory_mib=900_000)
AWS = {"gpu-count": "8", "gpu-name": "a100", "gpu-memory": "40960", "cpu": "96", "memory": "1179648"}


def make_pool(
    name: str = "a100",
    *,
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    requirements: dict[str, list[str]] | None = None,
    limits: dict[str, Any] | None = None,
    weight: int = 0,
) -> NodePool:
    asked = [{"key": key, "operator": "In", "values": values} for key, values in (requirements or {}).items()]
    template = {"metadata": {"labels": labels or {}}, "spec": {"requirements": asked, "taints": taints or []}}
    spec = {"template": template, "limits": limits or {}, "weight": weight}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, NodePool)


def aws(**other: list[str]) -> dict[str, list[str]]:
    return {f"karpenter.k8s.aws/instance-{key}": [value] for key, value in AWS.items()} | {
        f"karpenter.k8s.aws/instance-{key.replace('_', '-')}": values for key, values in other.items()
    }


def merged(*found: NodePool, declared: GrowingPool = DECLARED) -> tuple[GrowingPool, ...]:
    return with_node_pools(GrowingRules(pools=(declared,)), found=found).pools


def test_a_declared_pool_takes_labels_and_taints_of_the_node_pool_of_its_name() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    (pool,) = merged(make_pool(labels={"dovetail.dev/managed": "true"}, taints=[taint]))
    assert pool.labels == {"dovetail.dev/managed": "true", "karpenter.sh/nodepool": "a100"}
    assert pool.taints == (Taint(key="gpu", value="yes", effect="NoSchedule"),)
    assert (pool.gpus, pool.max_nodes) == (8, 8)


def test_a_requirement_of_one_value_is_a_label_of_every_new_node() -> None:
    zones = {"topology.kubernetes.io/zone": ["z0"], "kubernetes.io/arch": ["amd64", "arm64"]}
    (pool,) = merged(make_pool(requirements=zones))
    assert pool.facts("new").labels == {"topology.kubernetes.io/zone": "z0", "karpenter.sh/nodepool": "a100"}
    assert pool.template().metadata.labels["topology.kubernetes.io/zone"] == "z0"
    assert pool.labels == {"karpenter.sh/nodepool": "a100"}, "nodes from before the requirement still belong to it"


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, 8),
        ({"nodes": "3"}, 3),
        ({"cpu": "200"}, 2),
        ({"cpu": 450, "memory": "900Gi"}, 1),
        ({"nvidia.com/gpu": "24"}, 3),
        ({"dovetail.dev/gpu-milli": "16000"}, 2),
        ({"nodes": "0"}, 0),
        ({"nodes": "many"}, 8),
        ({"nodes": "100"}, 8),
    ],
)
def test_the_limits_bound_the_number_of_nodes(limits: dict[str, Any], most: int) -> None:
    (pool,) = merged(make_pool(limits=limits))
    assert pool.max_nodes == most


def test_a_node_pool_whose_requirements_tell_the_shape_needs_no_declaration() -> None:
    found = shape_of(make_pool("found", requirements=aws()))
    assert found is not None
    assert (found.gpus, found.model, found.gpu_memory_mib) == (8, "a100", 40960)
    assert (found.cpu_milli, found.memory_mib) == (86_400, 1_061_683), "kubelet and DaemonSets take some"
    assert found.resource == "nvidia.com/gpu"


def test_a_node_pool_of_managed_nodes_says_so_by_its_label() -> None:
    found = shape_of(make_pool("found", requirements=aws(), labels={"dovetail.dev/managed": "true"}))
    assert found is not None
    assert found.resource == ""


@pytest.mark.parametrize(
    "requirements",
    [{}, aws(gpu_name=[]), aws(gpu_count=["4", "8"]), aws(cpu=["many"]), aws(memory=["-5"]), aws(gpu_count=["9" * 50])],
)
def test_a_node_pool_whose_shape_is_not_known_is_left_out(requirements: dict[str, list[str]]) -> None:
    assert [pool.name for pool in merged(make_pool("found", requirements=requirements))] == ["a100"]


def test_found_pools_follow_the_declared_ones_by_weight() -> None:
    pools = merged(
        make_pool("b", requirements=aws()),
        make_pool("c", requirements=aws(), weight=10),
        make_pool("a100", requirements=aws(), weight=5),
        declared=replace(DECLARED, labels={"x": "y"}),
    )
    assert [pool.name for pool in pools] == ["a100", "c", "b"]
    assert pools[0].labels == {"x": "y", "karpenter.sh/nodepool": "a100"}
