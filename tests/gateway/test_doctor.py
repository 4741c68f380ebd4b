"""What is wrong with the installation, read with the caller's own rights; and all devices with their sums."""

from typing import Any

from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face


async def test_the_doctor_looks_at_what_the_caller_may_and_counts_the_rest(face: Face) -> None:
    admin = (await face.get("/api/v3/doctor", token="admin-token")).json
    red = (await face.get("/api/v3/doctor", token="red-token")).json
    for found in (admin, red):
        levels = [each["level"] for each in found["items"]]
        assert [levels.count(each) for each in ("ok", "unknown", "warning", "error")] == [
            found["ok"], found["unknown"], found["warnings"], found["errors"],
        ]  # fmt: skip
    assert red["unknown"] > 0
    assert all(each["message"].startswith("not looked at") for each in red["items"] if each["level"] == "unknown")


async def test_the_doctor_of_one_node_leaves_out_the_others(face: Face) -> None:
    found = (await face.get("/api/v3/doctor?node=a", token="admin-token")).json
    assert {each["subject"] for each in found["items"] if each["check"] == "node"} <= {"a"}


async def test_a_node_that_is_not_there_is_named(face: Face) -> None:
    found = await face.get("/api/v3/doctor?node=nowhere", token="admin-token")
    assert (found.status, found.json["detail"]) == (404, "there is no node nowhere")
    assert found.json["details"] == [{"code": "NoSuchNode", "parameters": {"node": "nowhere"}}]


async def test_a_diagnosis_needs_a_token(face: Face) -> None:
    assert (await face.get("/api/v3/doctor")).status == 401


def sums_of(nodes: list[dict[str, Any]]) -> tuple[int, int]:
    devices = [each for node in nodes for each in node["devices"]]
    return len(devices), sum(each["available"] for each in devices)


async def test_an_overview_has_the_nodes_of_the_list_with_their_sums(api: GatewayApiServer, face: Face) -> None:
    for token in ("admin-token", "red-token"):
        found = (await face.get("/api/v3/overview", token=token)).json
        assert found["nodes"] == (await face.get("/api/v3/nodes", token=token)).json["items"]
        assert (found["totalGpus"], found["availableGpus"]) == sums_of(found["nodes"])


async def test_an_overview_counts_the_jobs_that_the_caller_may_list(face: Face) -> None:
    for token in ("admin-token", "red-token"):
        jobs = (await face.get("/api/v3/jobs", token=token)).json["items"]
        found = (await face.get("/api/v3/overview", token=token)).json
        assert found["jobsRunning"] == sum(job["phase"] == "Running" for job in jobs)
        assert found["jobsWaiting"] == sum(job["phase"] in {"Queued", "Starting"} for job in jobs)
