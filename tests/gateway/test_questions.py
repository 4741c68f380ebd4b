"""Dry run, explain and audit: the truth for every caller, and no name of another tenant."""

import asyncio
import json
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import convert, decode
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.other_names import ANOTHER, OtherNames, readable
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_batch_job, make_bound_pod, make_job
from tests.gateway.served import Face
from tests.spec_values import RANKED

SPEC = {"template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}
RED = Visibility(frozenset({"red"}))


def asked(gpu: int | str, namespace: str = "red") -> dict[str, Any]:
    return {"namespace": namespace, "spec": {**SPEC, "gpu": gpu}}


async def test_a_dry_run_says_where_a_job_would_start(face: Face) -> None:
    found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(8))
    assert (found.json["outcome"], found.json["nodes"]) == ("Starts", [{"node": "b", "gpus": 8}])


async def test_a_dry_run_says_why_a_job_would_wait_or_never_start(face: Face) -> None:
    never = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(9))
    assert (never.json["outcome"], never.json["reason"]) == ("Never", "ExceedsCapacity")
    two = {"namespace": "red", "spec": {**SPEC, "gpu": 8, "workers": 2}}
    waits = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=two)
    assert (waits.json["outcome"], waits.json["position"]) == ("Waits", 1)


async def test_a_node_pool_of_karpenter_counts_as_a_pool_that_grows(api: GatewayApiServer, face: Face) -> None:
    shape = {"gpu-count": "16", "gpu-name": "h100", "gpu-memory": "81559", "cpu": "192", "memory": "2097152"}
    wants = [
        {"key": f"karpenter.k8s.aws/instance-{key}", "operator": "In", "values": [value]}
        for key, value in shape.items()
    ]
    template = {"metadata": {"labels": {"dovetail.dev/managed": "true"}}, "spec": {"requirements": wants}}
    api.put("nodepools", {"metadata": {"name": "grows", "uid": "grows"}, "spec": {"template": template}})

    async def until(reason: str) -> None:
        async with asyncio.timeout(10):
            found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(16))
            while found.json.get("reason") != reason:
                await asyncio.sleep(0.05)
                found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(16))

    await until("Provisioning")
    api.delete("nodepools", "grows")
    await until("ExceedsCapacity")


async def test_the_answer_is_the_same_for_who_sees_less(face: Face) -> None:
    for gpu in (1, 6, 8, 9):
        admin = await face.ask("POST", "/api/v3/dry-run", token="admin-token", json=asked(gpu))
        red = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(gpu))
        assert admin.json == red.json


async def test_who_sees_less_gets_no_name_from_the_dry_run_of_who_sees_all(api: GatewayApiServer, face: Face) -> None:
    for at in range(1, 8):
        api.put(
            "pods", make_bound_pod(f"canarypod-{at}", namespace="canaryns", job="canaryjob", number=7, device=f"a-{at}")
        )
    two = {"namespace": "red", "spec": {**SPEC, "gpu": 8, "workers": 2}}
    admin = await face.ask("POST", "/api/v3/dry-run", token="admin-token", json=two)
    red = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=two)
    assert (admin.json["outcome"], red.json["outcome"], "canary" in red.text) == ("Waits", "Waits", False)


async def test_a_dry_run_sees_a_change_of_a_small_cluster_at_once(api: GatewayApiServer, face: Face) -> None:
    eight = asked(8)
    assert (await face.ask("POST", "/api/v3/dry-run", token="red-token", json=eight)).json["outcome"] == "Starts"
    for node in ("a", "b"):
        pod = make_bound_pod(f"late-{node}", namespace="red", job="late", number=8, device=f"{node}-3", node=node)
        api.put("pods", pod)
    async with asyncio.timeout(20):
        while (await face.ask("POST", "/api/v3/dry-run", token="red-token", json=eight)).json["outcome"] == "Starts":
            pass


async def test_a_dry_run_in_a_hidden_namespace_is_refused(face: Face) -> None:
    found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked(1, namespace="canaryns"))
    assert (found.status, found.json["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize(
    "spec", [{"gpu": {}}, {"gpu": "2(V100"}, {"workers": 0}, {"gpu": 1, "template": {"spec": [None]}}, [], "x"]
)
async def test_a_spec_that_cannot_be_read_is_no_failure_of_the_gateway(face: Face, spec: Any) -> None:
    found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json={"namespace": "red", "spec": spec})
    assert found.status in {200, 422}
    assert found.status == 422 or found.json["outcome"] == "Invalid"


@pytest.mark.parametrize(
    "field",
    [
        {"beginTime": "1000-00-00T00000000Z"},
        {"moveRequestTime": "1000-00-00T00000000Z"},
        {"reservation": {"durationSeconds": 60, "renewTime": "1000-00-00T00000000Z"}},
    ],
)
async def test_a_time_that_is_none_is_refused_by_a_dry_run(face: Face, field: dict[str, Any]) -> None:
    asked_then = {"namespace": "red", "spec": {**SPEC, "gpu": 1, **field}}
    found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=asked_then)
    assert (found.status, "1000-00-00T00000000Z" in found.json["detail"]) == (422, True)


async def test_an_explanation_calls_the_holder_of_a_device_another_tenant(api: GatewayApiServer, face: Face) -> None:
    for at in range(2, 8):
        pod = make_bound_pod(f"canarypod-{at}", namespace="canaryns", job="canaryjob", number=7, device=f"a-{at}")
        api.put("pods", pod)
    waiting = {"phase": "Queued", "number": 9, "reason": "Resources", "message": "Need 8 GPUs"}
    two = make_job("two", namespace="red", number=9, user="rita", status=waiting, gpu=8, workers=2)
    api.put("gpujobs", two)
    for _ in range(1000):
        found = await face.get("/api/v3/jobs/red/two/explain", token="red-token")
        if found.status == 200 and not face.made.cache.node_use("a").available:  # type: ignore[union-attr]  # it is there
            break
    found = await face.get("/api/v3/jobs/red/two/explain", token="red-token")
    assert found.json["fits"] is False
    assert "canary" not in found.text
    assert ANOTHER in found.text
    assert "canaryns" in (await face.get("/api/v3/jobs/red/two/explain", token="admin-token")).text


async def until_known(face: Face, key: str, *, node: str) -> None:
    """Until the gateway has seen the job, and that a pod holds a device of the node."""
    async with asyncio.timeout(20):
        while key not in face.made.cache.jobs or face.made.cache.node_use(node).available == 8:  # type: ignore[union-attr]  # it is there  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


async def test_moves_say_who_restarts_elsewhere_and_hide_the_jobs_of_other_tenants(
    api: GatewayApiServer, face: Face
) -> None:
    runs = make_job("canarymoves", namespace="canaryns", number=8, moves="Restart")
    runs["status"] |= {"startTime": "2026-11-01T00:00:00Z", "nodes": ["b"]}
    api.put("gpujobs", runs)
    of_run = {"spec": {"parallelism": 1, "completions": 1}, "status": {"active": 1}}
    api.put("jobs", make_batch_job(runs) | of_run)
    api.put("pods", make_bound_pod("p", namespace="canaryns", job="canarymoves", number=8, device="b-0", node="b"))
    waiting = {"phase": "Queued", "number": 9, "reason": "Fragmentation", "message": "Need 8 GPUs"}
    api.put("gpujobs", make_job("wants", namespace="red", number=9, user="rita", status=waiting, gpu=8))
    await until_known(face, "red/wants", node="b")
    path = "/api/v3/moves?jobs=red/wants"
    replies = [await face.get(path, token=token) for token in ("red-token", "admin-token")]
    assert "canary" not in replies[0].text
    (red,), (admin,) = (each.json["items"] for each in replies)
    assert red["holds"] is admin["holds"] is True, admin
    assert [each["job"] for each in red["moves"]] == [None]
    assert [each["job"]["name"] for each in admin["moves"]] == ["canarymoves"]
    assert (len(red["notes"]), admin["notes"]) == (1, [])
    assert [each["code"] for each in red["noteDetails"][0]] == ["BudgetsUnread"]
    asked = await face.get(f"{path}&willing=true", token="admin-token")
    assert asked.json["items"][0]["moves"] == admin["moves"]
    several = await face.get(f"{path},canaryns/canarymoves,red/wants", token="admin-token")
    assert [(each["job"]["name"], each["holds"]) for each in several.json["items"]] == [
        ("wants", True),
        ("canarymoves", False),
    ]
    codes = [each["code"] for each in several.json["items"][1]["details"]]
    assert codes == ["NoMovesForNumbered", "DoesNotWaitForRoom"]
    hidden = await face.get(f"{path},canaryns/canarymoves", token="red-token")
    unknown = await face.get(f"{path},canaryns/none", token="red-token")
    assert (hidden.status, unknown.status) == (404, 404)
    assert hidden.text.replace("canarymoves", "none") == unknown.text

    meta = {"name": "all", "namespace": "canaryns", "uid": "all"}
    api.put("poddisruptionbudgets", {"metadata": meta, "spec": {"selector": {}}, "status": {}})
    kept = await face.get(path, token="admin-token")
    assert [(each["holds"], each["movable"]) for each in kept.json["items"]] == [(False, admin["movable"] - 1)]


@pytest.mark.parametrize(
    "jobs",
    ["", "wants", "red/wants,", "red/wants/x", ",".join(f"red/{at}" for at in range(21))],
    ids=["none", "without a namespace", "one without a name", "too many parts", "too many"],
)
async def test_moves_are_asked_for_a_few_jobs_with_their_namespaces(face: Face, jobs: str) -> None:
    found = await face.get(f"/api/v3/moves?jobs={jobs}", token="red-token")
    assert found.status == 422
    assert len(found.json["detail"]) < 250, found.json["detail"]


async def test_an_explanation_rests_on_the_mixes_that_the_operator_and_the_extender_have_stored(
    api: GatewayApiServer, face: Face
) -> None:
    for name in ("dovetail-mix-of-jobs", "dovetail-mix-of-pods"):
        mix = {"policy": "ph", "arrivals": 1, "inUse": [[1, 1, 1, 500, [], 1]], "counted": []}
        api.put("configmaps", {"metadata": {"name": name, "uid": name}, "data": {"mix": json.dumps(mix)}})
    waiting = {"phase": "Queued", "number": 9, "reason": "Resources", "message": "Need 1 GPU"}
    api.put("gpujobs", make_job("one", namespace="red", number=9, user="rita", status=waiting, gpu=1))
    async with asyncio.timeout(20):
        basis = ""
        while "on what was submitted so far" not in basis or "that the extender has seen" not in basis:
            found = await face.get("/api/v3/jobs/red/one/explain", token="red-token")
            basis = found.json.get("basis", "")
    for name in ("dovetail-mix-of-jobs", "dovetail-mix-of-pods"):
        api.delete("configmaps", name)
    async with asyncio.timeout(20):
        while "on what was submitted so far" in basis or "that the extender has seen" in basis:
            basis = (await face.get("/api/v3/jobs/red/one/explain", token="red-token")).json.get("basis", "")


async def test_a_job_that_runs_is_explained_by_its_devices(face: Face) -> None:
    found = (await face.get("/api/v3/jobs/red/train/explain", token="red-token")).json
    assert (found["state"], [each["uuid"] for each in found["held"]]) == ("placed", ["a-0"])


async def test_what_is_around_a_job_is_for_who_may_list_everything(face: Face) -> None:
    assert (await face.get("/api/v3/jobs/red/train/explain", token="red-token")).json["around"] == []
    around = (await face.get("/api/v3/jobs/red/train/explain", token="admin-token")).json["around"]
    assert ("a-0", "In use by job 1") in [(each["uuid"], each["status"]) for each in around]


async def test_the_audit_names_tenants_only_to_who_sees_all(api: GatewayApiServer, face: Face) -> None:
    clean = (await face.get("/api/v3/audit", token="red-token")).json
    assert (clean["findings"], clean["devices"]) == (0, 16), (await face.get("/api/v3/audit", token="admin-token")).text
    api.put("pods", make_bound_pod("canarytwice", namespace="canaryns", job="canaryjob", number=7, device="a-0"))
    for _ in range(1000):
        red = await face.get("/api/v3/audit", token="red-token")
        if red.json["findings"]:
            break
    assert (red.json["findings"] > 0, red.json["items"]) == (True, [])
    admin = await face.get("/api/v3/audit", token="admin-token")
    assert "canarytwice" in json.dumps(admin.json["items"])


def job_of(made: dict[str, Any]) -> GPUJob:
    return decode(json.dumps(made), as_type=GPUJob)


def other_names(*jobs: GPUJob) -> OtherNames:
    return OtherNames(sees=RED, jobs=jobs, secret=b"s" * 32)


def test_no_hidden_name_is_left_in_the_renamed_cluster() -> None:
    job = job_of(make_job("canaryjob", namespace="canaryns", user="canaryuser", group="canarygroup"))
    objects = ClusterObjects(
        nodes=(),
        gpunodes=(),
        pods=(),
        jobs=[job],
        settings=Settings.model_validate(
            {key: {"canaryns": value} for key, value in RANKED.items()}
            | {"namespace_time_limits": {"canaryns": 60}, "namespace_cpu_fallback": {"canaryns": 60}}
            | {"moves": {"namespaces": {"canaryns": "Restart"}}}
        ),
    )
    found = other_names(job).cluster(objects)
    assert "canary" not in f"{found.jobs}{found.settings}"
    assert list(found.settings.namespace_policies) == [found.jobs[0].metadata.namespace]
    # What the configuration says of a namespace counts for it under its word too, and its name is nowhere.
    by_namespace = [key for key in Settings.model_fields if key.startswith("namespace_")]
    word = found.jobs[0].metadata.namespace
    assert [list(getattr(found.settings, key)) for key in by_namespace] == [[word] for _ in by_namespace]
    assert found.settings.moves.namespaces == {word: "Restart"}


def test_names_that_are_equal_stay_equal_and_what_is_seen_stays() -> None:
    mine = job_of(make_job("train", namespace="red", user="rita"))
    words = other_names(mine)
    assert words.namespace("canaryns") == words.namespace("canaryns") != words.namespace("other")
    assert (words.namespace("red"), words.user("rita")) == ("red", "rita")


def test_words_differ_between_gateways_so_that_a_name_cannot_be_guessed() -> None:
    mine = OtherNames(sees=RED, jobs=(), secret=b"a" * 32).namespace("canaryns")
    assert mine != OtherNames(sees=RED, jobs=(), secret=b"b" * 32).namespace("canaryns")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("held by job 5 of namespace {ns}, until 9", "held by another tenant, until 9"),
        ("held by pod {ns}/{name}", "held by another tenant"),
        ("GPUQuota {name} allows 2", "another tenant allows 2"),
        ("a {name} b", "a another tenant b"),
        ("job 5 of namespace red", "job 5 of namespace red"),
    ],
)
def test_phrases_around_a_hidden_name_become_another_tenant(sentence: str, expected: str) -> None:
    words = other_names()
    text = sentence.format(ns=words.namespace("canaryns"), name=words.namespace("canaryjob"))
    assert readable(text) == expected


async def test_a_dry_run_in_place_of_a_waiting_job_leaves_out_that_job(api: GatewayApiServer, face: Face) -> None:
    waiting = {"phase": "Queued", "number": 9, "reason": "Resources", "message": "Need 16 GPUs"}
    api.put("gpujobs", make_job("old", namespace="red", number=9, user="rita", status=waiting, gpu=8, workers=2))
    new = {"namespace": "red", "spec": {**SPEC, "gpu": 8, "workers": 2}}

    async def position(**more: str) -> int | None:
        found = await face.ask("POST", "/api/v3/dry-run", token="red-token", json=new | more)
        return found.json.get("position") if found.status == 200 else None

    async with asyncio.timeout(20):
        while await position() != 2:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.05)
    assert await position(inPlaceOf="old") == 1


def test_a_project_of_a_pod_that_is_seen_is_not_hidden_and_no_quota_of_it_is() -> None:
    """Plain pods have projects too; those of hidden pods alone are words."""
    pods = []
    for namespace, project in (("red", "vision"), ("canaryns", "canaryproject")):
        made = make_bound_pod("p", namespace=namespace, job="j", number=1, device="a-0")
        made["metadata"]["labels"] |= {names.LABEL_PROJECT: project}
        pods.append(convert(made, as_type=Pod))
    others = OtherNames(sees=Visibility(frozenset({"red"})), jobs=[], pods=pods, secret=b"secret")
    assert others.project("vision") == "vision"
    assert "canary" not in others.project("canaryproject")
    hidden = {
        project: others.hides(convert({"metadata": {"name": "q"}, "spec": {"projects": [project]}}, as_type=GPUQuota))
        for project in ("vision", "canaryproject")
    }
    assert hidden == {"vision": False, "canaryproject": True}
