"""How a browser signs in and out: with a one-time code, a pasted token, or at an OpenID provider.

Each door finds a `Caller` and opens a session; nothing after it depends on the door.
"""

import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail.kube.errors import Unauthorized
from dovetail.process.bodies import Bodies
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.codes import CODE_SECONDS, Codes
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.limits import source
from dovetail_gateway.access.places import FullError, Holder
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.sessions import Sessions
from dovetail_gateway.access.tokens import TokenError, bearer
from dovetail_gateway.oidc.errors import AwayError, SignOnError
from dovetail_gateway.oidc.logins import Logins
from dovetail_gateway.oidc.provider import CALLBACK_PATH
from dovetail_gateway.oidc.renewal import RenewedSessions
from dovetail_gateway.routing.browser import (
    check_page,
    forget_login,
    forget_session,
    is_on_loopback,
    is_secure,
    keep_login,
    keep_session,
    login_of,
    session_caller,
    session_of,
)
from dovetail_gateway.routing.problems import RequestFailedError, too_many, unauthorized

SESSION_PATH: Final = "/console/session"
CODE_PATH: Final = "/console/codes"
ARRIVAL_PATH: Final = "/console/arrivals"
LOGIN_PATH: Final = "/console/login"
_MOST_BYTES: Final = 64 << 10
_BODY_SECONDS: Final = 5.0
_RANDOM_BYTES: Final = 32
# Sessions end at any time, most of them after hours.
_FULL_SECONDS: Final = 60.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
T = TypeVar("T")


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a browser signs in with: either a code or a token.

    `instead` says that the user wants the code to end the session that the browser has.
    """

    code: str = ""
    token: str = ""
    instead: bool = False


class Arrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code that a browser has arrived with."""

    code: str


class Arrived(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whom a code signs in, and whose session the browser has: none, the same user's, or another one's."""

    username: str
    signed_in_as: str = ""
    same: bool = False


class FinishLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the provider sent with the browser: its answer to `state`."""

    state: str
    code: str = ""
    error: str = ""


class SessionState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the browser has a session, the doors for one without, and the provider's host if one leads there."""

    signed_in: bool
    doors: tuple[str, ...] = ("code", "token")
    provider: str = ""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Where the browser goes to sign in."""

    url: str


class NewCode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A code, and how long it can be used."""

    code: str
    seconds: float


class Doors:
    """The handlers of signing in and out.

    `address` says where a request comes from. `logins` is None without a provider.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        codes: Codes,
        renewed: RenewedSessions,
        reviews: Reviews,
        address: Callable[[web.Request], str],
        logins: Logins | None,
    ) -> None:
        self._sessions = sessions
        self._codes = codes
        self._renewed = renewed
        self._reviews = reviews
        self._address = address
        self._logins = logins
        self._bodies = Bodies(most_bytes=_MOST_BYTES, memory=1 << 20, seconds=_BODY_SECONDS)

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        app.router.add_get(SESSION_PATH, self.show)
        app.router.add_post(SESSION_PATH, self.sign_in)
        app.router.add_delete(SESSION_PATH, self.sign_out)
        app.router.add_post(CODE_PATH, self.give_code)
        app.router.add_post(ARRIVAL_PATH, self.arrive)
        if self._logins is not None:
            app.router.add_post(LOGIN_PATH, self.begin_login)
            app.router.add_post(CALLBACK_PATH, self.finish_login)

    async def show(self, request: web.Request) -> web.Response:
        """Say whether the browser has a session. Pages also ask this to see whether the gateway answers."""
        return _json(self._state(signed_in=await session_caller(request, sessions=self._renewed) is not None))

    async def arrive(self, request: web.Request) -> web.Response:
        """Bind a code to this browser, and say whom it signs in; the page asks its user before it goes on."""
        _check_door(request)
        asked, browser = await self._read(request, as_type=Arrival), login_of(request) or _word()
        if (caller := self._codes.bind(asked.code, browser=browser)) is None:
            raise unauthorized(says.CODE_NOT_VALID())
        who, had = await self._known(caller, request=request), await self._present(request)
        response = _json(
            Arrived(
                username=who.username,
                signed_in_as="" if had is None else had.username,
                same=had is not None and had.key == who.key,
            )
        )
        keep_login(response, request=request, word=browser)
        return response

    async def sign_in(self, request: web.Request) -> web.Response:
        """Open a session for a token that the API server knows, or for a code that is bound to this browser."""
        _check_door(request)
        asked = await self._read(request, as_type=SignIn)
        if bool(asked.code) == bool(asked.token):
            raise RequestFailedError(422, reason="Invalid", sentence=says.CODE_OR_TOKEN())
        if asked.token:
            caller = _bearer_of(asked.token)
            return self._opened(request, caller=caller, who=await self._known(caller, request=request))
        had = await self._present(request)
        if had is not None and not asked.instead:
            raise RequestFailedError(409, reason="SignedIn", sentence=says.SIGNED_IN_ALREADY(user=had.username))
        if (found := self._codes.redeem(asked.code, browser=login_of(request))) is None:
            raise unauthorized(says.CODE_NOT_VALID())
        return self._opened(request, caller=found, who=await self._known(found, request=request))

    async def begin_login(self, request: web.Request) -> web.Response:
        """Say where the browser signs in at the provider."""
        _check_door(request)
        assert self._logins is not None, "without a provider, no path leads here"
        options = self._logins.provider.options
        if request.headers.get("Host", "").lower() != urlsplit(options.public_url).netloc.lower():
            sentence = says.OTHER_ADDRESS(url=options.public_url)
            raise RequestFailedError(421, reason="Host", sentence=sentence)
        browser = login_of(request) or _word()
        try:
            url = await self._logins.begin(browser=browser)
        except SignOnError as error:
            raise _not_signed_on(error) from error
        response = _json(Login(url=url))
        keep_login(response, request=request, word=browser)
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
            who = await self._reviews.who(done.caller, address=self._address(request))
        except Unauthorized as error:
            raise unauthorized(says.ID_TOKEN_NOT_ACCEPTED(issuer=options.issuer, client=options.client_id)) from error
        response = self._opened(request, caller=done.caller, who=who, refresh_token=done.refresh_token)
        # What the provider sent is of no use again.
        forget_login(response, request=request)
        return response

    async def sign_out(self, request: web.Request) -> web.Response:
        """End the session."""
        check_page(request)
        self._sessions.close(session_of(request))
        response = _json(self._state(signed_in=False))
        forget_session(response, request=request)
        return response

    async def give_code(self, request: web.Request) -> web.Response:
        """Give the bearer of a token a code, so that a command can open a browser without showing the token."""
        try:
            caller = caller_of(bearer(request.headers.get("Authorization", "")))
        except TokenError as error:
            raise unauthorized(error.sentence) from error
        holder = self._holder(request, who=await self._known(caller, request=request))
        try:
            code = self._codes.issue(caller, holder=holder)
        except FullError as error:
            raise too_many(error.sentence, wait_seconds=CODE_SECONDS) from error
        return _json(NewCode(code=code, seconds=CODE_SECONDS))

    def _opened(self, request: web.Request, *, caller: Caller, who: Identity, refresh_token: str = "") -> web.Response:
        """Open a session in place of the one that the browser has."""
        try:
            session = self._sessions.open(
                caller, holder=self._holder(request, who=who), refresh_token=refresh_token, instead=session_of(request)
            )
        except FullError as error:
            raise too_many(error.sentence, wait_seconds=_FULL_SECONDS) from error
        response = _json(self._state(signed_in=True))
        keep_session(response, request=request, session=session)
        return response

    async def _present(self, request: web.Request) -> Identity | None:
        """Of whom the browser has a session; None without one, or with one whose token has ended."""
        caller = await session_caller(request, sessions=self._renewed)
        try:
            return None if caller is None else await self._reviews.who(caller, address=self._address(request))
        except Unauthorized:
            return None

    def _state(self, *, signed_in: bool) -> SessionState:
        if self._logins is None:
            return SessionState(signed_in=signed_in)
        provider = urlsplit(self._logins.provider.options.issuer).netloc
        return SessionState(signed_in=signed_in, doors=("oidc", "code", "token"), provider=provider)

    async def _read(self, request: web.Request, *, as_type: type[T]) -> T:
        async with self._bodies.read(request) as body:
            try:
                return decode(bytes(body), as_type=as_type)
            except UnreadableError as error:
                sentence = says.REQUEST_UNREADABLE(problem=error.problem)
                raise RequestFailedError(422, reason="Invalid", sentence=sentence) from error

    async def _known(self, caller: Caller, *, request: web.Request) -> Identity:
        """Who the caller is. Raises `RequestFailedError` for a token that the API server does not know, `KubeError`."""
        try:
            return await self._reviews.who(caller, address=self._address(request))
        except Unauthorized as error:
            raise unauthorized(says.TOKEN_NOT_ACCEPTED()) from error

    def _holder(self, request: web.Request, *, who: Identity) -> Holder:
        return Holder(user=who.username, address=source(self._address(request)))


def _bearer_of(token: str) -> Caller:
    try:
        return caller_of(bearer(f"Bearer {token.strip()}"))
    except TokenError as error:
        raise unauthorized(says.NO_BEARER_TOKEN()) from error


def _word() -> str:
    """What a cookie has of a browser that begins to sign in."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def _check_door(request: web.Request) -> None:
    """Raise `RequestFailedError` unless a page of this gateway signs in over a private connection."""
    check_page(request)
    if not is_secure(request) and not is_on_loopback(request):
        raise RequestFailedError(403, reason="Plain", sentence=says.NEEDS_HTTPS())


def _not_signed_on(error: SignOnError) -> RequestFailedError:
    if isinstance(error, AwayError):
        return RequestFailedError(502, reason="Provider", sentence=error.sentence)
    return RequestFailedError(403, reason="SignOn", sentence=error.sentence)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=_HEADERS)
