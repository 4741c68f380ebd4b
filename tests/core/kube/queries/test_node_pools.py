"""NodePools of Karpenter: watched and listed, on a scripted API server."""

import json
from typing import Any

import pytest

from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType
from dovetail.kube.client import Client
from dovetail.kube.queries.node_pools import list_node_pools, watch_node_pools
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api, Stream, refusal

LIST = "GET /apis/karpenter.sh/v1/nodepools"
WATCH = "WATCH /apis/karpenter.sh/v1/nodepools"


def node_pool(*, version: int = 3, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a100", "uid": "u", "resourceVersion": str(version)}, "spec": spec}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


class Seen:
    """The events of a watch: the type and the limit of nodes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def event(self, type_: EventType, pool: NodePool) -> None:
        self.events.append((type_, pool.spec.limits.get("nodes")))


async def test_node_pools_are_followed(api: Api, client: Client) -> None:
    seen = Seen()
    gone = {"type": "DELETED", "object": node_pool(version=6)}
    api.answer(LIST, page(), page(node_pool(limits={"nodes": "2"})))
    api.answer(WATCH, Stream(chunks=[json.dumps(gone).encode() + b"\n"]))
    watch = watch_node_pools(client, on_event=seen.event)
    async with running(watch.run()):
        await eventually(lambda: len(seen.events) == 2)
        assert watch.settled.is_set()
    assert seen.events == [("ADDED", "2"), ("DELETED", None)]


async def test_without_karpenter_nothing_waits_and_it_is_looked_for_again(api: Api, client: Client) -> None:
    seen = Seen()
    api.answer(LIST, refusal(404), refusal(404), page(), page(node_pool(limits={"nodes": "2"})))
    watch = watch_node_pools(client, on_event=seen.event, look_seconds=0.001)
    async with running(watch.run()):
        await watch.settled.wait()
        await eventually(lambda: bool(seen.events))


async def test_after_an_outage_it_is_looked_for_soon(api: Api, client: Client) -> None:
    seen = Seen()
    api.answer(LIST, refusal(500), page(), page(node_pool(limits={"nodes": "2"})))
    watch = watch_node_pools(client, on_event=seen.event, look_seconds=3600)
    async with running(watch.run()):
        await watch.settled.wait()
        await eventually(lambda: bool(seen.events))


@pytest.mark.parametrize(
    ("answer", "found"),
    [(page(node_pool()), ["a100"]), (refusal(404), []), (refusal(403), [])],
    ids=["listed", "no Karpenter", "forbidden"],
)
async def test_a_list_is_empty_without_karpenter_or_access(
    api: Api, client: Client, answer: Answer, found: list[str]
) -> None:
    api.answer(LIST, answer)
    assert [pool.metadata.name for pool in await list_node_pools(client)] == found
