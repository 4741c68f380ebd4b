"""What else a change to a job would do: true for every caller, and no name of another tenant."""

import asyncio
import json
from typing import Any

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail_gateway.v3.effects import _changed
from dovetail_gateway.v3.types.effects import PlannedChange
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import Face

HOUR = 3600
PATH = "/api/v3/jobs/red/next/effects"


@pytest.fixture
async def busy(api: GatewayApiServer, face: Face) -> GatewayApiServer:
    """Each job needs all devices: `next` waits first, then `behind`, then a job of another tenant."""
    for kind in ("pods", "gpujobs"):
        for key in list(api.objects[kind]):
            api.delete(kind, key)
    for at, (name, namespace) in enumerate([("next", "red"), ("behind", "red"), ("canarywaits", "canaryns")]):
        put_waiting(api, name, namespace=namespace, number=20 + at)
    needs = {"phase": "Queued", "number": 30, "reason": "Dependency", "message": "Waits for next to succeed"}
    dependent = make_job("needs", namespace="red", number=30, user="rita", status=needs, gpu=1)
    dependent["spec"] |= {"dependencies": [{"name": "next"}], "onDependencyFailure": "Cancel"}
    api.put("gpujobs", dependent)
    await shown(face, "needs")
    return api


def put_waiting(api: GatewayApiServer, name: str, *, namespace: str, number: int) -> None:
    status = {"phase": "Queued", "number": number, "reason": "Resources", "message": "Need 16 GPUs"}
    job = make_job(name, namespace=namespace, number=number, user="rita", status=status, gpu=8, workers=2)
    job["metadata"]["creationTimestamp"] = f"2026-11-01T00:00:{number}Z"
    job["spec"]["activeDeadlineSeconds"] = HOUR
    api.put("gpujobs", job)


async def shown(face: Face, name: str) -> None:
    """Wait until the gateway has seen a job."""
    async with asyncio.timeout(20):
        while (await face.get(f"/api/v3/jobs/red/{name}", token="red-token")).status != 200:
            pass


async def asked(face: Face, change: dict[str, Any], *, token: str = "red-token") -> dict[str, Any]:
    found = await face.ask("POST", PATH, token=token, json=change)
    assert found.status == 200, found.text
    answer: dict[str, Any] = found.json
    return answer


@pytest.mark.parametrize(
    ("spec", "change", "expected"),
    [
        ({}, {}, (False, False, 10)),
        ({}, {"cancel": True}, (True, False, 10)),
        ({"cancel": True}, {"priority": 5}, (True, False, 5)),
        ({"suspend": True}, {"priority": 5}, (False, True, 5)),
        ({"suspend": True}, {"held": False}, (False, False, 10)),
        ({"suspend": False}, {"held": True}, (False, True, 10)),
        ({"priority": 7}, {"held": True}, (False, True, 7)),
        ({"priority": 7}, {"priority": 0}, (False, False, 0)),
    ],
)
def test_what_a_change_does_not_name_stays_as_it_is(
    spec: dict[str, Any], change: dict[str, Any], expected: tuple[bool, bool, int]
) -> None:
    job = decode(json.dumps(make_job("j", namespace="red", **({"priority": 10} | spec))), as_type=GPUJob)
    found = _changed(job, by=PlannedChange(**change)).spec
    assert (found.cancel, found.suspend, found.priority) == expected


@pytest.mark.usefixtures("busy")
async def test_a_cancellation_names_who_starts_sooner_and_who_falls_with_it(face: Face) -> None:
    found = await asked(face, {"cancel": True})
    assert (found["sooner"], found["later"], found["othersSooner"], found["own"]) == (2, 0, 1, None)
    assert [(each["job"]["name"], each["afterSeconds"]) for each in found["shifted"]] == [("behind", 0)]
    assert [(each["job"]["name"], each["after"]) for each in found["cancelled"]] == [("needs", "next")]


@pytest.mark.usefixtures("busy")
async def test_a_hold_says_who_keeps_waiting_for_it(face: Face) -> None:
    found = await asked(face, {"held": True})
    assert ([each["name"] for each in found["heldUp"]], found["cancelled"]) == (["needs"], [])


@pytest.mark.usefixtures("busy")
async def test_a_priority_comes_with_the_queues_decision_on_the_job(face: Face) -> None:
    found = await asked(face, {"priority": 200})
    assert (found["own"]["outcome"], found["shifted"]) == ("Starts", [])


@pytest.mark.usefixtures("busy")
async def test_another_tenants_job_is_counted_and_not_named(face: Face) -> None:
    red, admin = await asked(face, {"cancel": True}), await asked(face, {"cancel": True}, token="admin-token")
    assert "canary" not in str(red)
    assert "canarywaits" in str(admin)
    assert (red["sooner"], admin["sooner"], admin["othersSooner"]) == (2, 2, 0)


async def test_a_hidden_job_and_none_have_the_same_answer(face: Face) -> None:
    for namespace, name in (("canaryns", "canaryjob"), ("red", "none")):
        path = f"/api/v3/jobs/{namespace}/{name}/effects"
        assert (await face.ask("POST", path, token="red-token", json={"cancel": True})).status == 404


@pytest.mark.parametrize("body", [{"priority": 256}, {"held": "yes"}, {"renew": True}, []])
async def test_a_change_that_is_none_is_refused(face: Face, body: Any) -> None:
    assert (await face.ask("POST", PATH, token="red-token", json=body)).status == 422


async def test_a_stored_request_that_cannot_be_read_is_one_sentence(api: GatewayApiServer, face: Face) -> None:
    held = make_job("odd", namespace="red", number=40, user="rita", status={"phase": "Held", "number": 40}, gpu="2(")
    held["spec"]["suspend"] = True
    api.put("gpujobs", held)
    await shown(face, "odd")
    found = await face.ask("POST", "/api/v3/jobs/red/odd/effects", token="red-token", json={"held": False})
    assert (found.status, "spec cannot be used" in found.json["detail"]) == (422, True)
