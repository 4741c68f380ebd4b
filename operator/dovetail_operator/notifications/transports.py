"""The transports of notifications: an SMTP server or a webhook, chosen by one URL.

No message or log contains the URL's password or path.
"""

import asyncio
import re
import smtplib
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Final, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp

from dovetail.kube.auth import trust
from dovetail_operator.notifications.messages import Letter

_SECONDS: Final = 20.0
_SMTP_PORT: Final = 25
_SMTPS_PORT: Final = 465
_ALLOWED: Final = "allowed are smtp://HOST:PORT, smtps://HOST:PORT, https://HOST/PATH and http://HOST/PATH"
# Answers that a retry may change: too many requests, or too slow.
_TRIED_AGAIN: Final = frozenset({408, 425, 429})


class SendError(Exception):
    """A message was not sent. `final`: a retry cannot help."""

    def __init__(self, problem: str, *, final: bool) -> None:
        super().__init__(problem)
        self.final = final


class Sender(Protocol):
    """Sends messages. `where` names the receiver, without secrets."""

    @property
    def where(self) -> str:
        """The receiver, for messages and logs."""
        ...

    async def send(self, letter: Letter) -> None:
        """Send a message. Raises `SendError`."""
        ...


def sender_of(url: str, *, sender: str) -> Sender:
    """The sender for that URL, with `sender` as its address.

    Raises `ValueError` for an unusable URL.
    """
    if not url:
        return NoTransport()
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    # The message omits the value, which may contain a password.
    if not parts.hostname or parts.scheme not in {"smtp", "smtps", "http", "https"}:
        raise ValueError(f"notify_url cannot be used: {_ALLOWED}")
    if parts.scheme in {"http", "https"}:
        return Webhook(url=url, where=f"{parts.scheme}://{parts.hostname}")
    return Mail(
        host=parts.hostname,
        port=parts.port or (_SMTPS_PORT if parts.scheme == "smtps" else _SMTP_PORT),
        sender=sender,
        implicit_tls=parts.scheme == "smtps",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTransport:
    """The sender if no transport is configured."""

    where: str = "no receiver"

    async def send(self, letter: Letter) -> None:  # noqa: ARG002 - as others send
        """Raises `SendError`."""
        raise SendError("no SMTP server or webhook is configured (notify_url)", final=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """POSTs each message as JSON."""

    url: str = field(repr=False)
    where: str

    async def send(self, letter: Letter) -> None:
        """Raises `SendError` unless the answer is 2xx."""
        body = {"id": letter.id, "subject": letter.subject, "text": letter.text, "to": list(letter.to), **letter.facts}
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                # A redirect would send the message to a server that is not configured.
                session.post(
                    self.url, json=body, headers={"Idempotency-Key": letter.id}, allow_redirects=False
                ) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            # Its text may contain the URL.
            raise SendError(f"{self.where}: {type(error).__name__}", final=False) from error
        if not 200 <= status < 300:
            raise SendError(f"{self.where} answered {status}", final=status < 500 and status not in _TRIED_AGAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Sends each message by SMTP: with TLS if the server has it, and a password only with TLS."""

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def where(self) -> str:
        """The server."""
        return f"{self.host}:{self.port}"

    async def send(self, letter: Letter) -> None:
        """Raises `SendError` if the server refuses the message."""
        if not letter.to:
            raise SendError("spec.notify names no mail address", final=True)
        try:
            await asyncio.to_thread(self._send, self.message(letter))
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise SendError(f"{self.where} refuses {', '.join(error.recipients)}", final=min(codes) >= 500) from error
        except smtplib.SMTPResponseException as error:
            raise SendError(f"{self.where} answered {error.smtp_code}", final=error.smtp_code >= 500) from error
        except smtplib.SMTPNotSupportedError as error:
            raise SendError(f"{self.where}: {error}", final=True) from error
        except (smtplib.SMTPException, OSError) as error:
            raise SendError(f"{self.where}: {str(error) or type(error).__name__}", final=False) from error

    def message(self, letter: Letter) -> EmailMessage:
        """The message as a mail.

        Its Message-ID is the same when it is sent twice, so mail programs show it once.
        """
        mail = EmailMessage()
        mail["From"] = self.sender
        mail["To"] = ", ".join(letter.to)
        mail["Subject"] = letter.subject
        mail["Date"] = formatdate()
        mail["Message-ID"] = f"<{re.sub(r'[^A-Za-z0-9.-]', '.', letter.id)}@dovetail.dev>"
        # Prevents automatic replies.
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(letter.text)
        return mail

    def _send(self, mail: EmailMessage) -> None:
        context = trust.client_context()
        if self.implicit_tls:
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=_SECONDS, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=_SECONDS)
        with server:
            server.ehlo()
            secret = self.implicit_tls
            if not secret and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                secret = True
            if self.user:
                if not secret:
                    raise smtplib.SMTPNotSupportedError("it has no TLS, and the password is sent only with TLS")
                server.login(self.user, self.password)
            server.send_message(mail)
