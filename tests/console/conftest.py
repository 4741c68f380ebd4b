from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from dovetail.api.reasons.capacity import NEED
from dovetail.api.reasons.queue import AS_JOBS_LIKE_THEM, ENDED_ON_NODE
from dovetail_gateway.app import Options
from dovetail_gateway.console import build
from tests.console import browser as browsers
from tests.console.browser import CHROMIUM, Window
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face, serving


@pytest.fixture(scope="session", autouse=True)
def assets() -> Path:
    """The console, built from this checkout."""
    return build.build()


# One browser and one event loop for all tests: a start takes a second.
@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    async with browsers.chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[GatewayApiServer]:
    """The cluster of each test."""
    async with cluster() as server:
        yield server


@asynccontextmanager
async def cluster() -> AsyncIterator[GatewayApiServer]:
    """Two nodes of 8 V100. `train` runs, `next` waits behind it, `after` waits for `next`; and another tenant's job."""
    async with GatewayApiServer().running() as server:
        for name in ("a", "b"):
            server.put("nodes", make_node(name))
            server.put("gpunodes", make_gpunode(name))
        held = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}
        runs = {"phase": "Running", "number": 1, "gpus": 1, "request": "1(V100)", "nodes": ["a"], "devices": [held]}
        runs["startTime"] = "2026-11-01T00:00:10Z"
        waits = {"phase": "Queued", "number": 2, "gpus": 16, "request": "8", "reason": "Resources"}
        need = NEED(count=16, available=14, profile="")
        waits |= {"message": need.message, "details": msgspec.to_builtins(need.clauses)}
        place: dict[str, Any] = {"position": 1, "estimatedStart": "2100-01-01T00:00:00Z"}
        place |= {"estimatedStartEarliest": "2099-01-01T00:00:00Z", "estimatedStartLatest": "2101-01-01T00:00:00Z"}
        basis = ENDED_ON_NODE(jobs=1, node="a") + AS_JOBS_LIKE_THEM()
        place |= {"basis": basis.message, "basisDetails": msgspec.to_builtins(basis.clauses)}
        waits["queue"] = place
        blocked = {"phase": "Queued", "number": 3, "gpus": 1, "request": "1", "reason": "Dependency"}
        blocked["message"] = "Waits for next"
        blocked["details"] = [{"code": "WaitsForSomethingNew", "parameters": {"job": "next"}}]
        server.put("gpujobs", make_job("train", namespace="red", number=1, user="rita", status=runs))
        server.put("gpujobs", make_job("next", namespace="red", number=2, user="rita", status=waits, gpu=8, workers=2))
        after = make_job(
            "after", namespace="red", number=3, user="rob", status=blocked, dependencies=[{"name": "next"}]
        )
        server.put("gpujobs", after)
        server.put("gpujobs", make_job("canaryjob", namespace="canaryns", number=7, user="canaryuser"))
        server.put("pods", make_bound_pod("train-0", namespace="red", job="train", number=1, device="a-0"))
        server.put("pods", make_bound_pod("canarypod", namespace="canaryns", job="canaryjob", number=7, device="a-1"))
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def face(api: GatewayApiServer) -> AsyncIterator[Face]:
    async with serving(api, options=Options(rates=None)) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Browser, face: Face) -> AsyncIterator[Window]:
    async with browsers.window(browser, url=face.url) as made:
        yield made
