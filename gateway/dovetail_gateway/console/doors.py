"""How a browser signs in and out: with a one-time ticket, or with a pasted token.

Each door finds a `Caller` and opens a session; nothing after it depends on the door.
"""

from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.decoding import UnreadableError, decode
from dovetail.kube.errors import Unauthorized
from dovetail.process.bodies import Bodies
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.sessions import TICKET_SECONDS, Sessions
from dovetail_gateway.access.tokens import TokenError, bearer
from dovetail_gateway.routing.browser import (
    check_page,
    forget_session,
    is_secure,
    keep_session,
    session_caller,
    session_of,
)
from dovetail_gateway.routing.problems import RequestFailedError, unauthorized

SESSION_PATH: Final = "/console/session"
TICKET_PATH: Final = "/console/tickets"
_MOST_BYTES: Final = 64 << 10
_BODY_SECONDS: Final = 5.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser signs in with: exactly one of them."""

    ticket: str = ""
    token: str = ""


class SessionState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the browser has a session, and the doors for one without."""

    signed_in: bool
    doors: tuple[str, ...] = ("token",)


class NewTicket(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ticket, and how long it can be used."""

    ticket: str
    seconds: float


class Doors:
    """The handlers of signing in and out."""

    def __init__(self, sessions: Sessions, *, reviews: Reviews) -> None:
        self._sessions = sessions
        self._reviews = reviews
        self._bodies = Bodies(most_bytes=_MOST_BYTES, memory=1 << 20, seconds=_BODY_SECONDS)

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        app.router.add_get(SESSION_PATH, self.show)
        app.router.add_post(SESSION_PATH, self.sign_in)
        app.router.add_delete(SESSION_PATH, self.sign_out)
        app.router.add_post(TICKET_PATH, self.give_ticket)

    async def show(self, request: web.Request) -> web.Response:
        """Say whether the browser has a session. Pages also ask this to see whether the gateway answers."""
        return _json(SessionState(signed_in=session_caller(request, sessions=self._sessions) is not None))

    async def sign_in(self, request: web.Request) -> web.Response:
        """Open a session for a ticket or a token that the API server knows."""
        check_page(request)
        if not is_secure(request) and request.url.host not in _LOOPBACK:
            raise RequestFailedError(403, reason="Plain", message="signing in needs https, except on this machine")
        async with self._bodies.read(request) as body:
            caller = self._admitted(_sign_in(bytes(body)))
        await self._known(caller)
        response = _json(SessionState(signed_in=True))
        self._sessions.close(session_of(request))
        keep_session(response, request=request, session=self._sessions.open(caller))
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        """End the session."""
        check_page(request)
        self._sessions.close(session_of(request))
        response = _json(SessionState(signed_in=False))
        forget_session(response, request=request)
        return response

    async def give_ticket(self, request: web.Request) -> web.Response:
        """Give the bearer of a token a ticket, so that a command can open a browser without showing the token."""
        try:
            caller = caller_of(bearer(request.headers.get("Authorization", "")))
        except TokenError as error:
            raise unauthorized(str(error)) from error
        await self._known(caller)
        return _json(NewTicket(ticket=self._sessions.issue_ticket(caller), seconds=TICKET_SECONDS))

    def _admitted(self, asked: SignIn) -> Caller:
        """The caller of a ticket or a token. Raises `RequestFailedError`."""
        if bool(asked.ticket) == bool(asked.token):
            raise RequestFailedError(422, reason="Invalid", message="send either ticket or token")
        if asked.ticket:
            if (caller := self._sessions.redeem(asked.ticket)) is None:
                raise unauthorized("this link was used already, or is too old: `dovetail console` makes a new one")
            return caller
        try:
            return caller_of(bearer(f"Bearer {asked.token.strip()}"))
        except TokenError as error:
            raise unauthorized("this is no bearer token: `kubectl create token NAME` prints one") from error

    async def _known(self, caller: Caller) -> None:
        """Raise `RequestFailedError` for a token that the API server does not know, and `KubeError`."""
        try:
            await self._reviews.who(caller)
        except Unauthorized as error:
            raise unauthorized("the API server does not accept the token: it may have expired") from error


def _sign_in(body: bytes) -> SignIn:
    try:
        return decode(body, as_type=SignIn)
    except UnreadableError as error:
        message = f"the request cannot be read: {error.problem}"
        raise RequestFailedError(422, reason="Invalid", message=message) from error


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=_HEADERS)
