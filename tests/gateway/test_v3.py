"""v3 over a real port: lists, pages, writes with the caller's token, and the errors of each."""

import asyncio
import json
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.decoding import convert
from dovetail_gateway.routing.numbers import whole
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v3.jobs import with_images
from tests.extender.builders import make_gpunode
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import Face, serving

NEW = {"namespace": "red", "spec": {"gpu": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}}
TRAIN = "/api/v3/jobs/red/train"


async def test_a_caller_of_one_namespace_sees_its_jobs_alone(face: Face) -> None:
    found = await face.get("/api/v3/jobs", token="red-token")
    assert [(row["namespace"], row["name"], row["number"]) for row in found.json["items"]] == [("red", "train", 1)]
    assert found.json["total"] == 1


async def test_a_caller_of_all_namespaces_sees_all_jobs(face: Face) -> None:
    found = await face.get("/api/v3/jobs", token="admin-token")
    assert [row["name"] for row in found.json["items"]] == ["canaryjob", "train"]


async def test_pages_give_every_job_once_while_the_list_changes(api: GatewayApiServer, face: Face) -> None:
    for at in range(5):
        api.put("gpujobs", make_job(f"j{at}", namespace="red", number=10 + at))
    first = await _until_total(face, 6)
    assert [row["name"] for row in first.json["items"]] == ["j0", "j1"]
    api.delete("gpujobs", "red/j1")
    await _until_total(face, 5)
    second = await face.get(f"/api/v3/jobs?limit=2&cursor={first.json['next']}", token="red-token")
    assert [row["name"] for row in second.json["items"]] == ["j2", "j3"]


async def _until_total(face: Face, total: int) -> Any:
    for _ in range(1000):
        found = await face.get("/api/v3/jobs?limit=2", token="red-token")
        if found.json["total"] == total:
            return found
    raise AssertionError(f"there are never {total} jobs")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("namespace=red", ["train"]),
        ("namespace=none", []),
        ("phase=Running", ["canaryjob", "train"]),
        ("phase=Queued", []),
        ("user=rita", ["train"]),
        ("project=red-project", ["train"]),
        ("unfinished=true", ["canaryjob", "train"]),
        ("number=1", ["train"]),
        ("number=99999", []),
    ],
)
async def test_filters_choose_jobs(face: Face, query: str, expected: list[str]) -> None:
    found = await face.get(f"/api/v3/jobs?{query}", token="admin-token")
    assert [row["name"] for row in found.json["items"]] == expected


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("limit=0", "limit"),
        ("phase=Odd", "phase"),
        ("colour=red", "colour"),
        ("cursor=" + "x" * 513, "cursor"),
        ("user=null", "user"),
        ("phase=null", "phase"),
        ("limit=x", "limit"),
        ("number=0", "number"),
    ],
)
async def test_a_wrong_query_is_refused_with_a_sentence_that_names_it(face: Face, query: str, word: str) -> None:
    found = await face.get(f"/api/v3/jobs?{query}", token="admin-token")
    assert found.status == 422
    assert word in found.json["detail"]
    assert found.headers["Content-Type"].startswith("application/problem+json")


async def test_a_parameter_that_comes_twice_is_refused(face: Face) -> None:
    found = await face.get("/api/v3/jobs?limit=1&limit=2", token="admin-token")
    assert (found.status, "limit" in found.json["detail"]) == (400, True)


async def test_one_job_comes_with_its_spec_and_status(face: Face) -> None:
    found = await face.get(TRAIN, token="red-token")
    assert found.json["row"]["user"] == "rita"
    assert found.json["spec"]["gpu"] == 1
    assert found.json["status"]["phase"] == "Running"


async def test_a_hidden_job_and_none_look_the_same(face: Face) -> None:
    hidden = await face.get("/api/v3/jobs/canaryns/canaryjob", token="red-token")
    none = await face.get("/api/v3/jobs/canaryns/other", token="red-token")
    assert hidden.status == none.status == 404
    assert hidden.json["detail"].replace("canaryjob", "other") == none.json["detail"]


async def test_a_job_is_created_as_the_caller(api: GatewayApiServer, face: Face) -> None:
    made = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "name": "new"})
    assert (made.status, made.json["name"], made.json["user"]) == (201, "new", "rita")
    assert ("rita", "create", "red/new") in api.requests


async def test_a_job_that_was_just_created_is_there_though_the_watch_is_late(api: GatewayApiServer, face: Face) -> None:
    api.late_seconds = 0.2
    made = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "name": "new"})
    found = await face.ask("GET", "/api/v3/jobs/red/new", token="red-token")
    assert (made.status, found.status) == (201, 200)


NEVER = {"phase": "Queued", "number": 7, "reason": "ExceedsCapacity", "message": "Need 9 GPUs, only 8 available"}


async def test_a_creation_waits_for_the_queues_answer(api: GatewayApiServer, face: Face) -> None:
    asked = face.ask("POST", "/api/v3/jobs?answerSeconds=10", token="red-token", json={**NEW, "name": "new"})
    making = asyncio.create_task(asked)
    while "red/new" not in api.objects["gpujobs"]:  # noqa: ASYNC110 - the stand-in has no event
        await asyncio.sleep(0)
    api.put("gpujobs", {**api.objects["gpujobs"]["red/new"], "status": NEVER})
    made = await making
    assert (made.status, made.json["number"]) == (201, 7)
    answer = made.json["answer"]
    assert (answer["outcome"], answer["reason"]) == ("Never", "ExceedsCapacity")
    assert answer["text"] == "It can never start here. ExceedsCapacity: Need 9 GPUs, only 8 available."


async def test_the_queues_answer_is_that_of_the_job_and_not_of_another_one_that_takes_its_name(
    api: GatewayApiServer, face: Face
) -> None:
    asked = face.ask("POST", "/api/v3/jobs?answerSeconds=10", token="red-token", json={**NEW, "name": "new"})
    making = asyncio.create_task(asked)
    while "red/new" not in api.objects["gpujobs"]:  # noqa: ASYNC110 - the stand-in has no event
        await asyncio.sleep(0)
    first = api.objects["gpujobs"]["red/new"]
    api.delete("gpujobs", "red/new")
    other = {**first, "metadata": {**first["metadata"], "uid": "of-another-job"}, "status": NEVER}
    api.put("gpujobs", other)
    made = await making
    assert (made.status, made.json["uid"], made.json["answer"]) == (201, first["metadata"]["uid"], None)


async def test_a_queue_that_does_not_decide_in_time_gives_no_answer(face: Face) -> None:
    path = "/api/v3/jobs?answerSeconds=1"
    made = await face.ask("POST", path, token="red-token", json={**NEW, "name": "new"})
    assert (made.status, made.json["answer"]) == (201, None)


async def test_a_retry_with_the_same_key_gives_the_same_job(api: GatewayApiServer, face: Face) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await face.ask("POST", "/api/v3/jobs", token="red-token", json=NEW, headers=key)
    second = await face.ask("POST", "/api/v3/jobs", token="red-token", json=NEW, headers=key)
    assert (first.status, second.status) == (201, 200)
    assert first.json["uid"] == second.json["uid"]
    assert len([job for job in api.objects["gpujobs"] if job.startswith("red/job-")]) == 1


async def test_a_key_is_its_users_and_not_its_tokens(api: GatewayApiServer, face: Face) -> None:
    key = {"Idempotency-Key": "k1"}
    api.users["renewed-token"] = api.users["red-token"]
    api.users["other-token"] = User("otto", {"red": EDIT, "blue": EDIT})
    tokens = ("red-token", "renewed-token", "other-token")
    found = [await face.ask("POST", "/api/v3/jobs", token=each, json=NEW, headers=key) for each in tokens]
    assert [each.status for each in found] == [201, 200, 201]
    blue = await face.ask("POST", "/api/v3/jobs", token="other-token", json={**NEW, "namespace": "blue"}, headers=key)
    assert (blue.status, blue.json["name"] == found[2].json["name"]) == (201, False)


@pytest.mark.parametrize("key", ["", "two words", "ä", "x" * 256])
async def test_a_key_that_is_none_is_refused(api: GatewayApiServer, face: Face, key: str) -> None:
    found = await face.ask("POST", "/api/v3/jobs", token="red-token", json=NEW, headers={"Idempotency-Key": key})
    assert (found.status, "Idempotency-Key" in found.json["detail"]) == (422, True)
    assert not api.requests


async def test_the_same_key_for_another_job_is_refused(face: Face) -> None:
    key = {"Idempotency-Key": "k1"}
    await face.ask("POST", "/api/v3/jobs", token="red-token", json=NEW, headers=key)
    other = {**NEW, "spec": {**NEW["spec"], "gpu": 2}}
    found = await face.ask("POST", "/api/v3/jobs", token="red-token", json=other, headers=key)
    assert (found.status, found.json["reason"]) == (409, "AlreadyExists")


async def test_what_the_api_server_refuses_comes_with_its_status_and_sentence(face: Face) -> None:
    found = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "namespace": "canaryns"})
    assert (found.status, found.json["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "gpujobs"' in found.json["detail"]
    invalid = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "spec": {}})
    assert (invalid.status, invalid.json["detail"]) == (422, "spec: exactly one of gpu and resources")


async def test_a_job_keeps_what_it_says_of_itself_but_no_digest_of_its_own(api: GatewayApiServer, face: Face) -> None:
    """The digest tells a retry from another request."""
    said = {"labels": {"team": "a"}, "annotations": {"note": "b", names.REQUEST_DIGEST: "forged"}}
    key = {"Idempotency-Key": "k1"}
    first = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, **said}, headers=key)
    meta = api.objects["gpujobs"][f"red/{first.json['name']}"]["metadata"]
    assert (meta["labels"], meta["annotations"]["note"], meta["generateName"]) == ({"team": "a"}, "b", "job-")
    assert meta["annotations"][names.REQUEST_DIGEST] != "forged"
    for other, status in (({}, 200), ({"labels": {"team": "c"}}, 409), ({"annotations": {}}, 409)):
        again = {**NEW, **said, **other}
        found = await face.ask("POST", "/api/v3/jobs", token="red-token", json=again, headers=key)
        assert found.status == status, other
    named = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "name": "mine"})
    meta = api.objects["gpujobs"]["red/mine"]["metadata"]
    assert (named.status, meta["generateName"], names.REQUEST_DIGEST in meta["annotations"]) == (201, "mine-", False)


async def test_a_name_prefix_begins_the_name_that_is_made(api: GatewayApiServer, face: Face) -> None:
    made = [
        (await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "namePrefix": "night"})).json["name"]
        for _ in range(2)
    ]
    assert (len(set(made)), {each.rpartition("-")[0] for each in made}) == (2, {"night"})


async def test_a_dry_run_creates_nothing(api: GatewayApiServer, face: Face) -> None:
    made = await face.ask("POST", "/api/v3/jobs?dryRun=true", token="red-token", json={**NEW, "name": "new"})
    assert made.status == 201
    assert "red/new" not in api.objects["gpujobs"]


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        ({"held": True}, {"suspend": True}),
        ({"held": False}, {"suspend": False}),
        ({"priority": 20}, {"priority": 20}),
        ({"priority": 0}, {"priority": 0}),
        ({"moves": "Restart"}, {"moves": "Restart"}),
        ({"requestMoves": True}, {"moveRequestTime": "2026-11-01T12:00:00Z"}),
        ({"requestMoves": False}, {}),
        ({"renew": True}, {"reservation": {"durationSeconds": 60, "renewTime": "2026-11-01T12:00:00Z"}}),
    ],
)
async def test_a_change_is_written_as_the_caller(
    api: GatewayApiServer, face: Face, change: dict[str, Any], spec: dict[str, Any]
) -> None:
    held = make_job("train", namespace="red", reservation={"durationSeconds": 60, "renewTime": "2026-10-31T00:00:00Z"})
    api.put("gpujobs", held)
    found = await face.ask("PATCH", TRAIN, token="red-token", json=change)
    assert found.status == 200
    assert spec.items() <= api.objects["gpujobs"]["red/train"]["spec"].items()
    assert api.requests[-1] == ("rita", "patch", "red/train")


@pytest.mark.parametrize("change", [{"priority": 300}, {"held": "yes"}, {"colour": 1}, []])
async def test_a_wrong_change_is_refused_before_the_api_server_hears_of_it(
    api: GatewayApiServer, face: Face, change: Any
) -> None:
    found = await face.ask("PATCH", TRAIN, token="red-token", json=change)
    assert found.status == 422
    assert not api.requests


async def test_a_whole_number_may_be_written_with_a_point(api: GatewayApiServer, face: Face) -> None:
    found = await face.ask("PATCH", TRAIN, token="red-token", json={"priority": 20.0})
    assert (found.status, found.json["priority"]) == (200, 20)
    assert (await face.ask("PATCH", TRAIN, token="red-token", json={"priority": 20.5})).status == 422


async def test_a_whole_number_of_a_spec_may_be_written_with_a_point(api: GatewayApiServer, face: Face) -> None:
    spec = {**NEW["spec"], "priority": 20.0, "dependencies": [{"name": "train"}]}
    made = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**NEW, "name": "new", "spec": spec})
    assert made.status == 201
    assert '"priority": 20,' in json.dumps(api.objects["gpujobs"]["red/new"]["spec"]) + ","
    found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json={"namespace": "red", "spec": spec})
    assert found.status == 200


async def test_cancel_sets_the_field_and_delete_is_idempotent(api: GatewayApiServer, face: Face) -> None:
    await face.ask("POST", f"{TRAIN}/cancel", token="red-token")
    assert api.objects["gpujobs"]["red/train"]["spec"]["cancel"] is True
    first = await face.ask("DELETE", TRAIN, token="red-token")
    second = await face.ask("DELETE", TRAIN, token="red-token")
    assert (first.json["found"], second.json["found"]) == (True, False)


async def test_a_reader_changes_nothing(face: Face) -> None:
    found = await face.ask("DELETE", TRAIN, token="reader-token")
    assert (found.status, found.json["reason"]) == (403, "Forbidden")


async def test_tenants_of_other_namespaces_are_a_sum(face: Face) -> None:
    node = (await face.get("/api/v3/nodes/a", token="red-token")).json
    own, other = node["devices"][0], node["devices"][1]
    assert [(each["namespace"], each["pod"], each["job"]) for each in own["tenants"]] == [("red", "train-0", 1)]
    assert (other["tenants"], other["available"]) == ([], False)
    assert other["others"] == {"tenants": 1, "shareMilli": 1000, "memoryMiB": 32768}


async def test_a_mig_instance_has_its_profile(api: GatewayApiServer) -> None:
    api.put("gpunodes", make_gpunode("a", gpus=1, migProfile="1g.10gb"))
    async with serving(api) as face:
        node = (await face.get("/api/v3/nodes/a", token="red-token")).json
        other = (await face.get("/api/v3/nodes/b", token="red-token")).json
    assert [device["migProfile"] for device in node["devices"]] == ["1g.10gb"]
    assert {device["migProfile"] for device in other["devices"]} == {""}


async def test_nodes_come_in_pages_and_by_model(face: Face) -> None:
    first = (await face.get("/api/v3/nodes?limit=1", token="red-token")).json
    assert ([node["name"] for node in first["items"]], first["total"]) == (["a"], 2)
    second = (await face.get(f"/api/v3/nodes?limit=1&cursor={first['next']}", token="red-token")).json
    assert ([node["name"] for node in second["items"]], second["next"]) == (["b"], None)
    assert (await face.get("/api/v3/nodes?model=A100", token="red-token")).json["items"] == []
    assert len((await face.get("/api/v3/devices?model=Tesla-V100-SXM2", token="red-token")).json["items"]) == 16


@pytest.mark.parametrize("path", ["jobs", "nodes", "devices", "quotas", "snapshot"])
async def test_a_listing_that_the_caller_has_already_is_not_sent_again(
    api: GatewayApiServer, face: Face, path: str
) -> None:
    first = await face.get(f"/api/v3/{path}", token="admin-token")
    known = {"If-None-Match": f'"other", {first.headers["ETag"]}'}
    again = await face.get(f"/api/v3/{path}", token="admin-token", headers=known)
    assert (again.status, again.text, again.headers["ETag"]) == (304, "", first.headers["ETag"])
    limited = await face.get(f"/api/v3/{path}", token="red-token", headers=known)
    assert limited.status == (304 if limited.headers["ETag"] == first.headers["ETag"] else 200)
    api.put("gpujobs", make_job("new", namespace="red"))
    api.put("pods", make_bound_pod("new-0", namespace="red", job="new", number=3, device="a-5"))
    api.put("gpuquotas", {"metadata": {"name": "q", "uid": "q"}, "spec": {"limit": {"gpus": 1}}, "status": {}})
    async with asyncio.timeout(20):
        while (await face.get(f"/api/v3/{path}", token="admin-token", headers=known)).status == 304:
            pass


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, br, zstd", "gzip"),
        ("br, GZIP;q=0.5", "gzip"),
        ("gzip;q=0, br", None),
        ("gzip; q=0.00", None),
        ("identity", None),
    ],
)
async def test_a_snapshot_is_sent_as_gzip_to_those_who_take_it(
    api: GatewayApiServer, face: Face, accepted: str, coding: str | None
) -> None:
    plain = await face.get("/api/v3/snapshot", token="red-token", headers={"Accept-Encoding": "identity"})
    found = await face.get("/api/v3/snapshot", token="red-token", headers={"Accept-Encoding": accepted})
    assert (found.headers.get("Content-Encoding"), found.json) == (coding, plain.json)
    assert (found.headers["ETag"], "canary" in found.text) == (plain.headers["ETag"], False)
    everything = await face.get("/api/v3/snapshot", token="admin-token", headers={"Accept-Encoding": accepted})
    assert "canaryns" in everything.text
    api.put("gpujobs", make_job("new", namespace="red"))
    async with asyncio.timeout(60):
        while "new" not in {job["name"] for job in found.json["jobs"]}:
            found = await face.get("/api/v3/snapshot", token="red-token", headers={"Accept-Encoding": accepted})
    known = {"If-None-Match": found.headers["ETag"], "Accept-Encoding": accepted}
    again = await face.get("/api/v3/snapshot", token="red-token", headers=known)
    assert (again.status, again.text) == (304, "")


async def test_callers_who_see_different_namespaces_have_different_tags(face: Face) -> None:
    tags = {
        (await face.get("/api/v3/snapshot", token=token)).headers["ETag"]
        for token in ("admin-token", "red-token", "reader-token")
    }
    assert len(tags) == 2, "the two of namespace red see the same"


async def test_the_events_of_a_job_come_with_the_callers_token(api: GatewayApiServer, face: Face) -> None:
    found = await face.get(f"{TRAIN}/events", token="red-token")
    assert [(row["reason"], row["message"]) for row in found.json["items"]] == [("Queued", "it waits")]
    assert api.requests[-1][:2] == ("rita", "list")


async def test_events_come_in_the_order_of_their_last_time_and_each_counts_once_at_least(
    api: GatewayApiServer, face: Face
) -> None:
    def event(reason: str, **changes: Any) -> dict[str, Any]:
        return {"metadata": {"name": reason}, "type": "Normal", "reason": reason, "message": "m"} | changes

    times = {"firstTimestamp": "2026-11-01T01:00:00Z", "lastTimestamp": "2026-11-01T03:00:00Z"}
    api.events = [
        event("Often", count=7, **times),
        event("Once", firstTimestamp="2026-11-01T02:00:00Z"),
        event("Undated"),
    ]
    found = (await face.get(f"{TRAIN}/events", token="red-token")).json["items"]
    assert [(row["reason"], row["count"], row["at"]) for row in found] == [
        ("Undated", 1, None), ("Once", 1, "2026-11-01T02:00:00Z"), ("Often", 7, "2026-11-01T03:00:00Z"),
    ]  # fmt: skip


async def test_quotas_show_the_callers_namespaces_and_count_the_others(api: GatewayApiServer, face: Face) -> None:
    uses = [{"who": "red", "gpus": 1}, {"who": "canaryns", "gpus": 2}]
    spec = {"namespaces": ["red", "canaryns"], "per": "Namespace", "limit": {"gpus": 4}}
    api.put("gpuquotas", {"metadata": {"name": "q", "uid": "q"}, "spec": spec, "status": {"gpus": 3, "uses": uses}})
    only = {"namespaces": ["canaryns"], "per": "Together"}
    api.put("gpuquotas", {"metadata": {"name": "canaryquota", "uid": "r"}, "spec": only, "status": {}})
    for _ in range(1000):
        found = (await face.get("/api/v3/quotas", token="red-token")).json["items"]
        everything = (await face.get("/api/v3/quotas", token="admin-token")).json["items"]
        if len(everything) == 2:
            break
    assert [row["name"] for row in everything] == ["canaryquota", "q"]
    assert [(row["name"], row["namespaces"], row["otherNamespaces"]) for row in found] == [("q", ["red"], 1)]
    assert [use["who"] for use in found[0]["uses"]] == ["red"]


async def test_a_quota_that_waits_names_those_who_would_be_asked_as_far_as_the_caller_sees_them(
    api: GatewayApiServer, face: Face
) -> None:
    waits, borrows = {"gpus": 4, "waiting": 2}, {"gpus": 1, "borrowed": 3}
    for name, namespaces, guarantee in (
        ("waits", ["red"], waits),
        ("neighbour", ["red"], borrows),
        ("canaryquota", ["canaryns"], borrows | {"borrowed": 5}),
    ):
        spec = {"namespaces": namespaces, "guaranteed": {"gpus": guarantee["gpus"]}}
        api.put(
            "gpuquotas", {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"guarantee": guarantee}}
        )
    for _ in range(1000):
        everything = (await face.get("/api/v3/quotas", token="admin-token")).json["items"]
        if len(everything) == 3:
            break
    (asks,) = [row for row in everything if row["name"] == "waits"]
    assert asks["guarantee"]["wouldGive"] == [{"name": "canaryquota", "gpus": 5.0}, {"name": "neighbour", "gpus": 3.0}]
    found = (await face.get("/api/v3/quotas", token="red-token")).json["items"]
    assert [(row["name"], row["guarantee"]["wouldGive"]) for row in found] == [
        ("neighbour", []),
        ("waits", [{"name": "neighbour", "gpus": 3.0}]),
    ]


async def test_me_says_who_the_api_server_sees(face: Face) -> None:
    found = (await face.get("/api/v3/me", token="red-token")).json
    assert (found["username"], found["everywhere"], found["namespaces"]) == ("rita", False, ["red"])
    assert (await face.get("/api/v3/me", token="admin-token")).json["everywhere"] is True


# --- jobs without an image -------------------------------------------------------------------------------------------

BARE = {"namespace": "red", "spec": {"gpu": 1, "template": {"spec": {"containers": [{"name": "m"}, {"name": "n"}]}}}}


def made_containers(api: GatewayApiServer, name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = api.objects["gpujobs"][f"red/{name}"]["spec"]["template"]["spec"]["containers"]
    return found


async def test_a_job_without_an_image_is_refused_where_nodes_run_images(face: Face) -> None:
    found = await face.ask("POST", "/api/v3/jobs", token="red-token", json=BARE)
    assert found.status == 422
    assert found.json["detail"] == (
        "spec.template.spec.containers[0].image is missing: name the image that the container runs, "
        "such as pytorch/pytorch"
    )


async def test_nodes_that_run_no_images_need_none(api: GatewayApiServer, face: Face) -> None:
    for name, node in list(api.objects["nodes"].items()):
        meta = node["metadata"]
        simulated = {**meta, "annotations": meta.get("annotations", {}) | {names.SIMULATED_NODE: "fake"}}
        api.put("nodes", {**node, "metadata": simulated} if name != "a" else on_processes(node))
    for _ in range(1000):
        made = await face.ask("POST", "/api/v3/jobs", token="red-token", json={**BARE, "name": "bare"})
        if made.status == 201:
            break
    assert [each["image"] for each in made_containers(api, "bare")] == [names.UNUSED_IMAGE] * 2
    own = {"spec": {"containers": [{"name": "m", "image": "own"}]}}
    await face.ask(
        "POST", "/api/v3/jobs", token="red-token", json={**BARE, "name": "own", "spec": {"gpu": 1, "template": own}}
    )
    assert [each["image"] for each in made_containers(api, "own")] == ["own"]


def on_processes(node: dict[str, Any]) -> dict[str, Any]:
    """The node as that of one's own machine."""
    status = node.get("status", {})
    return {**node, "status": {**status, "nodeInfo": {"containerRuntimeVersion": names.PROCESSES}}}


@pytest.mark.parametrize(
    "template", [None, 1, {}, {"spec": 1}, {"spec": {"containers": {}}}, {"spec": {"containers": [1]}}]
)
async def test_a_template_of_another_shape_is_left_to_the_api_server(template: Any) -> None:
    spec = {"gpu": 1, "template": template}
    assert with_images(spec, nodes=()) is spec


def test_one_node_that_runs_images_is_enough_to_need_one() -> None:
    simulated, real = ({"name": name, "annotations": {names.SIMULATED_NODE: "x"}} for name in ("s", "r"))
    del real["annotations"]
    nodes = [convert({"metadata": each}, as_type=Node) for each in (simulated, real)]
    with pytest.raises(RequestFailedError, match="image is missing"):
        with_images(BARE["spec"], nodes=nodes)
    complete = with_images(BARE["spec"], nodes=nodes[:1])
    assert [each["image"] for each in complete["template"]["spec"]["containers"]] == [names.UNUSED_IMAGE] * 2
    assert "image" not in BARE["spec"]["template"]["spec"]["containers"][0], "the request stays as it is"


@pytest.mark.parametrize("known", ["{tag}", "{strong}", '"a", {strong}', ' "a" ,{tag} '])
async def test_a_tag_is_known_in_its_weak_and_its_strong_form(face: Face, known: str) -> None:
    tag = (await face.get("/api/v3/jobs", token="red-token")).headers["ETag"]
    sent = {"If-None-Match": known.format(tag=tag, strong=tag.removeprefix("W/"))}
    assert (await face.get("/api/v3/jobs", token="red-token", headers=sent)).status == 304
    assert (await face.get("/api/v3/jobs/red/none", token="red-token", headers=sent)).status == 404


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (2.0, 2),
        (0.5, 0.5),
        (True, True),
        ("2.0", "2.0"),
        (None, None),
        ([1.0, [2.0, {"a": 3.0}]], [1, [2, {"a": 3}]]),
        ({"a": {"b": [0.0, -1.0]}}, {"a": {"b": [0, -1]}}),
    ],
)
def test_a_whole_number_is_read_as_one_wherever_it_is(written: Any, read: Any) -> None:
    assert json.dumps(whole(written)) == json.dumps(read)


async def test_a_dry_run_waits_for_nothing_to_be_shown(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.v3.jobs._SHOWN_SECONDS", 3600)
    async with asyncio.timeout(20):
        made = await face.ask("POST", "/api/v3/jobs?dryRun=true", token="red-token", json={**NEW, "name": "new"})
    assert made.status == 201
