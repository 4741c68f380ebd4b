"""The plan: since when jobs run, until when at most, and when the others are estimated to start."""

import asyncio
from typing import Any

import pytest

from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import Face

DEVICE = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}
RUNS = {"phase": "Running", "number": 4, "startTime": "2026-11-01T10:00:00Z", "nodes": ["a"], "devices": [DEVICE]}
PLACE = {
    "position": 2,
    "estimatedStart": "2026-11-01T13:00:00Z",
    "estimatedStartEarliest": "2026-11-01T12:30:00Z",
    "estimatedStartLatest": "2026-11-01T15:00:00Z",
}
WAITS = {"phase": "Queued", "number": 5, "reason": "Resources", "message": "Need 8 GPUs", "queue": PLACE}


@pytest.fixture
async def planned(api: GatewayApiServer, face: Face) -> Face:
    """Beside jobs without a known start: one that runs, one that waits, one that has ended, and a hidden one."""
    api.put("gpujobs", make_job("runs", namespace="red", user="rita", status=RUNS, activeDeadlineSeconds=7200))
    api.put("gpujobs", make_job("waits", namespace="red", user="rita", status=WAITS))
    api.put("gpujobs", make_job("ended", namespace="red", status=RUNS | {"phase": "Succeeded"}))
    api.put("gpujobs", make_job("canarylater", namespace="canaryns", status=WAITS | {"number": 6}))
    async with asyncio.timeout(20):
        while len((await face.get("/api/v3/plan", token="admin-token")).json["items"]) < 3:
            pass
    return face


async def items(face: Face, query: str = "", *, token: str = "red-token") -> list[dict[str, Any]]:
    found = (await face.get(f"/api/v3/plan{query}", token=token)).json
    return list(found["items"])


async def test_what_runs_comes_first_with_its_devices_and_its_latest_end(planned: Face) -> None:
    runs, _ = await items(planned)
    assert (runs["name"], runs["startsAt"], runs["endsBy"]) == ("runs", "2026-11-01T10:00:00Z", "2026-11-01T12:00:00Z")
    assert ([each["uuid"] for each in runs["devices"]], runs["position"], runs["earliest"]) == (["a-0"], None, None)


async def test_what_waits_has_its_estimated_start_and_the_bounds(planned: Face) -> None:
    _, waits = await items(planned)
    assert (waits["name"], waits["position"], waits["startsAt"]) == ("waits", 2, "2026-11-01T13:00:00Z")
    assert (waits["earliest"], waits["latest"]) == ("2026-11-01T12:30:00Z", "2026-11-01T15:00:00Z")
    assert waits["endsBy"] is None


async def test_the_plan_has_the_namespaces_of_the_caller_and_comes_in_pages(planned: Face) -> None:
    assert {row["namespace"] for row in await items(planned)} == {"red"}
    assert {row["namespace"] for row in await items(planned, token="admin-token")} == {"red", "canaryns"}
    assert [row["name"] for row in await items(planned, "?namespace=canaryns", token="admin-token")] == ["canarylater"]
    first = (await planned.get("/api/v3/plan?limit=1", token="red-token")).json
    second = (await planned.get(f"/api/v3/plan?limit=1&cursor={first['next']}", token="red-token")).json
    assert ([row["name"] for row in second["items"]], second["next"]) == (["waits"], None)
