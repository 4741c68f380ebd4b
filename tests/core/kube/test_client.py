import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from dovetail.api.builtin import ConfigMap, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import CONFIGMAPS, GPUNODES, PODS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import (
    AlreadyExists,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    StatusError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from dovetail.kube.page_size import PAGE_BYTES
from dovetail.kube.transport import MakeSession, aiohttp_session, brief_session
from tests.core.kube.api import Answer, Api, listing, make_object, refusal
from tests.core.kube.conftest import QUICK

LIST = "GET /api/v1/namespaces/ns/configmaps"
ONE = "/api/v1/namespaces/ns/configmaps/a"


@pytest.fixture(params=[aiohttp_session, brief_session])
async def client(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Both ways to speak HTTP keep all of these rules."""
    async with Client(Connection(server=api.url), backoff=QUICK, make_session=request.param) as client:
        yield client


async def get(client: Client, **options: float) -> ConfigMap:
    return await client.get(CONFIGMAPS, name="a", as_type=ConfigMap, namespace="ns", **options)


async def test_an_object_is_read_as_the_type_asked_for(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", Answer(body=make_object("a", version=1, data={"k": "v"})))
    assert (await get(client)).data == {"k": "v"}


async def test_a_page_that_is_too_large_is_asked_for_again_with_fewer_objects(api: Api, client: Client) -> None:
    large = make_object("large", version=1, data={"text": "x" * PAGE_BYTES})
    api.answer(
        LIST,
        listing(make_object("a", version=1), version=9, token="rest"),
        listing(large, version=9),
        listing(make_object("b", version=2), version=9, token="last"),
        listing(make_object("c", version=3), version=9),
    )
    found = await client.list(CONFIGMAPS, as_type=ConfigMap, namespace="ns")
    assert [item.metadata.name for item in found.items] == ["a", "b", "c"]
    asked = [(seen.query["limit"], seen.query.get("continue", "")) for seen in api.of(LIST)]
    assert asked == [("500", ""), ("500", "rest"), ("125", "rest"), ("250", "last")]


async def test_one_object_that_is_larger_than_any_can_be_is_an_error(api: Api, client: Client) -> None:
    large = make_object("large", version=1, data={"text": "x" * PAGE_BYTES})
    api.answer(LIST, *[listing(large, version=9)] * 5)
    with pytest.raises(TooLarge, match="more than 16,777,216 bytes"):
        await client.list(CONFIGMAPS, as_type=ConfigMap, namespace="ns")
    assert [seen.query["limit"] for seen in api.of(LIST)] == ["500", "125", "31", "7", "1"]


async def test_a_list_goes_through_all_pages(api: Api, client: Client) -> None:
    api.answer(
        LIST,
        listing(make_object("a", version=1), make_object("b", version=2), version=9, token="next"),
        listing(make_object("c", version=3), version=9),
    )
    found = await client.list(CONFIGMAPS, as_type=ConfigMap, namespace="ns", label_selector="x=y")
    assert [item.metadata.name for item in found.items] == ["a", "b", "c"]
    assert found.resource_version == "9"
    assert [seen.query for seen in api.of(LIST)] == [
        {"limit": "500", "labelSelector": "x=y"},
        {"limit": "500", "labelSelector": "x=y", "continue": "next"},
    ]


async def test_an_empty_list_may_say_null(api: Api, client: Client) -> None:
    api.answer(LIST, Answer(body={"metadata": {"resourceVersion": "3"}, "items": None}))
    assert await client.list(CONFIGMAPS, as_type=ConfigMap, namespace="ns") == ([], "3")


async def test_a_created_object_gets_the_kind_that_its_struct_leaves_out(api: Api, client: Client) -> None:
    api.answer("POST /apis/dovetail.dev/v1beta1/gpunodes", Answer(body=make_object("n", version=1, namespace="")))
    await client.create(GPUNODES, body=GPUNode(metadata=ObjectMeta(name="n")), as_type=GPUNode)
    body = api.seen[0].body
    assert (body["apiVersion"], body["kind"], body["metadata"]) == (
        "dovetail.dev/v1beta1",
        "GPUNode",
        {"name": "n"},
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_dry_run_and_a_strict_request_say_so_to_the_api_server(
    api: Api, client: Client, dry_run: bool, strict: bool
) -> None:
    api.answer("POST /api/v1/namespaces/ns/configmaps", Answer(body=make_object("a", version=1)))
    body = {"metadata": {"name": "a"}}
    options = {"dry_run": dry_run, "strict": strict}
    await client.create(CONFIGMAPS, body=body, as_type=ConfigMap, namespace="ns", **options)
    wanted = {"dryRun": "All" if dry_run else None, "fieldValidation": "Strict" if strict else None}
    assert api.seen[0].query == {name: value for name, value in wanted.items() if value}


async def test_a_subresource_gets_the_body_as_it_is(api: Api, client: Client) -> None:
    api.answer("POST /api/v1/namespaces/ns/pods/p/eviction", Answer(body={"status": "Success"}))
    body = {"apiVersion": "policy/v1", "kind": "Eviction"}
    await client.create(PODS, body=body, as_type=dict, namespace="ns", name="p", subresource="eviction")
    assert api.seen[0].body == body


async def test_an_update_may_be_of_the_status(api: Api, client: Client) -> None:
    api.answer("PUT /apis/dovetail.dev/v1beta1/gpunodes/n/status", Answer(body=make_object("n", version=2)))
    await client.update(GPUNODES, name="n", body={"metadata": {"name": "n"}}, as_type=GPUNode, subresource="status")
    assert api.seen[0].body["kind"] == "GPUNode"


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("merge", "application/merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("strategic", "application/strategic-merge-patch+json"),
    ],
)
async def test_a_patch_says_of_which_kind_it_is(api: Api, client: Client, kind: str, content_type: str) -> None:
    api.answer(f"PATCH {ONE}", Answer(body=make_object("a", version=2)))
    await client.patch(CONFIGMAPS, name="a", patch={"data": {}}, as_type=ConfigMap, kind=kind, namespace="ns")
    assert api.seen[0].headers["Content-Type"] == content_type


async def test_server_side_apply_names_its_manager(api: Api, client: Client) -> None:
    api.answer(f"PATCH {ONE}", Answer(body=make_object("a", version=2)))
    await client.apply(
        CONFIGMAPS, name="a", body={"data": {}}, as_type=ConfigMap, field_manager="me", force=True, namespace="ns"
    )
    assert api.seen[0].query == {"fieldManager": "me", "force": "true"}
    assert api.seen[0].body == {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}


async def test_a_delete_may_be_of_that_very_object_only(api: Api, client: Client) -> None:
    api.answer(f"DELETE {ONE}", Answer(body={"status": "Success"}))
    await client.delete(CONFIGMAPS, name="a", namespace="ns", uid="u", grace_period_seconds=0)
    assert api.seen[0].body["preconditions"] == {"uid": "u"}
    assert api.seen[0].body["gracePeriodSeconds"] == 0


async def test_a_binding_carries_uid_node_annotations_and_its_deadline(api: Api, client: Client) -> None:
    api.answer("POST /api/v1/namespaces/ns/pods/p/binding", Answer(body={"status": "Success"}, status=201))
    pod = msgspec.convert(make_object("p", version=1, uid="u"), Pod)
    await client.bind(pod, node="n1", annotations={"k": "v"}, deadline_seconds=2.5)
    [seen] = api.seen
    assert seen.query == {"timeout": "2500ms"}
    assert seen.body["metadata"] == {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"k": "v"}}
    assert seen.body["target"]["name"] == "n1"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerFault),
        (400, "BadRequest", StatusError),
    ],
)
async def test_each_refusal_is_an_error_of_its_own(
    api: Api, client: Client, code: int, reason: str, error: type[StatusError]
) -> None:
    api.answer(f"PATCH {ONE}", *[refusal(code, reason=reason, message="because")] * 2)
    with pytest.raises(StatusError, match="because") as raised:
        await client.patch(CONFIGMAPS, name="a", patch={}, as_type=ConfigMap, namespace="ns")
    assert type(raised.value) is error
    assert (raised.value.code, raised.value.reason) == (code, reason)


async def test_a_refusal_names_the_request_and_the_fields(api: Api, client: Client) -> None:
    status = {"message": "spec.gpu is wrong", "details": {"causes": [{"field": "spec.gpu", "message": "wrong"}]}}
    api.answer(f"GET {ONE}", Answer(status=422, body=status))
    with pytest.raises(Invalid) as raised:
        await get(client)
    assert str(raised.value) == f"GET {ONE}: spec.gpu is wrong (422)"
    assert raised.value.details.causes[0].field == "spec.gpu"


async def test_a_refusal_that_is_no_status_still_says_what_came(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", Answer(status=404, body=b"404 page not found\n"))
    with pytest.raises(NotFound, match="404 page not found"):
        await get(client)


async def test_an_answer_of_another_shape_is_undecodable(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", Answer(body={"data": 3}))
    with pytest.raises(Undecodable, match=r"Expected `object`, got `int` - at `\$.data`"):
        await get(client)


async def test_reads_go_on_after_passing_troubles(api: Api, client: Client) -> None:
    api.answer(
        f"GET {ONE}",
        refusal(503),
        refusal(429, headers={"Retry-After": "0"}),
        Answer(drop=True),
        Answer(body=make_object("a", version=1)),
    )
    assert (await get(client)).metadata.name == "a"


async def test_reads_give_up_after_some_attempts(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", *[refusal(503, message="starting")] * 9)
    with pytest.raises(ServerFault, match="starting"):
        await get(client)
    assert len(api.seen) == 5


@pytest.mark.parametrize("answer", [refusal(503), refusal(429), Answer(drop=True)])
async def test_writes_are_sent_once(api: Api, client: Client, answer: Answer) -> None:
    api.answer("POST /api/v1/namespaces/ns/configmaps", answer, Answer(body=make_object("a", version=1)))
    with pytest.raises((ServerFault, TooManyRequests, Unreachable)):
        await client.create(CONFIGMAPS, body={}, as_type=ConfigMap, namespace="ns")
    assert len(api.seen) == 1


async def test_no_answer_ends_at_the_deadline(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", Answer(released=asyncio.Event()))
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.05 s"):
        await get(client, deadline_seconds=0.05)


async def test_waiting_as_asked_ends_at_the_deadline_too(api: Api, client: Client) -> None:
    api.answer(f"GET {ONE}", refusal(429, headers={"Retry-After": "30"}))
    with pytest.raises(DeadlineExceeded):
        await get(client, deadline_seconds=0.05)


@pytest.mark.parametrize("make_session", [aiohttp_session, brief_session])
async def test_nobody_listening_is_unreachable_and_says_where(unused_tcp_port: int, make_session: MakeSession) -> None:
    connection = Connection(server=f"http://127.0.0.1:{unused_tcp_port}")
    async with Client(connection, backoff=QUICK, rng=random.Random(1), make_session=make_session) as client:
        with pytest.raises(
            Unreachable, match=f"cannot reach the API server at {connection.server}: Connection refused"
        ):
            await get(client)


async def test_a_write_is_sent_once_although_the_connection_breaks() -> None:
    methods: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = msgspec.json.encode(make_object("a", version=1))
        with contextlib.suppress(asyncio.IncompleteReadError):
            while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET"):
                methods.append(head.split()[0])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            methods.append(head.split()[0])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(Connection(server=f"http://127.0.0.1:{port}"), backoff=QUICK) as client:
            await get(client)
            with pytest.raises(Unreachable):
                await client.update(CONFIGMAPS, name="a", body={}, as_type=ConfigMap, namespace="ns")
    assert methods == [b"GET", b"PUT"]


async def test_a_rotated_token_is_read_again(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    api.answer(f"PUT {ONE}", Answer(body=make_object("a", version=1)), refusal(401))
    api.answer(f"PUT {ONE}", Answer(body=make_object("a", version=2)))
    async with Client(Connection(server=api.url, token_file=token), backoff=QUICK) as client:
        await client.update(CONFIGMAPS, name="a", body={}, as_type=ConfigMap, namespace="ns")
        token.write_text("new\n")
        await client.update(CONFIGMAPS, name="a", body={}, as_type=ConfigMap, namespace="ns")
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_rejected_token_is_renewed_by_a_login(api: Api) -> None:
    api.answer(f"GET {ONE}", refusal(401), Answer(body=make_object("a", version=1)))
    source = {False: "expired", True: "renewed"}
    async with Client(Connection(server=api.url, token_source=lambda *, renew: source[renew]), backoff=QUICK) as client:
        await get(client)
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer expired", "Bearer renewed"]


async def test_a_login_program_is_asked_for_the_token(api: Api) -> None:
    api.answer(f"GET {ONE}", Answer(body=make_object("a", version=1)))
    async with Client(Connection(server=api.url, token_source=lambda *, renew: "from-login")) as client:
        await get(client)
    assert api.seen[0].headers["Authorization"] == "Bearer from-login"


@pytest.mark.parametrize("make_session", [aiohttp_session, brief_session])
@pytest.mark.parametrize("sent", [b'{"kind"', b""])
async def test_an_answer_that_breaks_off_in_its_body_is_asked_for_again_and_then_no_answer(
    make_session: MakeSession, sent: bytes
) -> None:
    asked = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n" + sent)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(Connection(server=url), backoff=QUICK, make_session=make_session) as client:
            with pytest.raises(Unreachable):
                await get(client, deadline_seconds=0.5)
    assert len(asked) > 1
