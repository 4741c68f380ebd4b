"""Every route × every way to fail: the answer has the documented form, names nothing hidden and leaves nothing."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail.api.meta import MessageDetail
from dovetail.api.reasons.catalog import rendered
from dovetail.decoding import convert
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail_gateway.app import Options
from dovetail_gateway.routing import server
from dovetail_gateway.routing.table import Route
from tests.gateway.canary.objects import ONE, SETTINGS, TWO
from tests.gateway.canary.rbac import Act, Fault, RbacApiServer
from tests.gateway.canary.rest import settled
from tests.gateway.canary.test_marks import asked
from tests.gateway.openapi import table
from tests.gateway.served import Face, Reply, serving

ROUTES: Final = table()
DOCUMENT: Final = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())
FAULTS: Final[list[Fault]] = ["409", "429", "500", "503", "gone", "garbage", "cut off"]
_OF_ONESELF: Final = {"selfsubjectreviews", "selfsubjectaccessreviews"}


def check_form(each: Route, reply: Reply) -> None:
    """The status and the shape are those of the document, and the sentence is one."""
    documented = DOCUMENT["paths"][each.path][each.method.lower()]["responses"]
    assert str(reply.status) in documented, (each.operation, reply.status, reply.text)
    if reply.status < 400 or each.path.endswith("/health"):
        return
    keys = {"v1": {"success", "reason", "message"}, "v2": {"detail", "reason"}, "v3": {"title", "status", "detail"}}
    assert keys[each.tag] <= reply.json.keys() <= keys[each.tag] | {"type", "reason", "errors", "details"}, reply.text
    sentence = reply.json["message" if each.tag == "v1" else "detail"]
    assert sentence
    assert "Traceback" not in reply.text
    media = "application/problem+json" if each.tag == "v3" else "application/json"
    assert reply.headers["Content-Type"].partition(";")[0] == media
    if each.tag == "v3":
        assert reply.json["status"] == reply.status
        assert rendered(convert(reply.json["details"], as_type=list[MessageDetail])).message == sentence
    if reply.status == 429:
        assert int(reply.headers["Retry-After"]) > 0


def path_of(each: Route, name: str = "train") -> str:
    path = each.path.format(namespace=ONE.namespace, name="one" if "nodes" in each.path else name, id=name)
    return f"{path}?namespace={ONE.namespace}" if each.path.endswith("/history") else path


async def ask(face: Face, each: Route, *, token: str, name: str = "train") -> Reply:
    options = asked(each, ONE.namespace, name)[0]
    return await face.ask(each.method, path_of(each, name), token=token, **options)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failing_api_server_is_answered_in_the_documented_form_and_leaves_nothing(
    cluster: RbacApiServer, face: Face, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a caller whom the gateway does not know yet, and of one whose rights it knows."""
    # Reads are sent again after a wait.
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "backoff", Backoff(first_seconds=0.001, longest_seconds=0.001))
    cluster.add_user("new-token", "new-user")
    # No review conflicts with anything.
    cluster.fault = lambda _act: "500" if fault == "409" else fault
    await _twice(face, ROUTES, token="new-token")
    cluster.fault = lambda _act: None
    # Each route that asks the API server as the caller does so only once the caller's rights are known.
    acting = [each for each in ROUTES if each.right.by == "API server" or each.path.endswith(("/events", "/logs"))]
    for each in acting:
        await (
            _opened(face, each, token="quokka-token")
            if each.stream
            else ask(face, each, token="quokka-token", name="x")
        )
    if fault == "409":
        # Only what changes something is refused for a conflict.
        acting = [each for each in acting if each.method != "GET" and "setup" not in each.path]
    cluster.fault = lambda act: (
        fault if act.resource not in _OF_ONESELF and (fault != "409" or act.verb != "get") else None
    )
    for reply in await _twice(face, acting, token="quokka-token"):
        # A text that is cut off has begun.
        assert reply.status >= 400 or fault == "cut off", reply.text


async def _twice(face: Face, routes: list[Route], *, token: str) -> list[Reply]:
    """Ask each route twice, and check the form of its answers: the second time leaves nothing new."""
    left, replies = list[Any](), list[Reply]()
    for _ in range(2):
        for each in routes:
            reply = await (_opened(face, each, token=token) if each.stream else ask(face, each, token=token))
            check_form(each, reply)
            assert TWO.word not in reply.text
            if not each.path.endswith("/health"):
                replies.append(reply)
        left.append(await settled(face.made, expected=left[-1] if left else None))
    assert left[0] == left[1]
    return replies


async def _opened(face: Face, each: Route, *, token: str) -> Reply:
    """The head of a stream's answer, or its refusal."""
    async with face.session.get(face.url + path_of(each), headers={"Authorization": f"Bearer {token}"}) as response:
        text = "" if response.status == 200 else await response.text()
        body = json.loads(text) if text else None
        return Reply(response.status, response.headers, text, body)


@pytest.mark.parametrize("leaves", [True, False], ids=["the caller leaves", "the time is over"])
async def test_a_silent_api_server_ends_the_request_and_nothing_waits_for_it(
    cluster: RbacApiServer, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(server, "_ANSWER_SECONDS", 5.0 if leaves else 0.05)
    options = Options(rates=None, allocation_namespace=ONE.namespace)
    async with serving(cluster, options=options, settings=SETTINGS, wait_seconds=0.01) as face:
        await face.get("/api/v3/me", token="quokka-token")
        left = list[Any]()
        for _ in range(2):
            for each in [each for each in ROUTES if each.right.by == "API server" or each.path.endswith("/events")]:
                if leaves:
                    await _hang_up(face, cluster, each)
                else:
                    cluster.fault = lambda _act: "silent"
                    reply = await ask(face, each, token="quokka-token")
                    check_form(each, reply)
                    assert (reply.status, TWO.word in reply.text) == (504, False)
                cluster.fault = lambda _act: None
                cluster.speaks.set()
                cluster.speaks = asyncio.Event()
            left.append(await settled(face.made, expected=left[-1] if left else None))
        assert left[0] == left[1]


async def _hang_up(face: Face, cluster: RbacApiServer, each: Route) -> None:
    """Ask, and close the connection once the API server was asked, or the answer is there."""
    asked_for = asyncio.Event()

    def hangs(_act: Act) -> Fault:
        asked_for.set()
        return "silent"

    cluster.fault = hangs
    asking = asyncio.create_task(ask(face, each, token="quokka-token"))
    waiting = asyncio.create_task(asked_for.wait())
    await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (asking, waiting):
        task.cancel()
    await asyncio.gather(asking, waiting, return_exceptions=True)


BROKEN: Final[list[tuple[str, bytes, str, set[int]]]] = [
    ("no JSON", b"{", "application/json", {400}),
    ("a list", b"[]", "application/json", {422}),
    ("a text", b'"x"', "application/json", {422}),
    ("null", b"null", "application/json", {422}),
    ("no UTF-8", b"\xff", "application/json", {400}),
    ("nothing", b"", "application/json", {400}),
    ("another type", b"a=b", "application/x-www-form-urlencoded", {415}),
    ("too much", b" " * (server.MAX_BODY_BYTES + 1), "application/json", {413}),
]


@pytest.mark.parametrize(("body", "media", "statuses"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
async def test_a_body_that_cannot_be_read_is_refused(
    cluster: RbacApiServer, face: Face, body: bytes, media: str, statuses: set[int]
) -> None:
    for each in [each for each in ROUTES if each.body_type is not None]:
        for _ in range(2):
            reply = await face.ask(
                each.method, path_of(each), token="both-token", data=io.BytesIO(body), headers={"Content-Type": media}
            )
            check_form(each, reply)
            assert reply.status in statuses, (each.operation, reply.text)


async def test_a_field_of_a_wrong_type_is_named_and_an_unknown_one_too(face: Face) -> None:
    for each in [each for each in ROUTES if each.body_type is not None]:
        right = asked(each, ONE.namespace, "train")[0]["json"]
        for name in right:
            wrong = {**right, name: [[]] if name != "allocation_id" else 1}
            reply = await face.ask(each.method, path_of(each), token="both-token", json=wrong)
            check_form(each, reply)
            assert (reply.status, name in reply.text) == (422, True), (each.operation, name, reply.text)
        reply = await face.ask(each.method, path_of(each), token="both-token", json={**right, "unknownField": 1})
        check_form(each, reply)
        if each.tag == "v3":
            assert (reply.status, "unknownField" in reply.text) == (422, True), (each.operation, reply.text)


async def test_what_is_missing_is_a_404_and_what_is_there_already_a_409(face: Face) -> None:
    for each in [each for each in ROUTES if "{name}" in each.path or "{id}" in each.path]:
        name = "missing"
        # Quotas are of no namespace, so no tenant may change one.
        token = "admin-token" if "/quotas/" in each.path else "quokka-token"
        reply = await face.ask(
            each.method, each.path.format(namespace=ONE.namespace, name=name, id=name), token=token,
            **asked(each, ONE.namespace, name)[0],
        )  # fmt: skip
        check_form(each, reply)
        if each.operation == "v3_change_quota":
            # The planner may not read it for the change.
            assert reply.status == 403
            continue
        assert reply.status == 404 or '"found":false' in reply.text or '"released":false' in reply.text, each.operation
    spec = asked(next(each for each in ROUTES if each.operation == "v3_create_job"), ONE.namespace, "train")[0]
    reply = await face.ask("POST", "/api/v3/jobs", token="quokka-token", **spec)
    assert (reply.status, reply.json["reason"]) == (409, "AlreadyExists")


async def test_a_stream_that_ends_in_any_way_is_counted_no_more(cluster: RbacApiServer, face: Face) -> None:
    streams = [each for each in ROUTES if each.stream is not None]
    await _opened(face, streams[0], token="quokka-token")
    left = list[Any]()
    for _ in range(3):
        for each in streams:
            reply = await _opened(face, each, token="quokka-token")
            assert reply.status == 200
            for fault in FAULTS:
                cluster.fault = lambda act, fault=fault: fault if act.resource == "pods/log" else None  # type: ignore[misc]
                await _opened(face, each, token="quokka-token")
            cluster.fault = lambda _act: None
        left.append(await settled(face.made, expected=left[1] if left[1:] else None))
    assert left[1] == left[2]
    assert left[2]["OpenStreams._open"] == [0]
