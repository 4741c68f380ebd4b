"""The growing pools that count: the declared ones, with the NodePools that a watch has brought."""

from typing import Any

import msgspec

from dovetail.api.karpenter import NodePool
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator.state.growing_pools import GrowingPools

DECLARED = GrowingPool(name="a100", labels={}, max_nodes=8, gpus=8, model="A100", cpu_milli=90_000, memory_mib=900_000)


def node_pool(**spec: Any) -> NodePool:
    return msgspec.convert({"metadata": {"name": "a100"}, "spec": spec}, NodePool)


def test_a_node_pool_bounds_the_declared_pool_and_its_end_frees_it() -> None:
    pools, seen = GrowingPools(GrowingRules(pools=(DECLARED,))), list[int]()
    pools.on_change(lambda: seen.append(pools.rules.pools[0].max_nodes))
    pools.node_pool_event("ADDED", node_pool(limits={"nodes": "2"}))
    pools.node_pool_event("DELETED", node_pool())
    assert seen == [2, 8]


def test_an_event_that_changes_nothing_wakes_no_one() -> None:
    pools, seen = GrowingPools(GrowingRules()), list[int]()
    pools.on_change(lambda: seen.append(1))
    pools.node_pool_event("ADDED", node_pool())
    assert seen == []
