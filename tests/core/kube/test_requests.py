"""Each call of the client is one request: its method, path, parameters and body, and nothing that it did not say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import ConfigMap, Pod
from dovetail.api.resources import CONFIGMAPS, NODES, PODS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound, StatusError, Unauthorized
from dovetail.kube.queries.configmaps import put_data
from dovetail.kube.transport import MakeSession, aiohttp_session, brief_session
from tests.core.kube.api import Answer, Api, Stream, listing, make_object, refusal
from tests.core.kube.conftest import QUICK

MAPS = "/api/v1/namespaces/ns/configmaps"
POD = "/api/v1/namespaces/ns/pods/p"
JSON, MERGE = "application/json", "application/merge-patch+json"
Call = Callable[[Client], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    call: Call
    request: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON
    answer: Answer | Stream = field(default_factory=lambda: Answer(body=make_object("a", version=1)))


async def _read(stream: Any) -> bytes:
    async with stream as chunks:
        return b"".join([chunk async for chunk in chunks])


def _pod() -> Pod:
    return msgspec.convert(make_object("p", version=1, uid="u"), Pod)


OPTIONS = {"kind": "DeleteOptions", "apiVersion": "v1"}
BINDING = {
    "apiVersion": "v1", "kind": "Binding",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"k": "v"}},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
}  # fmt: skip
CASES = {
    "get": Case(
        call=lambda it: it.get(CONFIGMAPS, name="a", as_type=ConfigMap, namespace="ns"), request=f"GET {MAPS}/a"
    ),
    "get a subresource": Case(
        call=lambda it: it.get(PODS, name="p", as_type=Pod, namespace="ns", subresource="status"),
        request=f"GET {POD}/status",
    ),
    "get without a namespace": Case(
        call=lambda it: it.get(NODES, name="n", as_type=dict), request="GET /api/v1/nodes/n"
    ),
    "list with selectors": Case(
        call=lambda it: it.list(
            CONFIGMAPS, as_type=ConfigMap, namespace="ns", label_selector="l", field_selector="f", page_size=7
        ),
        request=f"GET {MAPS}",
        query={"limit": "7", "labelSelector": "l", "fieldSelector": "f"},
        answer=listing(version=1),
    ),
    "list of all namespaces": Case(
        call=lambda it: it.list(CONFIGMAPS, as_type=ConfigMap),
        request="GET /api/v1/configmaps",
        query={"limit": "500"},
        answer=listing(version=1),
    ),
    "create": Case(
        call=lambda it: it.create(CONFIGMAPS, body={"data": {}}, as_type=ConfigMap, namespace="ns"),
        request=f"POST {MAPS}",
        body={"apiVersion": "v1", "kind": "ConfigMap", "data": {}},
    ),
    "create a subresource": Case(
        call=lambda it: it.create(
            PODS, body={"kind": "X"}, as_type=dict, namespace="ns", name="p", subresource="eviction"
        ),
        request=f"POST {POD}/eviction",
        body={"kind": "X"},
    ),
    "update": Case(
        call=lambda it: it.update(CONFIGMAPS, name="a", body={"data": {}}, as_type=ConfigMap, namespace="ns"),
        request=f"PUT {MAPS}/a",
        body={"apiVersion": "v1", "kind": "ConfigMap", "data": {}},
    ),
    "patch": Case(
        call=lambda it: it.patch(CONFIGMAPS, name="a", patch={"data": {}}, as_type=ConfigMap, namespace="ns"),
        request=f"PATCH {MAPS}/a",
        body={"data": {}},
        content_type=MERGE,
    ),
    "patch a status": Case(
        call=lambda it: it.patch(PODS, name="p", patch={}, as_type=Pod, namespace="ns", subresource="status"),
        request=f"PATCH {POD}/status",
        body={},
        content_type=MERGE,
    ),
    "apply without force": Case(
        call=lambda it: it.apply(
            CONFIGMAPS, name="a", body={}, as_type=ConfigMap, field_manager="me", namespace="ns", subresource="scale"
        ),
        request=f"PATCH {MAPS}/a/scale",
        query={"fieldManager": "me", "force": "false"},
        body={"apiVersion": "v1", "kind": "ConfigMap"},
        content_type="application/apply-patch+yaml",
    ),
    "delete": Case(
        call=lambda it: it.delete(CONFIGMAPS, name="a", namespace="ns"),
        request=f"DELETE {MAPS}/a",
        body=OPTIONS | {"propagationPolicy": "Background"},
    ),
    "delete a version of an object and leave what it owns": Case(
        call=lambda it: it.delete(
            CONFIGMAPS, name="a", namespace="ns", uid="u", resource_version="7", propagation="Orphan"
        ),
        request=f"DELETE {MAPS}/a",
        body=OPTIONS | {"propagationPolicy": "Orphan", "preconditions": {"uid": "u", "resourceVersion": "7"}},
    ),
    "delete a version alone, with 30 s": Case(
        call=lambda it: it.delete(NODES, name="n", resource_version="7", grace_period_seconds=30),
        request="DELETE /api/v1/nodes/n",
        body=OPTIONS
        | {"propagationPolicy": "Background", "preconditions": {"resourceVersion": "7"}, "gracePeriodSeconds": 30},
    ),
    "log": Case(
        call=lambda it: it.log("p", namespace="ns", container="main", tail_lines=10, limit_bytes=99),
        request=f"GET {POD}/log",
        query={"container": "main", "tailLines": "10", "limitBytes": "99"},
    ),
    "log of the only container": Case(call=lambda it: it.log("p", namespace="ns"), request=f"GET {POD}/log"),
    "follow a log": Case(
        call=lambda it: _read(
            it.follow_log("p", namespace="ns", container="main", tail_lines=0, timestamps=True, since="2026-01-01")
        ),
        request=f"GET {POD}/log",
        query={
            "container": "main", "tailLines": "0", "sinceTime": "2026-01-01", "follow": "true", "timestamps": "true",
        },
        answer=Answer(body=b"line\n"),
    ),
    "a log until now": Case(
        call=lambda it: _read(it.follow_log("p", namespace="ns", follow=False)),
        request=f"GET {POD}/log",
        query={"follow": "false"},
        answer=Answer(body=b"line\n"),
    ),
    "bind": Case(
        call=lambda it: it.bind(_pod(), node="n", annotations={"k": "v"}, deadline_seconds=9.5),
        request=f"POST {POD}/binding",
        query={"timeout": "9500ms"},
        body=BINDING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_a_call_is_one_request_that_says_this_and_no_more(api: Api, client: Client, name: str) -> None:
    case = CASES[name]
    api.answer(case.request, case.answer)
    await case.call(client)
    (seen,) = api.seen
    assert (f"{seen.method} {seen.path}", seen.query, seen.body) == (case.request, case.query, case.body)
    assert seen.headers.get("Content-Type", JSON) == case.content_type
    assert seen.headers["User-Agent"] == "dovetail"


class Refused(Exception):
    """Raised by the guard."""


@pytest.mark.parametrize("name", CASES)
async def test_the_guard_is_asked_before_each_write_and_for_no_read(api: Api, name: str) -> None:
    """What it refuses is never sent."""
    case = CASES[name]
    api.answer(case.request, case.answer)

    def refuse() -> None:
        raise Refused

    async with Client(Connection(server=api.url), backoff=QUICK, guard=refuse) as client:
        if case.request.startswith("GET"):
            await case.call(client)
            assert len(api.seen) == 1
        else:
            with pytest.raises(Refused):
                await case.call(client)
            assert api.seen == []


async def test_the_guard_is_asked_again_before_a_write_is_sent_again(api: Api) -> None:
    """After a rotated token: the lease may have ended meanwhile."""
    asked = list[int]()

    def guard() -> None:
        asked.append(len(api.seen))
        if len(asked) > 1:
            raise Refused

    api.answer(f"PATCH {MAPS}/a", refusal(401), Answer(body=make_object("a", version=1)))
    tokens = {False: "old", True: "new"}
    connection = Connection(server=api.url, token_source=lambda *, renew: tokens[renew])
    async with Client(connection, backoff=QUICK, guard=guard) as client:
        with pytest.raises(Refused):
            await client.patch(CONFIGMAPS, name="a", patch={}, as_type=ConfigMap, namespace="ns")
    assert asked == [0, 1]
    assert len(api.seen) == 1


@pytest.mark.parametrize("make_session", [aiohttp_session, brief_session])
@pytest.mark.parametrize("name", ["get", "patch"])
async def test_a_token_that_is_refused_twice_is_an_error(api: Api, make_session: MakeSession, name: str) -> None:
    case = CASES[name]
    api.answer(case.request, *[refusal(401)] * 9)
    async with Client(Connection(server=api.url, token="t"), backoff=QUICK, make_session=make_session) as client:
        with pytest.raises(Unauthorized):
            await case.call(client)
    assert len(api.seen) == 2


async def test_what_a_list_cannot_read_goes_to_the_client_s_own_report_with_its_kind(api: Api) -> None:
    """And to that of the call, where it has one."""
    odd = {"metadata": {"name": "odd", "namespace": "ns", "uid": "u", "resourceVersion": "3"}, "data": 7}
    own, given = list[str](), list[str]()
    api.answer(f"GET {MAPS}", *[listing(odd, make_object("a", version=1), version=9)] * 2)
    async with Client(
        Connection(server=api.url), on_unreadable=lambda kind, meta, _why: own.append(f"{kind.kind} {meta.name}")
    ) as client:
        found = await client.list(CONFIGMAPS, as_type=ConfigMap, namespace="ns")
        await client.list(
            CONFIGMAPS, as_type=ConfigMap, namespace="ns", on_unreadable=lambda meta, _why: given.append(meta.name)
        )
    assert ([each.metadata.name for each in found.items], own, given) == (["a"], ["ConfigMap odd"], ["odd"])


@pytest.mark.parametrize("make_session", [aiohttp_session, brief_session])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("request_", [f"GET {MAPS}/a", f"PATCH {MAPS}/a", f"POST {MAPS}"])
async def test_a_redirect_is_a_refusal_and_is_not_followed(
    api: Api, make_session: MakeSession, status: int, request_: str
) -> None:
    """The write would be sent again without its guard, and the credentials would go elsewhere."""
    (case,) = (each for name, each in CASES.items() if each.request == request_ and name in {"get", "create", "patch"})
    api.answer(request_, refusal(status, headers={"Location": f"{api.url}{MAPS}/b"}))
    async with Client(Connection(server=api.url), backoff=QUICK, make_session=make_session) as client:
        with pytest.raises(StatusError) as raised:
            await case.call(client)
    assert (raised.value.code, len(api.seen)) == (status, 1)


async def test_a_stream_is_not_redirected_either(api: Api, client: Client) -> None:
    api.answer(f"GET {POD}/log", refusal(307, headers={"Location": f"{api.url}{MAPS}/b"}))
    with pytest.raises(StatusError, match="307"):
        await _read(client.follow_log("p", namespace="ns"))
    assert len(api.seen) == 1


async def test_a_token_that_a_stream_is_refused_with_is_renewed_for_the_next_one(api: Api) -> None:
    api.answer(f"GET {POD}/log", refusal(401), refusal(404))
    tokens = {False: "old", True: "new"}
    connection = Connection(server=api.url, token_source=lambda *, renew: tokens[renew])
    async with Client(connection, backoff=QUICK) as client:
        for code in ("401", "404"):
            with pytest.raises(StatusError, match=code):
                await _read(client.follow_log("p", namespace="ns"))
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("there", [True, False])
async def test_data_are_written_into_a_configmap_that_may_not_exist(api: Api, client: Client, there: bool) -> None:
    api.answer(f"PATCH {MAPS}/a", Answer(body=make_object("a", version=1)) if there else refusal(404))
    api.answer(f"POST {MAPS}", Answer(body=make_object("a", version=1)))
    await put_data(client, name="a", namespace="ns", data={"k": "v"})
    patch, *created = api.seen
    assert patch.body == {"data": {"k": "v"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}}
    assert [seen.body for seen in created] == [body] * (not there)


async def test_a_log_that_is_not_there_is_said_before_the_first_chunk(api: Api, client: Client) -> None:
    api.answer(f"GET {POD}/log", refusal(404, message="no such pod"))
    with pytest.raises(NotFound, match="no such pod"):
        await _read(client.follow_log("p", namespace="ns"))
