from collections.abc import AsyncIterator

import pytest

from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face, serving


@pytest.fixture
async def api() -> AsyncIterator[GatewayApiServer]:
    """Two nodes of 8 V100, and jobs of the namespaces `red` and `canary`, each with a device of node `a`."""
    async with GatewayApiServer().running() as server:
        for name in ("a", "b"):
            server.put("nodes", make_node(name))
            server.put("gpunodes", make_gpunode(name))
        server.put("gpujobs", make_job("train", namespace="red", number=1, user="rita"))
        server.put("gpujobs", make_job("canaryjob", namespace="canaryns", number=7, user="canaryuser"))
        server.put("pods", make_bound_pod("train-0", namespace="red", job="train", number=1, device="a-0"))
        server.put("pods", make_bound_pod("canarypod", namespace="canaryns", job="canaryjob", number=7, device="a-1"))
        yield server


@pytest.fixture
async def face(api: GatewayApiServer) -> AsyncIterator[Face]:
    """A gateway whose cache is complete, without rate limits."""
    async with serving(api) as started:
        yield started
