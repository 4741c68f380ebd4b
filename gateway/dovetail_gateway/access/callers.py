"""Callers of the gateway, and clients of the API server that carry their tokens."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from dovetail.kube.aiohttp_session import AiohttpSession
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.http_session import Answer, Request, Session
from dovetail_gateway.access.tokens import Token

_DEADLINE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose rights a request has: a token's, or those of the gateway's own kubeconfig if `local`; otherwise none.

    `key` identifies the caller in caches and limits.
    """

    key: bytes
    token: Token | None = None
    local: bool = False

    @property
    def expires_at(self) -> float | None:
        """When the token ends, in seconds since the epoch; None if it does not say."""
        return None if self.token is None else self.token.expires_at


# The user who started the gateway on this machine, for requests without a token where a flag permits them.
LOCAL: Final = Caller(key=b"local", local=True)
# The caller of what needs no token.
ANONYMOUS: Final = Caller(key=b"anonymous")


def caller_of(token: Token) -> Caller:
    """The caller with this token."""
    return Caller(key=token.digest, token=token)


class Clients:
    """Clients of one API server that share its connections. Use it in `async with`.

    None of the gateway's own credentials goes along: the API server prefers a client certificate to a token.
    """

    def __init__(self, connection: Connection, *, own: Client) -> None:
        """`own` is the client of the local user."""
        self.bare = replace(
            connection, client_certificate=None, client_key=None, token=None, token_file=None, token_source=None
        )
        self._own = own
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        self._session = AiohttpSession(self.bare)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def client_for(self, caller: Caller) -> AsyncIterator[Client]:
        """A client that acts as the caller."""
        if caller.local:
            yield self._own
            return
        assert self._session is not None, "use the clients in `async with`"
        assert caller.token is not None, "this caller has no rights"
        lent = _Lent(self._session)
        connection = replace(self.bare, token=caller.token.text)
        async with Client(
            connection, user_agent="dovetail-gateway", deadline_seconds=_DEADLINE_SECONDS, make_session=lambda _: lent
        ) as client:
            yield client


class _Lent:
    """A session whose connections stay open when one client is done."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def exchange(self, request: Request) -> Answer:
        return await self._session.exchange(request)

    def stream(
        self, request: Request, *, silence_seconds: float | None
    ) -> AbstractAsyncContextManager[Answer | AsyncIterator[bytes]]:
        return self._session.stream(request, silence_seconds=silence_seconds)

    async def close(self) -> None:
        """Keep the connections."""
