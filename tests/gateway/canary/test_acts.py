"""What each route asks the API server about its caller, and does in the caller's name: the exact rights and writes."""

import asyncio
from typing import Any, Final

import pytest
from aiohttp import web

from dovetail.names import GROUP
from dovetail_gateway.app import Options
from dovetail_gateway.routing.open_streams import Times
from dovetail_gateway.routing.table import Route
from tests.gateway.builders import uid_of
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.objects import ONE, SETTINGS
from tests.gateway.canary.rbac import Act, RbacApiServer, act_of
from tests.gateway.canary.test_marks import asked
from tests.gateway.openapi import table
from tests.gateway.served import Face, serving

NS: Final = ONE.namespace
ROUTES: Final = {each.operation: each for each in table()}
EVERYWHERE: Final = Act("list", GROUP, "gpujobs")
_REVIEW, _WHO = "selfsubjectaccessreviews", "selfsubjectreviews"
_STRICT: Final = {"fieldValidation": "Strict"}
_NEW: Final = Act("create", GROUP, "gpujobs", NS)
_LOG: Final = Act("get", "", "pods/log", NS)
_JOB: Final = (GROUP, "gpujobs", NS)
# What is asked about the caller, in addition to the namespaces whose jobs it may list.
REVIEWED: Final = {
    "v1_validate": {_NEW},
    "v1_allocate": {_NEW},
    "v2_start_training": {_NEW},
    "v2_start_inference": {_NEW},
    "v2_configure": {Act("patch", GROUP, "gpunodes")},
    "v3_list_quotas": {Act("patch", GROUP, "gpuquotas")},
    "v3_get_quota_effects": {Act("patch", GROUP, "gpuquotas")},
    "v3_dry_run": {Act("list", GROUP, "gpujobs", NS)},
    "v3_stream": {Act("watch", GROUP, "gpujobs")},
    "v3_read_log": {_LOG},
}
# What is done in the caller's name, with the parameters of the request, and the UID that a deletion names.
_DELETED: Final[list[Any]] = [(Act("delete", *_JOB), {}, "")]
DONE: Final[dict[str, list[Any]]] = {
    "v1_allocate": [(_NEW, _STRICT, ""), *_DELETED],
    "v1_release": [(Act("get", *_JOB), {}, ""), (Act("delete", *_JOB), {}, "the UID")],
    "v1_setup_pytorch": [(Act("get", *_JOB), {}, "")],
    "v1_setup_tensorflow": [(Act("get", *_JOB), {}, "")],
    "v2_start_training": [(_NEW, _STRICT, "")],
    "v2_start_inference": [(_NEW, _STRICT, "")],
    "v2_cancel_task": [(Act("get", *_JOB), {}, ""), (Act("patch", *_JOB), {}, "")],
    "v2_configure": [(Act("patch", GROUP, "gpunodes"), {}, "")],
    "v3_create_job": [(_NEW, _STRICT, "")],
    "v3_change_job": [(Act("patch", *_JOB), {}, "")],
    "v3_cancel_job": [(Act("patch", *_JOB), {}, "")],
    "v3_delete_job": _DELETED,
    "v3_get_moves": [(Act("list", "policy", "poddisruptionbudgets"), {"limit": "500"}, "")],
    "v3_change_quota": [(Act("get", GROUP, "gpuquotas"), {}, "")],
}


class Recording(RbacApiServer):
    """`asked` is what was asked about callers, `done` what was done in their name."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = set[Act]()
        self.done: list[Any] = []
        self.reviewed = asyncio.Event()

    def add_to(self, app: web.Application) -> None:
        app.middlewares.append(self._recording)
        super().add_to(app)

    @property
    def _recording(self) -> Any:
        @web.middleware
        async def record(request: web.Request, handler: Any) -> web.StreamResponse:
            act, user = act_of(request), self._user(request)
            if user is not None and act is not None and act.resource == _REVIEW:
                self._record_review((await request.json())["spec"]["resourceAttributes"])
            elif user is not None and act is not None and act.resource != _WHO:
                uid = ""
                if act.verb == "delete" and request.can_read_body:
                    uid = (await request.json()).get("preconditions", {}).get("uid", "")
                wanted = self.objects["gpujobs"].get(f"{act.namespace}/{request.path.rpartition('/')[2]}")
                has_uid = wanted is not None and uid == wanted["metadata"]["uid"]
                query = {name: value for name, value in request.query.items() if name != "fieldManager"}
                self.done.append((act, query, "the UID" if has_uid else uid))
            answer: web.StreamResponse = await handler(request)
            return answer

        return record

    def _record_review(self, spec: dict[str, str]) -> None:
        sub = spec.get("subresource", "")
        resource = f"{spec['resource']}/{sub}" if sub else spec["resource"]
        self.asked.add(Act(spec["verb"], spec.get("group", ""), resource, spec.get("namespace", "")))
        if self.asked - {EVERYWHERE}:
            self.reviewed.set()


def name_of(each: Route) -> str:
    if each.operation in ("v1_release", "v1_setup_pytorch", "v1_setup_tensorflow"):
        return "alloc"
    return "planned" if each.tag == "v2" else "train"


@pytest.fixture
async def recording() -> Any:
    async with Recording().running() as server:
        fill(server)
        yield server


async def test_each_route_reviews_the_right_that_it_uses_and_does_exactly_what_it_says(recording: Recording) -> None:
    found = {}
    options = Options(rates=None, allocation_namespace=NS, stream_times=Times(review_seconds=0.02))
    async with serving(recording, options=options, settings=SETTINGS, wait_seconds=0.01) as face:
        for each in sorted(ROUTES.values(), key=lambda each: each.method == "DELETE"):
            token = f"{each.operation}-token"
            recording.add_user(token, each.operation)
            for role in ("editor", "node-admin"):
                recording.grant(role, each.operation)
            await _ask(face, each, recording, token=token)
            found[each.operation] = recording.asked - {EVERYWHERE}, recording.done[:]
    assert {each: asked for each, (asked, _) in found.items() if asked} == REVIEWED
    done = {each: done for each, (_, done) in found.items() if done}
    # The doctor looks at many kinds, and asks which rights accounts have: it changes nothing.
    looked = {act.resource if act.verb == "create" else act.verb for act, _, _ in done.pop("v3_diagnose")}
    assert looked == {"get", "list", "subjectaccessreviews"}
    events = {"fieldSelector": f"involvedObject.uid={uid_of(NS, 'train')}", "limit": "500"}
    log = {"container": "main", "follow": "true"}
    assert done == DONE | {
        "v3_list_events": [(Act("list", "", "events", NS), events, "")],
        "v3_read_log": [(_LOG, log, "")],
        "v3_list_history": [(Act(verb, GROUP, "historyqueries", NS), {}, "") for verb in ("create", "get", "delete")],
    }


async def _ask(face: Face, each: Route, recording: Recording, *, token: str) -> None:
    """Ask a route; a stream is left once something was reviewed while it is open."""
    recording.asked.clear()
    recording.done.clear()
    recording.reviewed.clear()
    path = each.path.format(namespace=NS, name=name_of(each), id=name_of(each))
    headers = {"Authorization": f"Bearer {token}"}
    if each.stream is None:
        options = asked(each, NS, "new")[0]
        if each.operation == "v2_start_training":
            options["json"] = options["json"] | {"device": "cuda"}
        query = {"v3_list_history": f"?namespace={NS}", "v3_get_moves": f"?jobs={NS}/train"}.get(each.operation, "")
        reply = await face.ask(each.method, path + query, headers=headers, **options)
        assert reply.status < 500 or each.path.endswith("/health"), (each.operation, reply.text)
        return
    async with face.session.get(face.url + path + "?follow=true" * path.endswith("/logs"), headers=headers) as response:
        assert response.status == 200, await response.text()
        async with asyncio.timeout(20):
            await recording.reviewed.wait()
