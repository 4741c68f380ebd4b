"""Changes of quotas as the caller, what they would do first, and two people who change one quota at once."""

import asyncio
from typing import Any

import pytest

from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_batch_job, make_bound_pod, make_job
from tests.gateway.served import Face

PATH = "/api/v3/quotas/red"


@pytest.fixture
async def quotas(api: GatewayApiServer, face: Face) -> GatewayApiServer:
    """All 16 GPUs are held by `blue`, for a job of `red` that waits; both have quotas, and that of `red` has none."""
    for kind in ("pods", "gpujobs"):
        for key in list(api.objects[kind]):
            api.delete(kind, key)
    for at in range(16):
        node, name = "ab"[at // 8], f"canary{at}"
        started = {"phase": "Running", "number": 100 + at, "gpus": 1, "nodes": [node]}
        started["startTime"] = "2026-11-01T00:00:10Z"
        job = make_job(name, namespace="blue", number=100 + at, user="bea", status=started)
        api.put("jobs", make_batch_job(job))
        api.put("gpujobs", job)
        pod = make_bound_pod(
            f"{name}-0", namespace="blue", job=name, number=100 + at, device=f"{node}-{at % 8}", node=node
        )
        api.put("pods", pod)
    waits = {"phase": "Queued", "number": 20, "reason": "Resources", "message": "Need 1 GPU"}
    api.put("gpujobs", make_job("next", namespace="red", number=20, user="rita", status=waits, gpu=1))
    for name in ("red", "blue"):
        meta = {"name": name, "uid": f"q-{name}", "generation": 3}
        spec = {"namespaces": [name], "guaranteed": {"gpus": 0}, "limit": {"gpus": 16}}
        api.put("gpuquotas", {"metadata": meta, "spec": spec})
    api.users["planner-token"] = User("pia", {"red": EDIT, "*": {"patch", "get"}})
    await face.until_like(api)
    return api


async def asked(face: Face, spec: dict[str, Any], *, token: str = "admin-token") -> dict[str, Any]:
    found = await face.ask("POST", f"{PATH}/effects", token=token, json={"spec": spec})
    assert found.status == 200, found.text
    answer: dict[str, Any] = found.json
    return answer


@pytest.mark.usefixtures("quotas")
async def test_a_preview_names_who_is_ended_for_whom_and_changes_nothing(face: Face) -> None:
    found = await asked(face, {"guaranteed": {"gpus": 1}})
    (ended,) = found["ends"]
    assert (ended["job"].startswith("blue/canary"), ended["by"]) == (True, "red/next")
    assert [(each["name"], each["before"], each["after"]) for each in found["quotas"]] == [
        ("blue", 0, 0),
        ("red", 0, 1),
    ]
    assert (found["othersEnd"], found["contradictions"], found["isRefused"]) == (0, [], False)
    rows = (await face.get("/api/v3/quotas", token="admin-token")).json["items"]
    assert [(row["name"], row["guaranteed"], row["generation"]) for row in rows] == [("blue", 0, 3), ("red", 0, 3)]


@pytest.mark.usefixtures("quotas")
async def test_jobs_and_quotas_of_other_tenants_are_counted_and_not_named(face: Face) -> None:
    found = await asked(face, {"guaranteed": {"gpus": 1}}, token="planner-token")
    assert (found["ends"], found["othersEnd"]) == ([], 1)
    assert [each["name"] for each in found["quotas"]] == ["red"]
    assert "canary" not in str(found)


@pytest.mark.usefixtures("quotas")
async def test_the_list_says_who_may_change_them(face: Face) -> None:
    found = {
        token: (await face.get("/api/v3/quotas", token=token)).json["mayChange"]
        for token in ("admin-token", "planner-token", "red-token")
    }
    assert found == {"admin-token": True, "planner-token": True, "red-token": False}


async def test_who_may_not_change_quotas_gets_no_preview_and_no_change(quotas: GatewayApiServer, face: Face) -> None:
    spec = {"spec": {"guaranteed": {"gpus": 1}}}
    preview = await face.ask("POST", f"{PATH}/effects", token="red-token", json=spec)
    assert (preview.status, preview.json["detail"]) == (403, "you may not patch gpuquotas.dovetail.dev")
    assert (await face.ask("PATCH", PATH, token="red-token", json=spec)).status == 403
    assert quotas.objects["gpuquotas"]["red"]["spec"]["guaranteed"] == {"gpus": 0}


async def test_a_change_is_made_with_the_callers_own_rights_and_leaves_the_rest(
    quotas: GatewayApiServer, face: Face
) -> None:
    change = {"generation": 3, "spec": {"guaranteed": {"gpus": 2.0}, "shares": 4}}
    found = await face.ask("PATCH", PATH, token="admin-token", json=change)
    assert (found.status, found.json["guaranteed"], found.json["shares"], found.json["generation"]) == (200, 2, 4, 4)
    assert quotas.objects["gpuquotas"]["red"]["spec"] == {
        "namespaces": ["red"],
        "guaranteed": {"gpus": 2},
        "limit": {"gpus": 16},
        "shares": 4,
    }
    assert [each for each in quotas.requests if each[1] == "patch"] == [("admin", "patch", "gpuquotas/red")]


async def test_the_second_of_two_who_change_one_quota_at_once_is_refused_in_one_sentence(
    quotas: GatewayApiServer, face: Face
) -> None:
    first, second = await asyncio.gather(
        *(
            face.ask("PATCH", PATH, token="admin-token", json={"generation": 3, "spec": {"shares": shares}})
            for shares in (5, 6)
        )
    )
    refused, done = sorted((first, second), key=lambda reply: -reply.status)
    assert (done.status, refused.status) == (200, 409)
    assert refused.json["detail"] == ("GPUQuota red has changed since you read it (generation 4, not 3): read it again")
    assert quotas.objects["gpuquotas"]["red"]["spec"]["shares"] == done.json["shares"]


@pytest.mark.parametrize(("between", "status"), [(1, 200), (50, 409)])
async def test_the_operators_status_between_read_and_write_is_no_conflict(
    quotas: GatewayApiServer, face: Face, between: int, status: int
) -> None:
    quotas.quota_writes = between
    change = {"generation": 3, "spec": {"shares": 5}}
    found = await face.ask("PATCH", PATH, token="admin-token", json=change)
    assert found.status == status, found.text
    assert "shares" in found.text or "written too often" in found.json["detail"]


@pytest.mark.usefixtures("quotas")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"guaranted": {"gpus": 1}}, 'unknown field "spec.guaranted"; did you mean "guaranteed"?'),
        ({"guaranteed": {"gpus": "many"}}, 'spec.guaranteed.gpus "many": must be a whole number from 0 to 1000000'),
        ({"guaranteed": 3}, "spec.guaranteed 3: must be an object"),
        ({"namespaces": {"a": "b"}}, "spec.namespaces (an object): must be a list"),
        ({"guaranteed": {"gpus": 17}}, "spec.guaranteed.gpus 17: must not be above the limit of 16 GPUs"),
        ({"parent": "gone"}, "spec.parent gone: there is no such GPUQuota: create it first"),
        ({"parent": "red"}, "spec.parent red: must be another quota"),
    ],
)
async def test_a_change_that_cannot_be_names_field_and_value(face: Face, spec: dict[str, Any], problem: str) -> None:
    for method, path in (("POST", f"{PATH}/effects"), ("PATCH", PATH)):
        found = await face.ask(method, path, token="admin-token", json={"spec": spec})
        assert (found.status, problem in found.json["detail"]) == (422, True), found.text


@pytest.mark.usefixtures("quotas")
async def test_a_quota_that_is_not_there_and_one_of_others_look_the_same_in_a_preview(face: Face) -> None:
    found = [
        await face.ask("POST", f"/api/v3/quotas/{name}/effects", token="planner-token", json={"spec": {}})
        for name in ("blue", "none")
    ]
    assert [(each.status, each.json["detail"].replace("none", "blue")) for each in found] == [
        (404, "there is no GPUQuota blue that applies to a namespace you may list")
    ] * 2
    assert (await face.ask("PATCH", "/api/v3/quotas/none", token="admin-token", json={"spec": {}})).status == 404


async def test_lifting_the_only_guarantee_removes_it(quotas: GatewayApiServer, face: Face) -> None:
    found = await face.ask("PATCH", PATH, token="admin-token", json={"spec": {"guaranteed": {"gpus": None}}})
    assert (found.status, "guaranteed" in quotas.objects["gpuquotas"]["red"]["spec"]) == (200, False)


async def test_the_answer_to_a_change_is_the_row_that_the_list_shows_next(quotas: GatewayApiServer, face: Face) -> None:
    """Also what follows from the other quotas of its tree, such as who would give it GPUs."""
    shown = {"gpus": 2, "used": 3, "lent": 0, "borrowed": 1, "waiting": 1}
    for name, parent in (("tree", None), ("red", "tree"), ("blue", "tree")):
        spec = {"guaranteed": {"gpus": 2}, "limit": {"gpus": 16}} | (
            {"parent": parent, "namespaces": [name]} if parent else {}
        )
        meta = {"name": name, "uid": f"q-{name}", "generation": 3}
        status = {"gpus": 3, "guarantee": shown | ({"used": 7} if parent is None else {})}
        quotas.put("gpuquotas", {"metadata": meta, "spec": spec, "status": status})
    await face.until_like(quotas)
    before = (await face.get("/api/v3/quotas", token="admin-token")).json["items"]
    assert any(row["guarantee"]["wouldGive"] for row in before if row["name"] == "red")
    found = await face.ask("PATCH", PATH, token="admin-token", json={"spec": {"shares": 7}})
    assert found.status == 200, found.text
    await face.until_like(quotas)
    after = (await face.get("/api/v3/quotas", token="admin-token")).json["items"]
    assert found.json == next(row for row in after if row["name"] == "red")
