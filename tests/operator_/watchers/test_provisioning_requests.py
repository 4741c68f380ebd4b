"""ProvisioningRequests follow the requests of the statuses, on a scripted API server."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.pools import GrowingRules
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.provisioning_request import provisioning_request
from dovetail_operator.state.state import State
from dovetail_operator.watchers.provisioning_requests import ProvisioningRequestKeeper
from tests.background import eventually, running
from tests.core.kube.api import Answer as Reply
from tests.core.kube.api import Api, Stream, refusal
from tests.operator_.builders import at, make_job, make_state
from tests.operator_.watchers.test_placeholders import POOL as PLACEHOLDER_POOL
from tests.operator_.watchers.test_placeholders import job_with, page, request, stored

LIST = "GET /apis/autoscaling.x-k8s.io/v1/provisioningrequests"
WATCH = "WATCH /apis/autoscaling.x-k8s.io/v1/provisioningrequests"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/team/podtemplates"
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
POOL = replace(PLACEHOLDER_POOL, provisioning_class=CLASS)


def manifest_for(job: Any) -> Any:
    return provisioning_request(job, pool=POOL)


class Rig:
    """A keeper of ProvisioningRequests over a state with one job."""

    def __init__(self, client: Client) -> None:
        self.state: State = make_state(growing=GrowingRules(pools=(POOL,)), a=4)
        self.events: asyncio.Queue[Announcement] = asyncio.Queue()
        self.keeper = ProvisioningRequestKeeper(
            client,
            state=self.state,
            post=self.events.put_nowait,
            rng=random.Random(7),
            backoff=Backoff(first_seconds=0.001, longest_seconds=0.001),
            look_seconds=0.001,
        )


@pytest.fixture
def rig(client: Client) -> Rig:
    return Rig(client)


def test_a_request_names_its_class_its_template_and_the_number_of_workers() -> None:
    made = manifest_for(job_with(request(workers=3), workers=5))
    name = made["metadata"]["name"]
    assert made["spec"] == {
        "provisioningClassName": CLASS,
        "podSets": [{"podTemplateRef": {"name": name}, "count": 3}],
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUJob", "x", "uid-x")


def test_more_workers_are_another_request_because_its_spec_is_immutable() -> None:
    few, more = (manifest_for(job_with(request(workers=n), workers=5)) for n in (2, 3))
    assert few["metadata"]["name"] != more["metadata"]["name"]


def test_a_request_that_was_given_up_needs_no_object() -> None:
    assert manifest_for(job_with(request(retryTime=at(600)))) is None


async def test_a_request_is_created_with_the_template_that_it_names(rig: Rig, api: Api) -> None:
    job = job_with(request(workers=2), workers=2)
    api.answer(LIST, page(), page())
    api.answer(f"POST {REQUESTS}", Reply(body=stored(manifest_for(job)), status=201))
    api.answer(f"POST {TEMPLATES}", Reply(body={"metadata": {"name": "x"}}, status=201))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"POST {TEMPLATES}", count=1)
    assert api.of(f"POST {REQUESTS}")[0].body == manifest_for(job)
    template = api.of(f"POST {TEMPLATES}")[0].body
    (owner,) = template["metadata"]["ownerReferences"]
    assert owner["kind"] == "ProvisioningRequest"
    assert owner["uid"] == stored(manifest_for(job))["metadata"]["uid"]
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["dovetail.dev/gpu-milli"] == "2000"
    assert template["template"]["spec"]["nodeSelector"] == {"pool": "v100"}


async def test_a_request_of_an_operator_that_died_before_its_template_gets_it(rig: Rig, api: Api) -> None:
    job = job_with()
    api.answer(LIST, page(), page(stored(manifest_for(job))))
    api.answer(f"POST {TEMPLATES}", refusal(409, reason="AlreadyExists"))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await api.until(f"POST {TEMPLATES}", count=1)
    assert not api.of(f"POST {REQUESTS}")


async def test_a_request_that_was_deleted_and_made_anew_gets_another_template(rig: Rig, api: Api) -> None:
    """It has the name of the first one, whose template went with it; one that is there is asked for once."""
    first, second = (stored(manifest_for(job_with())) for _ in range(2))
    second["metadata"] |= {"uid": "uid-second", "resourceVersion": "9"}
    api.answer(f"POST {TEMPLATES}", *[Reply(body={"metadata": {"name": "x"}}, status=201)] * 3)
    rig.state.store.job_changed(job_with())
    for made, templates in ((first, 1), (second, 2)):
        found = msgspec.convert(made, ProvisioningRequest)
        rig.keeper._on_request("ADDED", found)
        for _ in range(2):
            await rig.keeper._keep("team/x")
        assert len(api.of(f"POST {TEMPLATES}")) == templates
        rig.keeper._on_request("DELETED", found)
    assert rig.keeper._with_template == set()
    owners = [seen.body["metadata"]["ownerReferences"][0]["uid"] for seen in api.of(f"POST {TEMPLATES}")]
    assert owners == [first["metadata"]["uid"], "uid-second"]


@pytest.mark.parametrize(
    "status",
    [{"phase": "Starting"}, {"phase": "Queued", "provisioning": request(retryTime=at(9))}],
    ids=["at the start", "given up"],
)
async def test_the_request_goes_at_the_start_and_at_giving_up(rig: Rig, api: Api, status: dict[str, Any]) -> None:
    manifest = manifest_for(job_with())
    line = f"DELETE {REQUESTS}/{manifest['metadata']['name']}"
    api.answer(LIST, page(), page(stored(manifest)))
    api.answer(line, Reply(body={}))
    rig.state.store.job_changed(make_job(gpu=2, status={"number": 1, **status}))
    async with running(rig.keeper.run()):
        await api.until(line, count=1)
    assert api.of(line)[0].body["preconditions"] == {"uid": f"uid-{manifest['metadata']['name']}"}


async def test_without_the_kind_the_owner_gets_one_event(rig: Rig, api: Api) -> None:
    api.answer(LIST, refusal(404))
    api.answer(f"POST {REQUESTS}", refusal(404, message="the server could not find the requested resource"))
    rig.state.store.job_changed(job_with())
    async with running(rig.keeper.run()):
        await eventually(lambda: not rig.events.empty())
    event = rig.events.get_nowait()
    expected = "The API server refuses the ProvisioningRequest: the server could not find the requested resource"
    assert (event.severity, event.reason, event.message) == ("Warning", "Provisioning", expected)


async def test_answers_reach_the_state_and_wake_the_queue(rig: Rig, api: Api) -> None:
    job, woken = job_with(), list[Answer]()
    manifest = stored(manifest_for(job))
    key = f"team/{manifest['metadata']['name']}"
    rig.state.growing.on_change(lambda: woken.append(rig.state.growing.answers[key]))
    condition = {"type": "Failed", "status": "True", "reason": "NoCapacity", "message": "no A100 in zone a"}
    failed = {**manifest, "status": {"conditions": [condition]}}
    failed["metadata"] = {**manifest["metadata"], "resourceVersion": "9"}
    api.answer(LIST, page(), page(manifest))
    api.answer(WATCH, Stream(chunks=[json.dumps({"type": "MODIFIED", "object": failed}).encode() + b"\n"]))
    api.answer(f"POST {TEMPLATES}", Reply(body={"metadata": {"name": "x"}}, status=201))
    rig.state.store.job_changed(job)
    async with running(rig.keeper.run()):
        await eventually(lambda: bool(woken))
    assert woken == [Answer(refusal="Failed (NoCapacity): no A100 in zone a")]


def test_a_deleted_request_has_no_answer() -> None:
    state = make_state(growing=GrowingRules(pools=(POOL,)))
    found = msgspec.convert(stored(manifest_for(job_with())), ProvisioningRequest)
    state.growing.provisioning_request_event("ADDED", found)
    state.growing.provisioning_request_event("DELETED", found)
    assert state.growing.answers == {}
