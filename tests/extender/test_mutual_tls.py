"""The verbs over mutual TLS: who is refused, and certificates that change while requests are answered."""

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from dovetail.engine.ledger.ledger import Ledger
from dovetail.process.certificate import Certificate
from dovetail_extender.metrics import Metrics, Reading
from dovetail_extender.verb_server import VerbServer, problem_of
from tests.authority import Authority, Pair

SERVER = "dovetail-extender.dovetail-system.svc"
CLIENT = "kube-scheduler.example"
NOW = ssl.cert_time_to_seconds("Jan  1 00:00:00 2030 GMT")


@pytest.fixture
def authority() -> Authority:
    return Authority()


@asynccontextmanager
async def serving(folder: Path, *, metrics: Metrics | None = None) -> AsyncIterator[tuple[int, Certificate]]:
    """A server of one verb with the certificate in the folder."""
    certificate = Certificate(folder, clients=folder / "ca.crt")
    server = VerbServer(host="127.0.0.1", port=0, certificate=certificate, names=[CLIENT])
    app = server.application(metrics or make_metrics())

    async def bind(_request: web.Request) -> web.Response:
        return web.json_response({"Error": ""})

    async def count(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    app.add_routes([web.post("/bind", bind), web.post("/filter", count)])
    async with server.listening(app) as port:
        yield port, certificate


def make_metrics() -> Metrics:
    return Metrics(ledger=Ledger(), read=Reading)


def context_of(folder: Path, *, pair: Pair | None, trusted: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted.decode())
    if pair is not None:
        pair.write(folder, authority=trusted)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


async def asked(
    port: int, *, context: ssl.SSLContext, verb: str = "bind", body: bytes | None = None
) -> tuple[int, str]:
    """The status and the text of an answer; 0 where there is none."""
    try:
        async with aiohttp.ClientSession() as http:
            url = f"https://127.0.0.1:{port}/{verb}"
            async with http.post(url, ssl=context, server_hostname=SERVER, data=body and io.BytesIO(body)) as response:
                return response.status, await response.text()
    except aiohttp.ClientError as error:
        return 0, str(error)


async def test_a_client_with_an_allowed_name_is_answered(authority: Authority, tmp_path: Path) -> None:
    authority.sign(SERVER).write(tmp_path / "server", authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=authority.sign(CLIENT), trusted=authority.certificate)
    async with serving(tmp_path / "server") as (port, _):
        assert await asked(port, context=context) == (200, '{"Error": ""}')


async def test_a_pod_with_the_names_of_all_nodes_of_a_large_cluster_is_read(
    authority: Authority, tmp_path: Path
) -> None:
    """aiohttp's own bound is 1 MiB."""
    authority.sign(SERVER).write(tmp_path / "server", authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=authority.sign(CLIENT), trusted=authority.certificate)
    body = b" " * (3 << 20)
    async with serving(tmp_path / "server") as (port, _):
        assert await asked(port, context=context, verb="filter", body=body) == (200, str(len(body)))


async def test_a_metric_says_when_the_certificate_of_kube_scheduler_expires(
    authority: Authority, tmp_path: Path
) -> None:
    authority.sign(SERVER).write(tmp_path / "server", authority=authority.certificate)
    client = authority.sign(CLIENT, days=3)
    context = context_of(tmp_path / "client", pair=client, trusted=authority.certificate)
    metrics = make_metrics()
    async with serving(tmp_path / "server", metrics=metrics) as (port, _):
        await asked(port, context=context)
    expiry = metrics.registry.get_sample_value("dovetail_extender_client_certificate_expiry_timestamp_seconds")
    assert expiry == x509.load_pem_x509_certificate(client.certificate).not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    "case", ["no certificate", "of another CA", "expired"],
)  # fmt: skip
async def test_a_client_that_proves_nothing_gets_no_answer(case: str, authority: Authority, tmp_path: Path) -> None:
    pair = {
        "no certificate": None,
        "of another CA": Authority().sign(CLIENT),
        "expired": authority.sign(CLIENT, days=-1),
    }[case]
    authority.sign(SERVER).write(tmp_path / "server", authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=pair, trusted=authority.certificate)
    async with serving(tmp_path / "server") as (port, _):
        assert (await asked(port, context=context))[0] == 0


async def test_a_client_with_another_name_is_told_which_one_is_allowed(authority: Authority, tmp_path: Path) -> None:
    authority.sign(SERVER).write(tmp_path / "server", authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=authority.sign("someone"), trusted=authority.certificate)
    metrics = make_metrics()
    async with serving(tmp_path / "server", metrics=metrics) as (port, _):
        answer = await asked(port, context=context)
    assert answer == (403, f"the client's certificate has someone, but allowed is {CLIENT}\n")
    assert metrics.registry.get_sample_value("dovetail_extender_refused_clients_total") == 1


async def test_a_new_certificate_serves_new_connections_and_interrupts_no_old_one(
    authority: Authority, tmp_path: Path
) -> None:
    folder = tmp_path / "server"
    authority.sign(SERVER).write(folder, authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=authority.sign(CLIENT), trusted=authority.certificate)
    async with serving(folder) as (port, certificate), aiohttp.ClientSession() as http:
        ask: Any = {"url": f"https://127.0.0.1:{port}/bind", "ssl": context, "server_hostname": SERVER}
        for _ in range(20):
            async with http.post(**ask) as response:
                assert response.status == 200
            authority.sign(SERVER).write(folder, authority=authority.certificate)
            assert certificate.refresh()
            assert (await asked(port, context=context))[0] == 200


async def test_a_ca_that_is_removed_admits_no_new_connection(authority: Authority, tmp_path: Path) -> None:
    folder, successor = tmp_path / "server", Authority("successor")
    authority.sign(SERVER).write(folder, authority=authority.certificate + successor.certificate)
    trusted = authority.certificate + successor.certificate
    old, new = (
        context_of(tmp_path / name, pair=each.sign(CLIENT), trusted=trusted)
        for name, each in (("old", authority), ("new", successor))
    )
    async with serving(folder) as (port, certificate):
        assert [(await asked(port, context=each))[0] for each in (old, new)] == [200, 200]
        successor.sign(SERVER).write(folder, authority=successor.certificate)
        assert certificate.refresh()
        assert [(await asked(port, context=each))[0] for each in (old, new)] == [0, 200]


def test_a_certificate_that_expires_while_its_connection_is_open_is_refused() -> None:
    found = {"subject": ((("commonName", CLIENT),),), "notAfter": "Jan  1 00:00:00 2030 GMT"}
    assert problem_of(found, allowed=[CLIENT], now=NOW - 1) == ""
    assert problem_of(found, allowed=[CLIENT], now=NOW) == (
        "the client's certificate expired at Jan  1 00:00:00 2030 GMT"
    )


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (None, "the client has shown no certificate"),
        ({}, "the client has shown no certificate"),
        ({"notAfter": "Jan  1 00:00:00 2031 GMT"}, f"the client's certificate has no name, but allowed is {CLIENT}"),
        ({"subjectAltName": (("DNS", CLIENT),), "notAfter": "Jan  1 00:00:00 2031 GMT"}, ""),
        ({"subjectAltName": (("DNS", f"x.{CLIENT}"),), "notAfter": "Jan  1 00:00:00 2031 GMT"}, "the client's"),
    ],
    ids=["none", "empty", "nameless", "alternative name", "longer name"],
)
def test_the_name_is_compared_whole(certificate: dict[str, Any] | None, problem: str) -> None:
    found = problem_of(certificate, allowed=[CLIENT], now=NOW)
    assert found.startswith(problem) if problem else not found
