"""Who gets in, and what is refused before anything else."""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
from asyncio import to_thread
from io import BytesIO
from typing import Any

import pytest

from dovetail.decoding import convert
from dovetail.process.hosts import Hosts
from dovetail_gateway.access import loopback_peer
from dovetail_gateway.access.callers import caller_of
from dovetail_gateway.access.legacy_account import Account, LegacyAccount
from dovetail_gateway.access.tokens import TokenError, bearer, token_of
from dovetail_gateway.app import Options
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face, serving
from tests.other_user import NOBODY, need_root

JOBS = "/api/v3/jobs"


def jwt(**claims: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"h.{payload}.s"


async def test_a_request_without_a_token_is_asked_for_one(face: Face) -> None:
    found = await face.get(JOBS)
    assert (found.status, found.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_a_token_that_the_api_server_does_not_know_is_refused(face: Face) -> None:
    found = await face.get(JOBS, token="unknown")
    assert (found.status, found.json["reason"]) == (401, "Unauthorized")


async def test_a_token_that_has_expired_by_its_own_words_asks_nothing(api: GatewayApiServer, face: Face) -> None:
    found = await face.get(JOBS, token=jwt(exp=time.time() - 1))
    assert (found.status, found.json["detail"]) == (401, "the token has expired")
    assert not api.reviews


@pytest.mark.parametrize("header", ["", "Basic eA==", "Bearer", "Bearer a b", "Bearer ü", "Bearer " + "x" * 40_000])
def test_a_header_without_a_bearer_token_is_an_error(header: str) -> None:
    with pytest.raises(TokenError):
        bearer(header)


@pytest.mark.parametrize("user", ["", "u", "us", "use", "user"])
@pytest.mark.parametrize("head", ["h", "he", "hea", "head"])
def test_a_token_of_any_length_says_when_it_ends(user: str, head: str) -> None:
    """A part of a JWT has no padding, whatever its length."""
    payload = base64.urlsafe_b64encode(json.dumps({"exp": 1764547200, "sub": user}).encode()).decode().rstrip("=")
    assert token_of(f"{head}.{payload}.s").expires_at == 1764547200


@pytest.mark.parametrize("text", ["x", "a.b.c", jwt(), "a.bnVsbA.c", "....", "a.W10.c"])
def test_a_token_that_does_not_say_when_it_ends_ends_when_the_api_server_says(text: str) -> None:
    assert token_of(text).expires_at is None


def test_no_token_is_shown_by_repr() -> None:
    assert "secret" not in repr(caller_of(token_of("secret")))


async def raw(face: Face, *, sent: bytes) -> tuple[bytes, dict[str, object]]:
    """The status line and the body of the answer to these bytes."""
    port = int(face.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"application/problem+json" in head
    return head.split(b"\r\n")[0].partition(b" ")[2], json.loads(body)


async def test_a_request_line_that_is_too_long_is_a_problem_too(face: Face) -> None:
    line = b"GET /api/v3/jobs?cursor=" + b"x" * 9_000 + b" HTTP/1.1\r\n"
    status, problem = await raw(face, sent=line + b"Host: localhost\r\n\r\n")
    assert status == b"400 Bad Request"
    assert (problem["reason"], problem["detail"]) == ("Unreadable", "the request line or a header is too long")


async def test_a_token_that_is_too_long_is_refused_and_no_log_has_it(
    face: Face, capsys: pytest.CaptureFixture[str]
) -> None:
    header = b"Authorization: Bearer " + b"secret" * 6_000
    status, _ = await raw(face, sent=b"GET /api/v3/jobs HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
    said = capsys.readouterr()
    assert (status, "secret" in said.out + said.err) == (b"400 Bad Request", False)


async def test_what_is_no_http_is_a_problem_too(face: Face) -> None:
    status, problem = await raw(face, sent=b"hello\r\n\r\n")
    assert (status, problem["detail"]) == (b"400 Bad Request", "this is no HTTP/1.1 request")


async def test_a_caller_without_rights_is_refused_with_verb_and_resource(face: Face) -> None:
    found = await face.get(JOBS, token="nobody-token")
    assert (found.status, "list gpujobs.dovetail.dev" in found.json["detail"]) == (403, True)


async def test_a_host_that_is_not_the_gateways_is_refused_before_anything_else(face: Face) -> None:
    found = await face.get(JOBS, token="admin-token", headers={"Host": "evil.example"})
    assert (found.status, found.json["reason"]) == (421, "Host")


@pytest.mark.parametrize(
    ("header", "admitted"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:1", True),
        ("[::1]:8000", True),
        ("gpu.example.com", True),
        ("gpu.example.com:443", True),
        ("evil.example.com", False),
        ("localhost.evil.com", False),
        ("localhost:8000:1", False),
        ("", False),
        ("localhost:x", False),
    ],
)
def test_hosts_are_loopback_and_those_that_are_named(header: str, *, admitted: bool) -> None:
    assert Hosts(["gpu.example.com"]).admits(header) is admitted


async def test_large_bodies_and_other_types_are_refused(face: Face) -> None:
    headers = {"Content-Type": "application/json"}
    large = await face.ask("POST", JOBS, token="red-token", data=BytesIO(b"[" * (3 << 20)), headers=headers)
    # What follows on the connection is the rest of the body.
    assert (large.status, large.headers["Connection"]) == (413, "close")
    text = await face.ask("POST", JOBS, token="red-token", data=b"{}", headers={"Content-Type": "text/plain"})
    assert text.status == 415
    broken = await face.ask("POST", JOBS, token="red-token", data=b"{", headers=headers)
    assert broken.status == 400
    deep = await face.ask("POST", JOBS, token="red-token", data=b"[" * 100_000, headers=headers)
    assert deep.status == 422


async def test_no_answer_permits_another_site_to_read_it(face: Face) -> None:
    found = await face.get(JOBS, token="admin-token", headers={"Origin": "https://evil.example"})
    assert not [name for name in found.headers if name.lower().startswith("access-control-")]
    preflight = await face.ask("OPTIONS", JOBS, headers={"Origin": "https://evil.example"})
    assert (preflight.status, preflight.headers["Allow"]) == (405, "GET,HEAD,POST")


async def test_an_unknown_path_and_a_wrong_method_are_problems(face: Face) -> None:
    assert (await face.get("/api/v3/none")).json["status"] == 404
    assert (await face.ask("PUT", JOBS)).json["status"] == 405


async def test_until_the_cluster_is_listed_the_answer_is_503_with_the_reason(api: GatewayApiServer) -> None:
    api.listing.clear()
    async with serving(api, synced=False) as face:
        found = await face.get(JOBS, token="admin-token")
        api.listing.set()
    assert (found.status, found.json["reason"]) == (503, "NotSynced")
    assert "not listed yet" in found.json["detail"]


async def test_anonymous_requests_from_this_machine_need_the_flag_and_no_page_may_send_them(
    api: GatewayApiServer,
) -> None:
    api.users[""] = api.users["admin-token"]
    async with serving(api, options=Options(rates=None, anonymous_loopback=True)) as face:
        assert (await face.get(JOBS)).status == 200
        for header in ({"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}):
            assert (await face.get(JOBS, headers=header)).status == 401
    async with serving(api) as face:
        assert (await face.get(JOBS)).status == 401


async def test_the_gateways_own_credentials_never_go_along_with_a_token(api: GatewayApiServer) -> None:
    async with serving(api) as face:
        bare = face.made.clients.bare
    assert (bare.client_certificate, bare.client_key, bare.token, bare.token_file) == (None, None, None, None)


async def test_a_legacy_account_is_not_for_v3(api: GatewayApiServer) -> None:
    options = Options(rates=None, legacy=Account(namespace="dovetail-system", name="legacy"))
    async with serving(api, options=options) as face:
        assert (await face.get(JOBS)).status == 401
    assert api.token_requests == 0


LEGACY = Options(rates=None, legacy=Account(namespace="dovetail-system", name="legacy"), legacy_own_user=True)


async def test_on_one_machine_the_legacy_account_is_for_the_gateways_own_user(api: GatewayApiServer) -> None:
    async with serving(api, options=LEGACY) as face:
        assert (await face.get("/api/v2/resources")).status == 200


async def test_on_one_machine_another_user_gets_nothing_without_a_token(api: GatewayApiServer) -> None:
    need_root()
    async with serving(api, options=LEGACY) as face:
        assert "HTTP Error 401: Unauthorized" in await asked_by_another_user(face.url + "/api/v2/resources")
    assert api.token_requests == 0


async def test_anonymous_requests_of_another_user_of_the_machine_have_no_rights(api: GatewayApiServer) -> None:
    need_root()
    api.users[""] = api.users["admin-token"]
    async with serving(api, options=Options(rates=None, anonymous_loopback=True)) as face:
        assert (await face.get(JOBS)).status == 200
        assert "HTTP Error 401: Unauthorized" in await asked_by_another_user(face.url + JOBS)


async def asked_by_another_user(url: str) -> str:
    """What another user of the machine is told by a request without a token."""
    asked = f"import urllib.request as u; u.urlopen({url!r})"
    other = f"import encodings.idna, os, urllib.request; os.setuid({NOBODY}); {asked}"
    done = await to_thread(subprocess.run, [sys.executable, "-c", other], capture_output=True, text=True, check=False)
    return done.stderr


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_says_whose_the_other_end_is_while_it_is_open(family: int, host: str) -> None:
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        peer = socket.create_connection(server.getsockname()[:2])
        accepted, address = server.accept()
        with accepted:
            assert loopback_peer.uid_of(address, own=accepted.getsockname()) == os.getuid()
            # A socket without a process is root's for the kernel, so a closed one must say nothing.
            peer.close()
            assert loopback_peer.uid_of(address, own=accepted.getsockname()) is None


def test_a_connection_without_addresses_has_no_user() -> None:
    assert loopback_peer.uid_of(None, own=None) is None


class Tokens:
    """A client that gives out tokens of an hour."""

    def __init__(self) -> None:
        self.given = 0

    async def create(self, _resource: Any, *, as_type: Any, **asked: Any) -> Any:
        assert (asked["namespace"], asked["name"], asked["subresource"]) == ("red", "scripts", "token")
        assert asked["body"]["spec"] == {"expirationSeconds": 3600}
        self.given += 1
        return convert({"status": {"token": f"t{self.given}"}}, as_type=as_type)


async def test_the_token_of_the_scripts_account_is_replaced_at_four_fifths_of_its_life() -> None:
    now, client = [10_000.0], Tokens()
    account = LegacyAccount(Account(namespace="red", name="scripts"), client=client, clock=lambda: now[0])  # type: ignore[arg-type]
    found = list[str]()
    for seconds in (0, 2879, 2880, 2880 + 2879, 2 * 2880):
        now[0] = 10_000.0 + seconds
        found.append((await account.token()).text)
    assert found == ["t1", "t1", "t2", "t2", "t3"]
