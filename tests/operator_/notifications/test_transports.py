"""Letters over real sockets: an SMTP server, and a listener of HTTP."""

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiosmtpd.smtp import AuthResult, LoginPassword

from dovetail_operator.notifications.messages import Letter
from dovetail_operator.notifications.transports import SendError, sender_of
from tests.operator_ import mail

LETTER = Letter(
    id="uid-x/Failed", to=["ada@example.org"], subject="Job 7 (train) has failed", text="Job 7 (train) has failed.\n",
    facts={"event": "Failed", "number": 7},
)  # fmt: skip


async def send(url: str, letter: Letter = LETTER) -> None:
    await sender_of(url, sender="dovetail@example.org").send(letter)


async def test_a_mail_comes_to_all_its_addresses_with_an_id_that_stays_the_same() -> None:
    async with mail.serving() as box:
        await send(f"smtp://127.0.0.1:{box.port}")
        await send(f"smtp://127.0.0.1:{box.port}")
    first, again = box.mails
    assert (first["From"], first["To"], first["Subject"]) == (
        "dovetail@example.org", "ada@example.org", "Job 7 (train) has failed",
    )  # fmt: skip
    assert first.get_content().splitlines() == LETTER.text.splitlines()
    assert first["Message-ID"] == again["Message-ID"] == "<uid-x.Failed@dovetail.dev>"


@pytest.mark.parametrize(("answer", "final"), [("451 later", False), ("550 never", True)])
async def test_a_server_that_refuses_says_whether_for_good(answer: str, final: bool) -> None:
    async with mail.serving() as box:
        box.answers = [answer]
        with pytest.raises(SendError, match=f"127.0.0.1:{box.port} answered {answer[:3]}") as refused:
            await send(f"smtp://127.0.0.1:{box.port}")
    assert refused.value.final is final


async def test_an_address_that_is_refused_is_named() -> None:
    async with mail.serving() as box:
        box.refuses = {"ada@example.org": "550 no such user"}
        with pytest.raises(SendError, match=r"refuses ada@example\.org") as refused:
            await send(f"smtp://127.0.0.1:{box.port}")
    assert refused.value.final


async def test_a_server_that_is_away_may_come_back() -> None:
    async with mail.serving() as box:
        port = box.port
    with pytest.raises(SendError, match=f"127.0.0.1:{port}: ") as refused:
        await send(f"smtp://127.0.0.1:{port}")
    assert not refused.value.final


async def test_a_letter_to_nobody_is_told_at_once() -> None:
    nobody = Letter(id="x", to=[], subject="s", text="t", facts={})
    with pytest.raises(SendError, match=r"spec\.notify names no mail address") as refused:
        await send("smtp://127.0.0.1:1", nobody)
    assert refused.value.final


async def test_a_password_goes_by_tls_alone() -> None:
    async with mail.serving() as box:
        with pytest.raises(SendError, match="it has no TLS, and the password is sent only with TLS") as refused:
            await send(f"smtp://ada:secret@127.0.0.1:{box.port}")
    assert refused.value.final
    assert "secret" not in str(refused.value)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate, which clients of this process trust."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def test_with_starttls_the_password_is_given(tls: ssl.SSLContext) -> None:
    given: list[Any] = []

    def authenticator(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: LoginPassword) -> AuthResult:
        given.append((data.login, data.password))
        return AuthResult(success=data.password == b"s3:cret", handled=False)

    async with mail.serving(tls_context=tls, authenticator=authenticator, auth_required=True) as box:
        await send(f"smtp://ada:s3%3Acret@127.0.0.1:{box.port}")
        assert box.subjects == ["Job 7 (train) has failed"]
        with pytest.raises(SendError, match="answered 535") as refused:
            await send(f"smtp://ada:wrong@127.0.0.1:{box.port}")
    assert given[0] == (b"ada", b"s3:cret")
    assert refused.value.final


async def test_a_server_whose_certificate_nobody_vouches_for_gets_nothing(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with mail.serving(tls_context=tls) as box:
        with pytest.raises(SendError, match="CERTIFICATE_VERIFY_FAILED"):
            await send(f"smtp://127.0.0.1:{box.port}")
    assert box.mails == []


class Hook:
    """A listener of HTTP that keeps what it gets."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.status = 204
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.headers["Idempotency-Key"], await request.json()))
        return web.Response(status=self.status, headers={"Location": "/elsewhere"} if self.status == 302 else {})


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    found = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.handle)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/services/s3cret"))
        yield found


async def test_a_webhook_gets_the_facts_the_text_and_an_id(hook: Hook) -> None:
    await send(hook.url)
    ((key, body),) = hook.seen
    assert key == body["id"] == "uid-x/Failed"
    assert (body["event"], body["number"], body["to"]) == ("Failed", 7, ["ada@example.org"])
    assert body["text"] == "Job 7 (train) has failed.\n"


@pytest.mark.parametrize(("status", "final"), [(500, False), (429, False), (404, True), (302, True)])
async def test_what_a_webhook_answers_decides_on_another_try(hook: Hook, status: int, final: bool) -> None:
    hook.status = status
    with pytest.raises(SendError, match=f"http://127.0.0.1 answered {status}") as refused:
        await send(hook.url)
    assert refused.value.final is final
    assert "s3cret" not in str(refused.value)
    assert len(hook.seen) == 1


async def test_a_webhook_that_is_away_may_come_back_and_keeps_its_secret() -> None:
    with pytest.raises(SendError, match=r"http://127\.0\.0\.1: ") as refused:
        await send("http://127.0.0.1:1/s3cret")
    assert not refused.value.final
    assert "s3cret" not in str(refused.value)


async def test_without_a_url_nobody_is_told_and_that_is_said() -> None:
    with pytest.raises(SendError, match="no SMTP server or webhook is configured") as refused:
        await send("")
    assert refused.value.final


@pytest.mark.parametrize("url", ["mail.example.org", "ftp://u:secret@x", "smtp://", "smtp://x:99999999", "https:///p"])
def test_a_url_that_cannot_be_used_is_a_sentence_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match="notify_url cannot be used: allowed are smtp://HOST:PORT") as refused:
        sender_of(url, sender="a@x.org")
    assert "secret" not in str(refused.value)


def test_a_secret_does_not_stand_in_what_is_printed_of_a_sender() -> None:
    for url in ("smtps://u:secret@x", "https://x/secret"):
        assert "secret" not in repr(sender_of(url, sender="a@x.org"))
