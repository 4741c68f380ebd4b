"""The tree of devices that the gateway prints at its start."""

import asyncio

from dovetail_gateway.cluster.startup_tree import startup_tree
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face, serving


async def test_it_waits_for_the_first_report_of_each_node(api: GatewayApiServer, face: Face) -> None:
    api.put("nodes", make_node("late"))
    cache = face.made.cache
    async with asyncio.timeout(20):
        while "late" not in cache.nodes:  # noqa: ASYNC110 - the cache has no event
            await asyncio.sleep(0.005)
        printing = asyncio.create_task(startup_tree(cache, seconds=3600))
        api.put("gpunodes", make_gpunode("late", gpus=1, model="T4"))
        printed = await printing
    lines = printed.splitlines()
    assert [line for line in lines if line[0] not in " ├│└"] == ["a", "b", "late"]
    assert "└── 0: T4" in lines
    assert "    └── tasks: 0 training, 0 inference, 1 that do not say" not in lines
    assert "│   └── tasks: 0 training, 0 inference, 1 that do not say" in lines


async def test_it_waits_for_the_first_node_of_a_cluster() -> None:
    async with GatewayApiServer().running() as empty, serving(empty) as face:
        printing = asyncio.create_task(startup_tree(face.made.cache, seconds=3600))
        await asyncio.sleep(0)  # it has looked once, and found nothing
        empty.put("nodes", make_node("local"))
        empty.put("gpunodes", make_gpunode("local", gpus=1))
        async with asyncio.timeout(20):
            printed = await printing
    assert printed.splitlines()[:2] == ["local", "└── 0: V100"]


async def test_it_says_which_node_has_not_reported(api: GatewayApiServer, face: Face) -> None:
    api.put("nodes", make_node("late"))
    async with asyncio.timeout(20):
        while "late" not in face.made.cache.nodes:  # noqa: ASYNC110 - the cache has no event
            await asyncio.sleep(0.005)
        printed = await startup_tree(face.made.cache, seconds=0)
    assert printed.splitlines()[-1] == "late: its agent has not reported its devices"
