"""What only the session of brief processes does: connections that stay, TLS by hand, and no wait for a lost thread."""

import asyncio
import dataclasses
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.kube.aiohttp_session import AiohttpSession
from dovetail.kube.auth.connection import Connection
from dovetail.kube.errors import Unreachable
from dovetail.kube.http_session import Request, Session
from dovetail.kube.thread_session import ThreadSession
from dovetail.kube.transport import brief_session
from tests.core.kube.api import Answer, Api

ASKED = Request(method="GET", path="/version", query={"a": "b c&d", "e": "ü"}, headers={})
SESSIONS = (AiohttpSession, ThreadSession)


@pytest.fixture(params=SESSIONS)
async def session(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    made = request.param(Connection(server=f"{api.url}/k8s/clusters/c-1"))
    yield made
    await made.close()


async def test_query_and_the_path_of_the_server_arrive_as_they_are(api: Api, session: Session) -> None:
    api.answer("GET /k8s/clusters/c-1/version", Answer(body={"major": "1"}))

    assert (await session.exchange(ASKED)).body == b'{"major": "1"}'
    assert api.seen[0].query == {"a": "b c&d", "e": "ü"}


class Counting(BaseHTTPRequestHandler):
    """Answers with the client's port, whether its connection resumes a TLS session, or with a redirect."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        text = str(self.client_address[1]).encode()
        if self.path == "/resumed":
            text = str(self.connection.session_reused).encode()
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_requests_after_each_other_share_a_connection_and_those_at_a_time_do_not(
    server: ThreadingHTTPServer,
) -> None:
    session = ThreadSession(Connection(server=f"http://127.0.0.1:{server.server_port}"))
    first, second = await asyncio.gather(session.exchange(ASKED), session.exchange(ASKED))
    third = await session.exchange(ASKED)
    await session.close()

    assert first.body != second.body
    assert third.body in {first.body, second.body}


async def test_a_redirect_is_an_answer_with_its_status(server: ThreadingHTTPServer) -> None:
    session = ThreadSession(Connection(server=f"http://127.0.0.1:{server.server_port}"))
    answer = await session.exchange(Request(method="GET", path="/moved", query={}, headers={}))
    await session.close()

    assert answer.status == 302


async def test_what_is_given_up_ends_its_connection(api: Api) -> None:
    api.answer("GET /version", Answer(released=asyncio.Event()))
    session = ThreadSession(Connection(server=api.url))
    threads = threading.active_count()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.exchange(ASKED)
    async with asyncio.timeout(10):
        while threading.active_count() > threads:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
    await session.close()


async def test_what_is_given_up_while_it_connects_leaves_no_socket(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connects, given_up = threading.Event(), threading.Event()
    sockets: list[socket.socket] = []
    connect = socket.create_connection

    def late(*args: Any, **options: Any) -> socket.socket:
        connects.set()
        assert given_up.wait(60)
        sockets.append(connect(*args, **options))
        return sockets[-1]

    monkeypatch.setattr(socket, "create_connection", late)
    session = ThreadSession(Connection(server=f"http://127.0.0.1:{server.server_port}"))
    threads = set(threading.enumerate())
    asking = asyncio.create_task(session.exchange(ASKED))
    await asyncio.to_thread(connects.wait, 60)
    (thread,) = [each for each in set(threading.enumerate()) - threads if not each.name.startswith("asyncio")]
    asking.cancel()
    await asyncio.wait([asking])
    given_up.set()
    await asyncio.to_thread(thread.join, 60)
    await session.close()
    assert [each.fileno() for each in sockets] == [-1]


async def test_a_request_that_outlives_its_session_leaves_no_connection(api: Api) -> None:
    """The other request of a `gather` that has failed."""
    released = asyncio.Event()
    api.answer("GET /version", Answer(released=released))
    session = ThreadSession(Connection(server=api.url))
    asking = asyncio.create_task(session.exchange(ASKED))
    await api.until("GET /version", count=1)
    await session.close()
    released.set()
    await asking
    assert session._free == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own for the name `api.internal`, with its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api.internal")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("api.internal"), x509.IPAddress(ipaddress.ip_address("::1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "tls.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return tmp_path / "tls.pem"


@pytest.fixture
def secure(server: ThreadingHTTPServer, certificate: Path) -> Connection:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return Connection(server=f"https://127.0.0.1:{server.server_port}", ca=certificate.read_text())


@pytest.mark.parametrize("kind", SESSIONS)
async def test_the_name_for_tls_may_be_another_than_the_address(secure: Connection, kind: type[ThreadSession]) -> None:
    session = kind(dataclasses.replace(secure, tls_server_name="api.internal"))
    answer = await session.exchange(ASKED)
    await session.close()

    assert answer.status == 200


async def test_later_connections_resume_the_tls_session_of_the_first(secure: Connection) -> None:
    session = ThreadSession(dataclasses.replace(secure, tls_server_name="api.internal"))
    asked = Request(method="GET", path="/resumed", query={}, headers={})
    first = await session.exchange(asked)
    later = await asyncio.gather(session.exchange(asked), session.exchange(asked), session.exchange(asked))
    await session.close()

    assert first.body == b"False"
    # One of the three takes the connection that is there.
    assert sorted(each.body for each in later) == [b"False", b"True", b"True"]


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the server's thread, of the handshake
async def test_a_certificate_for_another_name_is_not_trusted(secure: Connection, kind: type[ThreadSession]) -> None:
    session = kind(secure)
    with pytest.raises(Unreachable, match=r"its certificate is not trusted: .*127\.0\.0\.1"):
        await session.exchange(ASKED)
    await session.close()


async def test_behind_a_proxy_the_session_is_that_of_everything_else() -> None:
    session = brief_session(Connection(server="http://api.internal", proxy_url="http://127.0.0.1:9"))

    assert isinstance(session, AiohttpSession)
    await session.close()
