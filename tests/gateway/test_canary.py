"""Every route × every kind of user: no byte of an answer names anything of a namespace that the user may not list."""

import json
from typing import Any

import pytest

from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.app import Options
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_job
from tests.gateway.openapi import table
from tests.gateway.served import Face, serving
from tests.gateway.test_stream import start, stream

CANARY = "canary"
ASKED = [each for each in table() if each.media_type != "text/event-stream"]
USERS = ("red-token", "reader-token", "nobody-token", "expired-token", "")
TEMPLATE = {"spec": {"containers": [{"name": "m", "image": "x"}]}}
# What is asked of each route that takes a body.
BODIES: dict[str, Any] = {
    "/api/v1/gpu/validate": {"gpu_count": 9},
    "/api/v1/gpu/allocate": {"gpu_count": 1},
    "/api/v1/gpu/setup-pytorch": {"allocation_id": "canaryjob"},
    "/api/v1/gpu/setup-tensorflow": {"allocation_id": "canaryjob"},
    "/api/v2/training/start": {
        "model": "m",
        "num_classes": 2,
        "train_path": "/t",
        "val_path": "/v",
        "save_path": "/s",
        "device": "cuda:1",
    },
    "/api/v2/inference/start": {"cfg_path": "/c", "weight_path": "/w", "source_path": "/s"},
    "/api/v2/resources/config": {"max_concurrent": {"cuda:0": {"training": 2}}},
    "/api/v3/jobs": {"namespace": "canaryns", "name": "mine", "spec": {"gpu": 1, "template": TEMPLATE}},
    "/api/v3/jobs/{namespace}/{name}": {"held": True},
    "/api/v3/jobs/{namespace}/{name}/effects": {"cancel": True},
    "/api/v3/quotas/{name}": {"spec": {"guaranteed": {"gpus": 2}}},
    "/api/v3/quotas/{name}/effects": {"spec": {"guaranteed": {"gpus": 2}}},
    "/api/v3/dry-run": {"namespace": "red", "spec": {"gpu": 8, "workers": 2, "template": TEMPLATE}},
}
# Of a hidden job, of one that is seen, and of what is not there. An answer may repeat the names of its own request.
TARGETS = [("canaryns", "canaryjob"), ("red", "train"), ("red", "waits"), ("red", "none")]


@pytest.fixture
async def crowded(api: GatewayApiServer) -> GatewayApiServer:
    """A cluster in which everything that a tenant can name is named."""
    waiting = {"phase": "Queued", "number": 3, "reason": "Resources", "message": "Need 8 GPUs, only 6 available"}
    api.put("gpujobs", make_job("waits", namespace="red", number=3, user="rita", status=waiting, gpu=8, workers=2))
    ahead = {"phase": "Queued", "number": 8, "reason": "Resources", "message": "waits for canarything"}
    ahead_job = make_job(
        "canaryahead", namespace="canaryns", number=8, user="canaryuser", status=ahead, gpu=8, workers=2, priority=200
    )
    api.put("gpujobs", ahead_job)
    spec = {"namespaces": ["canaryns"], "users": ["canaryuser"], "limit": {"gpus": 4}, "per": "User"}
    uses = [{"who": "canaryuser", "gpus": 1}]
    api.put("gpuquotas", {"metadata": {"name": "canaryquota", "uid": "q1"}, "spec": spec, "status": {"uses": uses}})
    everyone = {"limit": {"gpus": 100}, "per": "Namespace"}
    both = [{"who": "canaryns", "gpus": 1}, {"who": "red", "gpus": 1}]
    api.put("gpuquotas", {"metadata": {"name": "all", "uid": "q2"}, "spec": everyone, "status": {"uses": both}})
    node = api.objects["gpunodes"]["a"]
    node["status"]["devices"][4]["strangers"] = [{"pid": 1, "command": "canarycommand", "pod": "canaryns/canarypod"}]
    node["status"]["overuses"] = []
    api.put("gpunodes", node)
    api.number("a/cuda:0", "a/cuda:1")
    labels = {"dovetail.dev/task-type": "training"}
    job = api.objects["gpujobs"]["canaryns/canaryjob"]
    job["metadata"]["labels"] |= labels
    job["spec"]["workload"] = "Training"
    job["status"]["devices"] = [
        {"worker": 0, "node": "a", "index": 1, "uuid": "a-1", "shareMilli": 1000, "memoryMiB": 1}
    ]
    api.put("gpujobs", job)
    return api


# With v1's allocations and v2's tasks where the user may see them, and where not; and with scripts' own account.
KINDS = [
    Options(rates=None, allocation_namespace="red"),
    Options(rates=None, allocation_namespace="canaryns"),
    Options(rates=None, allocation_namespace="canaryns", legacy=Account(namespace="red", name="scripts")),
]


@pytest.mark.parametrize("options", KINDS, ids=["own namespace", "hidden namespace", "scripts' account"])
async def test_no_answer_of_any_route_names_what_the_user_may_not_list(
    crowded: GatewayApiServer, options: Options
) -> None:
    asked = 0
    async with serving(crowded, options=options, wait_seconds=0.1) as face:
        for each in ASKED:
            for token in USERS:
                for namespace, name in TARGETS if "{name}" in each.path else TARGETS[:1]:
                    asked += await _is_silent(face, each, token, namespace, name)
    assert asked > 150
    assert {each.path.split("/")[2] for each in ASKED} == {"v1", "v2", "v3"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/v3/jobs?namespace=canaryns",
        "/api/v3/jobs?user=canaryuser",
        "/api/v3/jobs?project=canaryns-project",
        "/api/v3/jobs?cursor=canaryns/a",
        "/api/v3/jobs/canaryns/canaryjob/logs?follow=true",
        "/api/v3/history?namespace=canaryns",
        "/api/v2/tasks?type=training",
        "/api/v2/tasks?cursor=canary",
    ],
)
async def test_no_filter_finds_what_the_user_may_not_list(crowded: GatewayApiServer, path: str) -> None:
    async with serving(crowded, options=KINDS[1], wait_seconds=0.1) as face:
        for token in USERS:
            found = await face.get(path, token=token)
            sent = found.text.replace("canaryjob", "").replace("canaryns", "") if found.status >= 400 else found.text
            assert CANARY not in sent, (token, found.text)


async def _is_silent(face: Face, each: Any, token: str, namespace: str, name: str) -> bool:
    path = each.path.format(namespace=namespace, name=name, id="canaryjob")
    body = {"json": BODIES[each.path]} if each.body_type is not None else {}
    found = await face.ask(each.method, path, token=token, **body)
    assert found.status < 500 or each.path.endswith("/health"), (each.operation, token, found.text)
    sent = found.text + json.dumps(dict(found.headers))
    for own in {namespace, name, "canaryns", "canaryjob"} if found.status >= 400 or "DELETE" in each.method else ():
        sent = sent.replace(own, "")
    assert CANARY not in sent, (each.operation, token, namespace, name, found.text)
    return True


async def test_the_same_routes_name_it_to_who_may_list_all(crowded: GatewayApiServer) -> None:
    async with serving(crowded) as face:
        found = [
            await face.get(path, token="admin-token")
            for path in (
                "/api/v3/jobs",
                "/api/v3/nodes",
                "/api/v3/quotas",
                "/api/v3/snapshot",
                "/api/v1/gpu/monitoring",
            )
        ]
    assert all(CANARY in each.text for each in found), "the fixture hides nothing, so the test above shows nothing"


@pytest.mark.parametrize("token", ["red-token", "both-token"])
async def test_no_event_of_a_stream_names_what_the_user_may_not_list(crowded: GatewayApiServer, token: str) -> None:
    crowded.users["both-token"] = User("bea", {"red": EDIT, "blue": EDIT})
    async with serving(crowded) as face:
        since = await start(face, token)
        async with stream(face, token=token, since=since) as reader:
            for kind in ("gpujobs", "pods", "gpunodes"):
                for subject in list(crowded.objects[kind].values()):
                    crowded.put(kind, subject)
            crowded.delete("gpujobs", "canaryns/canaryahead")
            crowded.put("gpujobs", make_job("last", namespace="red"))
            while True:
                event = await reader.next()
                assert CANARY not in json.dumps(event.data)
                if any(row["name"] == "last" for row in event.data["jobs"]):
                    break


@pytest.mark.parametrize("token", ["nobody-token", "expired-token", ""])
async def test_who_may_list_nothing_gets_no_stream(crowded: GatewayApiServer, token: str) -> None:
    async with serving(crowded) as face:
        found = await face.get("/api/v3/stream", token=token)
    assert found.status in {401, 403}
    assert CANARY not in found.text


async def test_a_log_that_is_followed_has_the_lines_of_the_users_own_job_alone(crowded: GatewayApiServer) -> None:
    crowded.log_ends.set()
    async with serving(crowded) as face:
        found = await face.get("/api/v3/jobs/red/train/logs?follow=true", token="red-token")
    assert (found.status, CANARY in found.text) == (200, False)
