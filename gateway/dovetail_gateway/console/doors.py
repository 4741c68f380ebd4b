"""How a browser signs in and out: with a one-time ticket, a pasted token, or at an OpenID provider.

Each door finds a `Caller` and opens a session; nothing after it depends on the door.
"""

from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail.decoding import UnreadableError, decode
from dovetail.kube.errors import Unauthorized
from dovetail.process.bodies import Bodies
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.sessions import TICKET_SECONDS, Sessions
from dovetail_gateway.access.tokens import TokenError, bearer
from dovetail_gateway.oidc.errors import AwayError, SignOnError
from dovetail_gateway.oidc.logins import LOGIN_SECONDS, Logins
from dovetail_gateway.oidc.provider import CALLBACK_PATH
from dovetail_gateway.oidc.renewal import RenewedSessions
from dovetail_gateway.routing.browser import (
    check_page,
    forget_session,
    is_secure,
    keep_login,
    keep_session,
    login_of,
    session_caller,
    session_of,
)
from dovetail_gateway.routing.problems import RequestFailedError, unauthorized

SESSION_PATH: Final = "/console/session"
TICKET_PATH: Final = "/console/tickets"
LOGIN_PATH: Final = "/console/login"
_MOST_BYTES: Final = 64 << 10
_BODY_SECONDS: Final = 5.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
T = TypeVar("T")


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser signs in with: exactly one of them."""

    ticket: str = ""
    token: str = ""


class BeginLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page of the console to which a sign-in at the provider leads back."""

    page: str = "/console/"


class FinishLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the provider sent with the browser: its answer to `state`."""

    state: str
    code: str = ""
    error: str = ""


class SessionState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the browser has a session, the doors for one without, and the provider's host if one of them leads there.

    `page` is set when a sign-in at the provider is done: where it began.
    """

    signed_in: bool
    doors: tuple[str, ...] = ("token",)
    provider: str = ""
    page: str = ""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Where the browser goes to sign in."""

    url: str


class NewTicket(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ticket, and how long it can be used."""

    ticket: str
    seconds: float


class Doors:
    """The handlers of signing in and out. `logins` is None without a provider."""

    def __init__(
        self, sessions: Sessions, *, renewed: RenewedSessions, reviews: Reviews, logins: Logins | None
    ) -> None:
        self._sessions = sessions
        self._renewed = renewed
        self._reviews = reviews
        self._logins = logins
        self._bodies = Bodies(most_bytes=_MOST_BYTES, memory=1 << 20, seconds=_BODY_SECONDS)

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        app.router.add_get(SESSION_PATH, self.show)
        app.router.add_post(SESSION_PATH, self.sign_in)
        app.router.add_delete(SESSION_PATH, self.sign_out)
        app.router.add_post(TICKET_PATH, self.give_ticket)
        if self._logins is not None:
            app.router.add_post(LOGIN_PATH, self.begin_login)
            app.router.add_post(CALLBACK_PATH, self.finish_login)

    async def show(self, request: web.Request) -> web.Response:
        """Say whether the browser has a session. Pages also ask this to see whether the gateway answers."""
        return _json(self._state(signed_in=await session_caller(request, sessions=self._renewed) is not None))

    async def sign_in(self, request: web.Request) -> web.Response:
        """Open a session for a ticket or a token that the API server knows."""
        _check_door(request)
        caller = self._admitted(await self._read(request, as_type=SignIn))
        await self._known(caller)
        return self._opened(request, caller=caller)

    async def begin_login(self, request: web.Request) -> web.Response:
        """Say where the browser signs in at the provider."""
        _check_door(request)
        assert self._logins is not None, "without a provider, no path leads here"
        options, asked = self._logins.provider.options, await self._read(request, as_type=BeginLogin)
        if request.headers.get("Host", "").lower() != urlsplit(options.public_url).netloc.lower():
            message = f"the provider sends browsers to {options.public_url}: open the console there to sign in"
            raise RequestFailedError(421, reason="Host", message=message)
        if not asked.page.startswith("/console/"):
            raise RequestFailedError(422, reason="Invalid", message=f'page "{asked.page}": must begin with /console/')
        try:
            begun = await self._logins.begin(page=asked.page, browser=login_of(request))
        except SignOnError as error:
            raise _not_signed_on(error) from error
        response = _json(Login(url=begun.url))
        keep_login(response, request=request, word=begun.browser, seconds=LOGIN_SECONDS)
        return response

    async def finish_login(self, request: web.Request) -> web.Response:
        """Open a session for what the provider sent with the browser."""
        _check_door(request)
        assert self._logins is not None, "without a provider, no path leads here"
        sent = await self._read(request, as_type=FinishLogin)
        try:
            done = await self._logins.finish(
                state=sent.state, browser=login_of(request), code=sent.code, error=sent.error
            )
        except SignOnError as error:
            raise _not_signed_on(error) from error
        options = self._logins.provider.options
        try:
            await self._reviews.who(done.caller)
        except Unauthorized as error:
            raise unauthorized(
                f"the API server does not accept the ID token of {options.issuer}: its AuthenticationConfiguration "
                f'must have this issuer with the audience "{options.client_id}"'
            ) from error
        return self._opened(request, caller=done.caller, refresh_token=done.refresh_token, page=done.page)

    async def sign_out(self, request: web.Request) -> web.Response:
        """End the session."""
        check_page(request)
        self._sessions.close(session_of(request))
        response = _json(self._state(signed_in=False))
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

    def _opened(self, request: web.Request, *, caller: Caller, refresh_token: str = "", page: str = "") -> web.Response:
        response = _json(self._state(signed_in=True, page=page))
        self._sessions.close(session_of(request))
        keep_session(response, request=request, session=self._sessions.open(caller, refresh_token=refresh_token))
        return response

    def _state(self, *, signed_in: bool, page: str = "") -> SessionState:
        if self._logins is None:
            return SessionState(signed_in=signed_in)
        provider = urlsplit(self._logins.provider.options.issuer).netloc
        return SessionState(signed_in=signed_in, doors=("oidc", "token"), provider=provider, page=page)

    async def _read(self, request: web.Request, *, as_type: type[T]) -> T:
        async with self._bodies.read(request) as body:
            try:
                return decode(bytes(body), as_type=as_type)
            except UnreadableError as error:
                message = f"the request cannot be read: {error.problem}"
                raise RequestFailedError(422, reason="Invalid", message=message) from error

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


def _check_door(request: web.Request) -> None:
    """Raise `RequestFailedError` unless a page of this gateway signs in over a private connection."""
    check_page(request)
    if not is_secure(request) and request.url.host not in _LOOPBACK:
        raise RequestFailedError(403, reason="Plain", message="signing in needs https, except on this machine")


def _not_signed_on(error: SignOnError) -> RequestFailedError:
    if isinstance(error, AwayError):
        return RequestFailedError(502, reason="Provider", message=str(error))
    return RequestFailedError(403, reason="SignOn", message=str(error))


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=_HEADERS)
