"""Each route of the table: who gets in, and what it answers before the cluster is listed."""

import time
from typing import Final

from dovetail_gateway.app import Options
from dovetail_gateway.routing.table import Route
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.canary.test_marks import asked
from tests.gateway.openapi import table
from tests.gateway.openid import jwt
from tests.gateway.served import Face, Reply, serving
from tests.gateway.test_sessions import PAGE, cookie_of

ROUTES: Final = table()
OPEN: Final = {"v1_get_health"}
# What needs no view of the cluster: the API server does it, or it says that the cluster is not listed.
NOT_SYNCED: Final = {
    "v1_get_health", "v1_release", "v3_create_job", "v3_change_job", "v3_delete_job", "v3_cancel_job",
    "v3_list_history",
}  # fmt: skip
RED: Final = Options(rates=None, allocation_namespace="red")


async def ask(face: Face, each: Route, *, token: str = "", **headers: str) -> Reply:
    path = each.path.format(namespace="red", name="train", id="train")
    path += "?namespace=red" * path.endswith("/history") + "?at=2026-11-01T00:00:00Z" * path.endswith("/then")
    path += "?jobs=red/train" * path.endswith("/moves")
    body = asked(each, "red", "train")[0]
    return await face.ask(each.method, path, token=token, headers=headers, **body)


async def test_no_route_but_the_open_one_answers_without_a_token_that_counts(api: GatewayApiServer) -> None:
    expired = jwt({"exp": time.time() - 5})
    api.users[expired] = api.users["admin-token"]
    async with serving(api, options=RED) as face:
        for each in ROUTES:
            wanted = 200 if each.operation in OPEN else 401
            for token in ("", "unknown-token", expired):
                assert (await ask(face, each, token=token)).status == wanted, (each.operation, token)
            odd = await ask(face, each, Authorization="Basic eA==")
            assert odd.status == wanted, each.operation
    # To ask who somebody is changes nothing.
    assert [request for request in api.requests if request[0]] == []


async def test_a_caller_without_rights_gets_nothing_of_the_cluster_from_any_route(api: GatewayApiServer) -> None:
    async with serving(api, options=RED) as face:
        found = {each.operation: await ask(face, each, token="nobody-token") for each in ROUTES}
    allowed = {operation for operation, reply in found.items() if reply.status != 403}
    assert allowed == {"v1_get_health", "v3_get_me"}
    me = found["v3_get_me"].json
    assert (me["username"], me["everywhere"], me["namespaces"]) == ("nina", False, [])


async def test_until_the_cluster_is_listed_each_route_that_needs_it_says_so(api: GatewayApiServer) -> None:
    api.listing.clear()
    async with serving(api, options=RED, synced=False) as face:
        found = {each.operation: await ask(face, each, token="red-token") for each in ROUTES}
        api.listing.set()
    unsynced = {operation for operation, reply in found.items() if "NotSynced" not in reply.text}
    assert unsynced == NOT_SYNCED
    for operation in found.keys() - NOT_SYNCED:
        assert (found[operation].status, found[operation].headers["Retry-After"]) == (503, "1"), operation


async def test_no_browser_keeps_an_answer_or_guesses_its_type(face: Face) -> None:
    for each in ROUTES:
        for token in ("red-token", "") if each.stream is None else ():
            headers = (await ask(face, each, token=token)).headers
            found = [headers[name] for name in ("Cache-Control", "X-Content-Type-Options", "Referrer-Policy")]
            assert found == ["no-store", "nosniff", "no-referrer"], each.operation


async def test_a_token_counts_and_not_the_session_that_comes_with_it(face: Face) -> None:
    sent = {**PAGE, **await cookie_of(face, token="red-token")}
    assert (await face.get("/api/v3/me", headers=sent)).json["username"] == "rita"
    assert (await face.get("/api/v3/me", token="admin-token", headers=sent)).json["username"] == "admin"
    for header in ("Bearer unknown", "Basic eA=="):
        assert (await face.get("/api/v3/me", headers={**sent, "Authorization": header})).status == 401


async def test_a_session_of_a_page_is_for_every_route_and_of_another_site_for_none(api: GatewayApiServer) -> None:
    async with serving(api, options=RED) as face:
        cookie = await cookie_of(face, token="nobody-token")
        for each in ROUTES:
            if each.operation in OPEN:
                continue
            own = await ask(face, each, **PAGE, **cookie)
            assert (own.status == 200) == (each.operation == "v3_get_me"), each.operation
            foreign = await ask(face, each, **{**PAGE, "Sec-Fetch-Site": "cross-site"}, **cookie)
            assert (foreign.status, "does not come from a page" in foreign.text) == (403, True), each.operation
            if each.method != "GET":
                form = await ask(face, each, **{"Sec-Fetch-Site": "same-origin"}, **cookie)
                assert (form.status, "needs the header" in form.text) == (403, True), each.operation
