"""Each answer's numbers are those that the objects say, for every kind of reader, also after several changes."""

from collections.abc import Callable
from typing import Any

import pytest

from dovetail.names import GROUP
from tests.gateway.canary import counted, expected
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.counted import Sees
from tests.gateway.canary.expected import differences
from tests.gateway.canary.objects import NAMESPACES, ONE, TOKENS, TWO, Tenant
from tests.gateway.canary.rbac import Act, RbacApiServer
from tests.gateway.openapi import table
from tests.gateway.served import Face

Answer = Callable[[RbacApiServer, Sees], Any]
READERS = [each for each in TOKENS if each not in {"nobody-token", "empty-token"}]
# What each route that reads the cluster answers, but for lists of jobs and what is asked of one job.
WHOLE: dict[str, Answer] = {
    "/api/v1/gpu/status": counted.v1_status,
    "/api/v1/gpu/nodes": counted.v1_nodes,
    "/api/v1/gpu/monitoring": counted.v1_monitoring,
    "/api/v2/resources": counted.v2_resources,
    "/api/v2/resources/gpu": counted.v2_gpus,
    "/api/v3/nodes": lambda api, sees: page(expected.node_rows(api, sees)),
    "/api/v3/devices": lambda api, sees: {
        "items": [each for row in expected.node_rows(api, sees) for each in row["devices"]],
        "next": None,
    },
    "/api/v3/quotas": lambda api, sees: {"items": expected.quotas(api, sees)},
    "/api/v3/jobs": lambda api, sees: page([expected.job_row(each) for each in counted.jobs(api, sees)]),
    "/api/v2/tasks": lambda api, sees: tasks(api, sees=sees),
    "/api/v3/plan": expected.plan,
}
# Asked of each job or node.
OF_ONE = {
    "/api/v3/jobs/{namespace}/{name}",
    "/api/v3/jobs/{namespace}/{name}/position",
    "/api/v3/nodes/{name}",
    "/api/v2/tasks/{id}",
    "/api/v3/jobs/{namespace}/{name}/logs",
    "/api/v3/jobs/{namespace}/{name}/events",
}
ELSEWHERE = {
    "/api/v3/snapshot": "with the stream: test_stream.py",
    "/api/v3/stream": "test_stream.py",
    "/api/v3/me": "below",
    "/api/v3/audit": "below",
    "/api/v3/right-sizes": "below",
    "/api/v3/findings": "below",
    "/api/v3/doctor": "test_doctor.py",
    "/api/v3/overview": "test_doctor.py",
    "/api/v3/series": "samples over time: below, and samples/test_series.py",
    "/api/v3/devices/then": "samples over time: samples/test_series.py",
    "/api/v3/usage": "samples over time: below, and samples/test_usage.py",
    "/api/v1/gpu/health": "names no object: test_v1.py",
    "/api/v3/history": "the operator's answer, passed on: test_history.py",
    "/api/v3/jobs/{namespace}/{name}/explain": "a decision: test_decisions.py",
    "/api/v3/moves": "a decision: test_decisions.py",
}


def page(items: list[Any]) -> dict[str, Any]:
    return {"items": items, "next": None, "total": len(items)}


def tasks(api: RbacApiServer, *, sees: Sees) -> dict[str, Any]:
    found = counted.tasks(api, sees, namespace=ONE.namespace)
    return {"tasks": found, "total": len(found), "next": None}


def test_every_route_that_reads_is_compared() -> None:
    reading = {each.path for each in table() if each.method == "GET"}
    assert reading == {*WHOLE, *OF_ONE, *ELSEWHERE}


@pytest.mark.parametrize("token", READERS)
async def test_answers_are_those_of_the_objects(cluster: RbacApiServer, face: Face, token: str) -> None:
    await _compare(cluster, face, token=token)


async def test_answers_follow_several_changes_at_once(cluster: RbacApiServer, face: Face) -> None:
    for token in ("quokka-token", "admin-token"):
        await _compare(cluster, face, token=token)
    _change(cluster)
    await face.until_like(cluster)
    for token in ("quokka-token", "narwhal-token", "admin-token"):
        await _compare(cluster, face, token=token)
    fill(cluster)
    await face.until_like(cluster)
    for token in ("quokka-token", "admin-token"):
        await _compare(cluster, face, token=token)


def _change(api: RbacApiServer) -> None:
    """Pods move, end and go; a node, a GPUNode, jobs and quotas go: each before anyone asks."""
    moved = dict(api.objects["pods"][f"{TWO.namespace}/share-0"])
    api.delete("pods", f"{TWO.namespace}/share-0")
    moved["spec"] = moved["spec"] | {"nodeName": "two"}
    text = moved["metadata"]["annotations"]
    key = next(each for each in text if each.endswith("/allocation"))
    moved["metadata"]["annotations"] = text | {key: text[key].replace('"one', '"two')}
    api.put("pods", moved)
    ended = api.objects["pods"][f"{ONE.namespace}/train-1"]
    api.put("pods", ended | {"status": {"phase": "Succeeded"}})
    for kind, key in [
        ("pods", f"{ONE.namespace}/plain"),
        ("gpujobs", f"{TWO.namespace}/waits"),
        ("gpujobs", f"{ONE.namespace}/common"),
        ("nodes", "two"),
        ("gpunodes", "orphan"),
        ("gpuquotas", "both"),
        ("gpuquotas", TWO.mark("branch")),
    ]:
        api.delete(kind, key)


@pytest.mark.parametrize("tenant", [ONE, TWO], ids=lambda tenant: tenant.word)
async def test_a_log_and_events_are_those_of_the_own_namespace(face: Face, tenant: Tenant) -> None:
    token, job = f"{tenant.word}-token", f"/api/v3/jobs/{tenant.namespace}/train"
    for worker in (0, 1):
        found = await face.get(f"{job}/logs?worker={worker}", token=token)
        assert found.text == f"{tenant.word}-line-of-train-{worker}\n"
    events = (await face.get(f"{job}/events", token=token)).json["items"]
    assert [each["message"] for each in events] == [f"{tenant.word}-line-of-event"]


@pytest.mark.parametrize("token", READERS)
async def test_the_caller_and_the_proof_are_counted_from_all_objects(
    cluster: RbacApiServer, face: Face, token: str
) -> None:
    sees = cluster.visible_to(token, list(NAMESPACES))
    assert (await face.get("/api/v3/me", token=token)).json == expected.me(cluster, sees, token=token)
    proof = (await face.get("/api/v3/audit", token=token)).json
    assert proof["devices"] == len(list(counted.devices(cluster)))
    assert (proof["findings"] > 0, bool(proof["items"])) == (True, sees is None), "a pod's allocation cannot be read"


@pytest.mark.parametrize("token", READERS)
async def test_samples_count_what_the_objects_say(cluster: RbacApiServer, face: Face, token: str) -> None:
    sees = cluster.visible_to(token, list(NAMESPACES))
    await face.made.sampler.sample()
    whole = (await face.get("/api/v3/series?of=Cluster", token=token)).json["items"][0]
    seen = counted.jobs(cluster, sees)
    phases = [each["status"].get("phase", "Queued") for each in seen if "tasks" not in each["status"]]
    assert whole["running"][-1] == phases.count("Running")
    assert whole["waiting"][-1] == phases.count("Queued") + phases.count("Starting")
    by_node = {
        name: (await face.get(f"/api/v3/series?of=Node&name={name}", token=token)).json["items"][0]["promised"][-1]
        for name in cluster.objects["gpunodes"]
        if any("migProfile" not in each for each in cluster.objects["gpunodes"][name]["status"]["devices"])
    }
    held = {
        name: sum(
            holder["shareMilli"] / 1000
            for device in cluster.objects["gpunodes"][name]["status"]["devices"]
            for holder in counted.holders(cluster, name, device["uuid"])
        )
        for name in by_node
    }
    assert by_node == pytest.approx(held)
    assert whole["promised"][-1] >= sum(held.values())
    namespaces = (await face.get("/api/v3/series?of=Namespace", token=token)).json["items"]
    assert sum(row["promised"][-1] for row in namespaces) <= whole["promised"][-1] + 1e-6
    assert {row["name"] for row in namespaces} <= {each["metadata"]["namespace"] for each in seen}


@pytest.mark.parametrize("token", READERS)
async def test_right_sizes_are_of_the_jobs_that_the_caller_sees(cluster: RbacApiServer, face: Face, token: str) -> None:
    sees = cluster.visible_to(token, list(NAMESPACES))
    answer = (await face.get("/api/v3/right-sizes", token=token)).json
    rows = answer["items"]
    assert answer["total"] == len(rows)
    found = {
        (row["namespace"], row["job"]): (row["number"], row["user"], row["project"], row["peakMiB"]) for row in rows
    }
    wanted = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): (
            each["status"]["number"],
            *_owners(each),
            each["status"]["memory"]["peakMiB"],
        )
        for each in counted.jobs(cluster, sees)
        if "memory" in each["status"]
    }
    assert found == wanted


def _owners(job: dict[str, Any]) -> tuple[str, str]:
    row = expected.job_row(job)
    return row["user"], row["project"]


async def _compare(api: RbacApiServer, face: Face, *, token: str) -> None:
    sees = api.visible_to(token, list(NAMESPACES))
    wanted = {path: answer(api, sees) for path, answer in WHOLE.items()}
    for job in counted.jobs(api, sees):
        path = "/api/v3/jobs/{namespace}/{name}".format(**job["metadata"])
        wanted |= {path: expected.job_row(job), f"{path}/position": expected.position(job)}
    wanted |= {f"/api/v3/nodes/{name}": expected.node_row(api, sees, name) for name in api.objects["gpunodes"]}
    for task in counted.tasks(api, sees, namespace=ONE.namespace):
        wanted[f"/api/v2/tasks/{task['task_id']}"] = task
    wanted["/api/v3/quotas"]["mayChange"] = api.allows(api.users[token], Act("patch", GROUP, "gpuquotas"))
    wrong = list[str]()
    for path, want in wanted.items():
        found = await face.get(path, token=token)
        assert found.status == 200, (path, found.text)
        have = found.json["row"] if "spec" in found.json else found.json
        wrong += differences(_plain(have), _plain(_one_gap(have, want)), at=f"{path} ")
    assert not wrong, "\n".join(wrong)


def _plain(answer: Any) -> Any:
    """An answer in an order, where none is promised."""
    if isinstance(answer, dict) and "kept" in answer:
        return answer | {key: sorted(answer[key], key=_name_of) for key in ("kept", "items")}
    if isinstance(answer, dict) and "active_tasks" in answer:
        active = {name: sorted(tasks, key=str) for name, tasks in answer["active_tasks"].items()}
        return answer | {"active_tasks": active}
    return answer


def _name_of(row: dict[str, Any]) -> str:
    return str([row.get(key) for key in ("namespace", "name", "at", "node")])


def _one_gap(have: Any, want: Any) -> Any:
    """Of the gaps that a job of the plan may fill, the one that the answer names."""
    if not isinstance(want, dict) or "kept" not in want:
        return want
    named = {(row["namespace"], row["name"]): row["fills"] for row in have["items"]}
    rows = [
        row | {"fills": _either(row["fills"], named=named.get((row["namespace"], row["name"])))}
        for row in want["items"]
    ]
    return want | {"items": rows}


def _either(gaps: list[Any], *, named: Any) -> Any:
    return named if named in gaps else next(iter(gaps), None)
