"""The plan: since when jobs run, until when at most, and when the others are estimated to start."""

import asyncio
from typing import Any

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.decoding import convert
from dovetail.query.plan import windows
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.other_names import reader_of
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


RESERVED = {
    "time": "2026-11-01T14:00:00Z",
    "nodes": [{"name": "a", "workers": 2}],
    "kept": [{"name": "a", "keeps": ["2"]}],
}
NOW = "2026-11-01T12:00:00Z"


async def plan_of(face: Face, *, token: str) -> dict[str, Any]:
    return dict((await face.get("/api/v3/plan", token=token)).json)


@pytest.fixture
async def head(api: GatewayApiServer, face: Face) -> Face:
    """A job of another tenant has room kept on node `a`; `small`, submitted later, ends there before."""
    place = PLACE | {"position": 1, "reserved": RESERVED}
    api.put("gpujobs", make_job("canaryhead", namespace="canaryns", status=WAITS | {"number": 8, "queue": place}))
    small = make_job("small", namespace="red", user="rita", status=RUNS, activeDeadlineSeconds=3600)
    small["metadata"]["creationTimestamp"] = "2026-11-01T09:00:00Z"
    api.put("gpujobs", small)
    async with asyncio.timeout(20):
        while not (await plan_of(face, token="admin-token"))["kept"]:
            pass
        while "small" not in [each["name"] for each in await items(face)]:
            pass
    return face


async def test_room_that_is_kept_has_its_job_for_those_who_may_list_it(head: Face) -> None:
    [seen] = (await plan_of(head, token="admin-token"))["kept"]
    assert (seen["job"]["name"], seen["node"], seen["workers"], seen["keeps"]) == ("canaryhead", "a", 2, ["2"])
    [hidden] = (await plan_of(head, token="red-token"))["kept"]
    assert hidden == seen | {"job": None}


async def test_backfill_is_tied_to_the_gap_that_it_fills(head: Face) -> None:
    by_name = {each["name"]: each["fills"] for each in await items(head, token="admin-token")}
    assert by_name["small"]["until"] == "2026-11-01T14:00:00Z"
    assert by_name["small"]["job"]["name"] == "canaryhead"
    [hidden] = [each["fills"] for each in await items(head) if each["name"] == "small"]
    assert hidden == {"job": None, "until": "2026-11-01T14:00:00Z"}


async def test_a_job_that_ends_after_the_gap_or_came_first_fills_none(api: GatewayApiServer, head: Face) -> None:
    long = make_job("long", namespace="red", user="rita", status=RUNS, activeDeadlineSeconds=86_400)
    first = make_job("first", namespace="red", user="rita", status=RUNS, activeDeadlineSeconds=60)
    long["metadata"]["creationTimestamp"] = "2026-11-01T09:00:00Z"
    first["metadata"]["creationTimestamp"] = "2026-10-01T00:00:00Z"
    api.put("gpujobs", long)
    api.put("gpujobs", first)
    async with asyncio.timeout(20):
        while not {"long", "first"} <= (found := {each["name"]: each["fills"] for each in await items(head)}).keys():
            pass
    assert (found["long"], found["first"]) == (None, None)


async def test_a_bounded_plan_leaves_out_what_only_runs_or_waits(head: Face) -> None:
    assert [each["name"] for each in await items(head, "?bounded=true")] == ["small"]


async def test_drains_and_advance_reservations_bound_the_plan(api: GatewayApiServer, face: Face) -> None:
    node, report = api.objects["nodes"]["b"], api.objects["gpunodes"]["a"]
    node["spec"] = {"unschedulable": True}
    api.put("nodes", node)
    report.setdefault("spec", {})["cordoned"] = ["a-3"]
    api.put("gpunodes", report)
    window = {"name": "course", "startTime": NOW, "endTime": "2026-11-02T12:00:00Z", "gpus": 4}
    spec = {"limit": {"gpus": 8}, "namespaces": ["canaryns"], "advanceReservations": [window]}
    api.put("gpuquotas", {"metadata": {"name": "canaryquota", "uid": "q"}, "spec": spec})
    async with asyncio.timeout(20):
        while len((found := await plan_of(face, token="admin-token"))["drains"]) < 2 or not found["windows"]:
            pass
    assert [(each["node"], each["index"], each["why"]) for each in found["drains"]] == [
        ("a", 3, "GPU 3 on node a is cordoned"),
        ("b", None, "node b is cordoned"),
    ]
    assert (found["windows"][0]["quota"], found["windows"][0]["name"]) == ("canaryquota", "course")
    [hidden] = (await plan_of(face, token="red-token"))["windows"]
    assert (hidden["quota"], hidden["name"], hidden["gpus"]) == (None, None, 4)


@pytest.mark.parametrize(
    ("spec", "sees", "shown"),
    [
        ({}, {"red"}, True),
        ({"namespaces": ["red", "blue"]}, {"red"}, True),
        ({"namespaces": ["blue"]}, {"red"}, False),
        ({"users": ["rita"]}, {"red"}, False),
        ({"users": ["rita"], "namespaces": ["red"]}, {"red"}, False),
        ({"users": ["rita"]}, None, True),
    ],
)
def test_a_window_has_its_name_for_those_to_whose_namespaces_its_quota_applies(
    spec: dict[str, Any], sees: set[str] | None, shown: bool
) -> None:
    window = {"name": "w", "startTime": "2026-12-01T00:00:00Z", "endTime": "2026-12-02T00:00:00Z", "gpus": 2}
    quota = convert({"metadata": {"name": "q"}, "spec": spec | {"advanceReservations": [window]}}, as_type=GPUQuota)
    (found,) = windows([quota], reader=reader_of(Visibility(None if sees is None else frozenset(sees))))
    assert (found.quota, found.name, found.gpus) == (("q", "w", 2) if shown else (None, None, 2))


async def test_a_job_that_has_ended_keeps_no_room(api: GatewayApiServer, face: Face) -> None:
    reserved = {"time": "2026-11-01T13:00:00Z", "nodes": [{"name": "a", "workers": 1}], "kept": []}
    for name, phase in (("waits", "Queued"), ("over", "Cancelled")):
        status = WAITS | {"phase": phase, "queue": PLACE | {"reserved": reserved}}
        api.put("gpujobs", make_job(name, namespace="red", status=status))
    await face.until_like(api)
    found = (await face.get("/api/v3/plan", token="red-token")).json["kept"]
    assert [(each["job"]["name"], each["node"]) for each in found] == [("waits", "a")]
