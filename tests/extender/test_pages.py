"""The verbs on loopback without TLS: no page of a web site can use them, whatever it sends."""

from typing import Any

import aiohttp
import pytest
from aiohttp import web

from dovetail_extender.verb_server import VerbServer
from tests.extender.builders import asking, make_pod
from tests.extender.harness import Face
from tests.extender.test_mutual_tls import make_metrics

JSON = {"Content-Type": "application/json"}


async def answered(**more: Any) -> tuple[int, str]:
    """The answer of a verb to a request with these headers."""
    server = VerbServer(host="127.0.0.1", port=0, certificate=None, names=[])
    app = server.application(make_metrics())

    async def verb(_request: web.Request) -> web.Response:
        return web.json_response({"Error": ""})

    app.add_routes([web.post("/bind", verb)])
    async with (
        server.listening(app) as port,
        aiohttp.ClientSession() as http,
        http.post(f"http://127.0.0.1:{port}/bind", json={}, headers=more) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize("host", ["127.0.0.1:8888", "localhost:8888", "localhost"])
async def test_kube_scheduler_is_answered(host: str) -> None:
    assert (await answered(Host=host))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8888", "127.0.0.1.evil.example", "10.0.0.1:8888", ""])
async def test_a_name_that_a_page_points_to_loopback_is_refused(host: str) -> None:
    assert await answered(Host=host) == (403, f"the Host header is {host!r}: only kube-scheduler calls this port\n")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8888", "null"])
async def test_a_request_of_a_page_is_refused(origin: str) -> None:
    status, said = await answered(Origin=origin)
    assert (status, said.startswith(f"the request comes from a page of {origin!r}")) == (403, True)


@pytest.mark.parametrize("declared", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_a_body_that_a_page_may_send_unasked_is_refused(face: Face, verb: str, declared: str) -> None:
    question = {"json": asking(make_pod(), "a"), "headers": {"Content-Type": declared}}
    async with face.http.post(f"/{verb}", **question) as response:
        assert response.status == 415
        assert await response.text() == f"Content-Type is {declared}, but must be application/json\n"
