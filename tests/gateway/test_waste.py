"""Right sizes of jobs, and what is wrong with nodes, as each caller may see them."""

import asyncio
import itertools
from typing import Any

import pytest

from dovetail.answers.doctor import CheckResult
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face

DEVICE = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": 1000, "memoryMiB": 32768}


def measured(load: float) -> dict[str, Any]:
    """The status of a job that used 5,000 MiB of a V100 for an hour."""
    return {
        "phase": "Running",
        "number": 4,
        "request": "1",
        "devices": [DEVICE],
        "memory": {"strategy": "Dynamic", "basis": "", "peakMiB": 5000},
        "measured": {"meanUtilization": load, "deviceSeconds": 3600},
    }


async def until(face: Face, path: str, *, count: int, token: str = "admin-token") -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            found = (await face.get(path, token=token)).json
            if found["total"] >= count:
                return dict(found)


@pytest.fixture
async def sized(api: GatewayApiServer, face: Face) -> Face:
    api.put("gpujobs", make_job("small", namespace="red", user="rita", status=measured(0.1)))
    api.put("gpujobs", make_job("medium", namespace="red", user="rita", status=measured(0.5)))
    api.put("gpujobs", make_job("canarylarge", namespace="canaryns", user="canaryuser", status=measured(0.01)))
    await until(face, "/api/v3/right-sizes", count=3)
    return face


async def test_right_sizes_come_with_their_basis_the_largest_saving_first(sized: Face) -> None:
    found = (await sized.get("/api/v3/right-sizes", token="red-token")).json
    assert [(row["job"], row["suggested"], row["savedGpus"]) for row in found["items"]] == [
        ("small", "6G,0.2", 0.8),
        ("medium", "6G,0.6", 0.4),
    ]
    assert found["items"][0]["basis"].startswith("Peak 5,000 MiB of 32,768 MiB on a device in 1 run of small")


async def test_a_running_job_has_the_figures_that_its_pods_were_measured_to_have(
    api: GatewayApiServer, face: Face
) -> None:
    status = {"phase": "Running", "number": 4, "request": "1", "nodes": ["a"], "devices": [DEVICE]}
    api.put("gpujobs", make_job("live", namespace="red", user="rita", status=status))
    pod = make_bound_pod("live-0", namespace="red", job="live", number=4, device="a-0")
    api.put("pods", pod)
    stranger = make_bound_pod("live-1", namespace="canaryns", job="live", number=5, device="a-1")
    api.put("pods", stranger)
    report = api.objects["gpunodes"]["a"]
    for at, (each, seconds) in enumerate(((pod, 7200.0), (stranger, 9000.0))):
        uid = each["metadata"]["uid"]
        report["status"]["devices"][at]["totals"] = [
            {"uid": uid, "peakMiB": 5000, "meanUtilization": 0.1, "seconds": seconds}
        ]
    api.put("gpunodes", report)
    async with asyncio.timeout(20):
        while not (found := await rights(face)) or found[0]["deviceSeconds"] < 7200:
            pass
    assert (found[0]["job"], found[0]["peakMiB"], found[0]["suggested"]) == ("live", 5000, "6G,0.2")
    assert found[0]["deviceSeconds"] <= 7200 + 600


async def test_right_sizes_come_in_pages_of_the_callers_namespaces(sized: Face) -> None:
    first = (await sized.get("/api/v3/right-sizes?limit=1", token="red-token")).json
    second = (await sized.get(f"/api/v3/right-sizes?limit=1&cursor={first['next']}", token="red-token")).json
    assert ([row["job"] for row in second["items"]], second["next"], second["total"]) == (["medium"], None, 2)
    other = (await sized.get("/api/v3/right-sizes?namespace=canaryns", token="red-token")).json
    assert other == {"items": [], "next": None, "total": 0, "teams": []}


async def test_the_latest_run_of_a_name_stands_for_all(api: GatewayApiServer, sized: Face) -> None:
    later = make_job("small-2", namespace="red", user="rita", status=measured(0.3))
    later["metadata"] |= {"generateName": "small-", "creationTimestamp": "2026-11-02T00:00:00Z"}
    api.put("gpujobs", later)
    async with asyncio.timeout(20):
        while "small-2" not in (names := [each["job"] for each in (await rights(sized))]):
            pass
    assert names == ["small-2", "medium"]


async def rights(face: Face) -> list[dict[str, Any]]:
    return list((await face.get("/api/v3/right-sizes", token="red-token")).json["items"])


async def test_what_teams_could_save_is_of_all_jobs_that_the_caller_sees(api: GatewayApiServer, sized: Face) -> None:
    ran = {"startTime": "2026-11-01T02:00:00Z", "completionTime": "2026-11-01T12:00:00Z", "phase": "Succeeded"}
    for name, load in (("small", 0.1), ("medium", 0.5)):
        api.put("gpujobs", make_job(name, namespace="red", user="rita", status=measured(load) | ran))
    async with asyncio.timeout(60):
        while (found := await page_of(sized))["teams"][0]["savableHours"] < 12:
            pass
    (team,) = found["teams"]
    assert (team["namespace"], team["jobs"], team["savedGpus"]) == ("red", 2, 1.2)
    assert (team["savableHours"], team["savedHours"]) == (12.0, 0.0)
    assert [row["savableHours"] for row in found["items"]] == [8.0, 4.0]


async def test_the_owner_accepts_a_right_size_and_withdraws_it(api: GatewayApiServer, sized: Face) -> None:
    path = "/api/v3/jobs/red/small"
    assert (await sized.ask("PATCH", path, token="red-token", json={"resize": "Accept"})).status == 200
    assert api.objects["gpujobs"]["red/small"]["spec"]["rightSize"] == "6G,0.2"
    assert (await sized.ask("PATCH", path, token="red-token", json={"resize": "Withdraw"})).status == 200
    assert api.objects["gpujobs"]["red/small"]["spec"].get("rightSize") is None


async def test_a_job_that_keeps_its_request_is_not_changed(api: GatewayApiServer, sized: Face) -> None:
    api.put("gpujobs", make_job("small", namespace="red", user="rita", status=measured(0.95)))
    async with asyncio.timeout(60):
        while any(row["job"] == "small" and row["suggested"] for row in await rights(sized)):
            pass
    api.requests.clear()
    found = await sized.ask("PATCH", "/api/v3/jobs/red/small", token="red-token", json={"resize": "Accept"})
    assert (found.status, found.json["reason"]) == (409, "Conflict")
    assert found.json["detail"].startswith("GPUJob small keeps its request: no smaller one follows from what it used")
    assert ("rita", "patch", "red/small") not in api.requests


async def page_of(face: Face) -> dict[str, Any]:
    return dict((await face.get("/api/v3/right-sizes", token="red-token")).json)


async def test_findings_name_a_problem_once_for_all_nodes_with_it(face: Face) -> None:
    found = (await face.get("/api/v3/findings", token="red-token")).json
    ahead = next(row for row in found["items"] if row["message"].startswith("its clock is ahead of this one by"))
    assert (ahead["level"], ahead["count"], ahead["nodes"]) == ("warning", 2, ["a", "b"])
    assert ahead["fix"] == "set the clocks by NTP"


async def test_only_those_who_see_everything_get_commands_of_strangers(api: GatewayApiServer, face: Face) -> None:
    report = api.objects["gpunodes"]["a"]
    report["status"]["devices"][2]["strangers"] = [{"pid": 4711, "command": "canarymining", "pod": "canaryns/canary"}]
    api.put("gpunodes", report)
    seen_by_cache = face.made.cache.until_node
    await seen_by_cache("a", holds=lambda node: bool(node and node.status.devices[2].strangers), seconds=20)
    seen = await face.get("/api/v3/findings", token="admin-token")
    hidden = await face.get("/api/v3/findings", token="red-token")
    assert "(4711 canarymining)" in seen.text
    assert "GPU 2 is used by processes that have no allocation of it" in hidden.text
    assert ("canary" in hidden.text, "4711" in hidden.text) == (False, False)


async def test_who_sees_something_else_gets_findings_of_its_own(
    api: GatewayApiServer, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.users["both-token"] = User("bea", {"red": EDIT, "canaryns": EDIT})
    numbers = itertools.count()

    def judge(*_: Any, **__: Any) -> list[CheckResult]:
        return [CheckResult(check="nodes", level="warning", message=f"finding {next(numbers)}")]

    monkeypatch.setattr("dovetail.query.doctor.nodes.judge", judge)
    tokens = ("red-token", "reader-token", "both-token", "admin-token", "red-token")
    found = [(await face.get("/api/v3/findings", token=token)).json["items"][0]["message"] for token in tokens]
    assert found == ["finding 0", "finding 0", "finding 1", "finding 2", "finding 0"]


@pytest.mark.parametrize("path", ["/api/v3/right-sizes?limit=0", "/api/v3/findings?more=1"])
async def test_a_wrong_question_is_refused(face: Face, path: str) -> None:
    assert (await face.get(path, token="red-token")).status == 422


async def test_each_user_s_runs_of_a_name_are_a_row_also_where_they_save_the_same(
    api: GatewayApiServer, face: Face
) -> None:
    for number, user in enumerate(("rita", "rob", "rita")):
        job = make_job(f"train-{number}", namespace="red", user=user, status=measured(0.1))
        job["metadata"]["generateName"] = "train-"
        api.put("gpujobs", job)
    found = await until(face, "/api/v3/right-sizes", count=2)
    assert [(row["name"], row["user"]) for row in found["items"]] == [("train", "rita"), ("train", "rob")]
