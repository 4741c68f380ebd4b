"""NodePools of Karpenter reach the queue, on a scripted API server."""

import json
from typing import Any

import msgspec

from dovetail.kube.client import Client
from dovetail.queue.growing.karpenter import NodePool
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator.state.growing_pools import GrowingPools
from dovetail_operator.watchers.karpenter import NodePoolWatch
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api, Stream, refusal

LIST = "GET /apis/karpenter.sh/v1/nodepools"
WATCH = "WATCH /apis/karpenter.sh/v1/nodepools"
DECLARED = GrowingPool(name="a100", labels={}, max_nodes=8, gpus=8, model="A100", cpu_milli=90_000, memory_mib=900_000)


def node_pool(*, version: int = 3, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a100", "uid": "u", "resourceVersion": str(version)}, "spec": spec}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


async def test_a_node_pool_bounds_the_declared_pool_and_its_end_frees_it(api: Api, client: Client) -> None:
    pools, woken = GrowingPools(GrowingRules(pools=(DECLARED,))), list[int]()
    gone = {"type": "DELETED", "object": node_pool(version=6)}
    api.answer(LIST, page(), page(node_pool(limits={"nodes": "2"})))
    api.answer(WATCH, Stream(chunks=[json.dumps(gone).encode() + b"\n"]))
    watch = NodePoolWatch(client, pools=pools, changed=lambda: woken.append(pools.rules.pools[0].max_nodes))
    async with running(watch.run()):
        await eventually(lambda: len(woken) == 2)
    assert woken == [2, 8]


async def test_without_karpenter_it_is_looked_for_again(api: Api, client: Client) -> None:
    pools, woken = GrowingPools(GrowingRules(pools=(DECLARED,))), list[int]()
    api.answer(LIST, refusal(404), refusal(404), page(), page(node_pool(limits={"nodes": "2"})))
    watch = NodePoolWatch(client, pools=pools, changed=lambda: woken.append(1), look_seconds=0.001)
    async with running(watch.run()):
        await eventually(lambda: bool(woken))


def test_an_event_that_changes_nothing_wakes_no_one() -> None:
    pools = GrowingPools(GrowingRules())
    assert not pools.node_pool_event("ADDED", msgspec.convert(node_pool(), NodePool))
