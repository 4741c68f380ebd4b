"""Requests of pages: their session's cookie, and the checks that no page of another site sent them.

A browser sends cookies with requests that other sites start. `Sec-Fetch-Site` says which site did, and pages cannot
change it. A request that changes something also needs a header of the console, which no form can set.
"""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.oidc.renewal import RenewedSessions
from dovetail_gateway.routing.problems import RequestFailedError

_SESSION: Final = "dovetail"
# Of a browser that has begun to sign in, with a code or at a provider.
_LOGIN: Final = "dovetail-login"
CONSOLE_HEADER: Final = "X-Dovetail-Console"
_LOGIN_SECONDS: Final = 600
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SAME: Final = "same-origin"


def session_of(request: web.Request) -> str:
    """The id in the session's cookie; empty without one."""
    return _cookie(request, name=_SESSION)


def login_of(request: web.Request) -> str:
    """The word in the cookie of a browser that has begun to sign in; empty without one."""
    return _cookie(request, name=_LOGIN)


async def session_caller(request: web.Request, *, sessions: RenewedSessions) -> Caller | None:
    """The caller of the request's session; None without a session. Raises `RequestFailedError` for another site's."""
    session = session_of(request)
    if not session or (caller := await sessions.caller_of(session)) is None:
        return None
    check_page(request)
    return caller


def check_site(request: web.Request) -> None:
    """Raise `RequestFailedError` for a request of another site's page; scripts say of no site that they are of it."""
    site = request.headers.get("Sec-Fetch-Site")
    origin_is_foreign = "Origin" in request.headers and not _is_own_origin(request)
    if site not in {None, "none", _SAME} or (site is None and origin_is_foreign):
        raise _forged(says.OTHER_SITE())


def check_page(request: web.Request) -> None:
    """Raise `RequestFailedError` unless a page of this gateway sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    # Following a link or typing an address can only read, and no other site sees the answer.
    typed = site == "none" and request.method in _SAFE
    if not typed and site != _SAME and (site is not None or not _is_own_origin(request)):
        raise _forged(says.OTHER_PAGE())
    if request.method not in _SAFE and CONSOLE_HEADER not in request.headers:
        raise _forged(says.NEEDS_CONSOLE_HEADER(header=CONSOLE_HEADER))


def keep_session(response: web.Response, *, request: web.Request, session: str) -> None:
    """Set the cookie of a session that was opened for this request."""
    _set_cookie(response, request=request, name=_SESSION, value=session)


def keep_login(response: web.Response, *, request: web.Request, word: str) -> None:
    """Set the cookie of a browser that begins to sign in with this request."""
    _set_cookie(response, request=request, name=_LOGIN, value=word, max_age=_LOGIN_SECONDS)


def forget_session(response: web.Response, *, request: web.Request) -> None:
    """Remove the session's cookie."""
    _forget(response, request=request, name=_SESSION)


def forget_login(response: web.Response, *, request: web.Request) -> None:
    """Remove the cookie of a sign-in that is finished."""
    _forget(response, request=request, name=_LOGIN)


def is_secure(request: web.Request) -> bool:
    """Whether the browser speaks TLS, with the gateway itself or with a proxy in front of it."""
    return request.secure or request.headers.get("Origin", "").startswith("https://")


def is_on_loopback(request: web.Request) -> bool:
    """Whether the browser calls the gateway by a name of its own machine, where no TLS is needed."""
    return request.url.host in _LOOPBACK


def _cookie(request: web.Request, *, name: str) -> str:
    """The value of a cookie that the gateway alone can have set.

    A page of a sibling host, such as `wiki.example.com`, can set any other name for all hosts of `example.com`.
    """
    if found := request.cookies.get(_secure(name)):
        return found
    return request.cookies.get(_plain(name, request=request), "") if is_on_loopback(request) else ""


def _forget(response: web.Response, *, request: web.Request, name: str) -> None:
    response.del_cookie(_secure(name), path="/", secure=True, httponly=True, samesite="Strict")
    response.del_cookie(_plain(name, request=request), path="/", httponly=True, samesite="Strict")


def _set_cookie(
    response: web.Response, *, request: web.Request, name: str, value: str, max_age: int | None = None
) -> None:
    secure = is_secure(request)
    response.set_cookie(
        _secure(name) if secure else _plain(name, request=request),
        value,
        httponly=True,
        secure=secure,
        samesite="Strict",
        path="/",
        max_age=max_age,
    )


def _secure(name: str) -> str:
    """Browsers accept a cookie of this prefix only over TLS, for one host, and for all its paths."""
    return f"__Host-{name}"


def _plain(name: str, *, request: web.Request) -> str:
    """The cookie's name over HTTP. Cookies of one host are shared by its ports, hence the port."""
    return f"{name}-{request.url.port}"


def _is_own_origin(request: web.Request) -> bool:
    """Of a browser without `Sec-Fetch-Site`. The Host header is one of the gateway's: that is checked before."""
    origin = request.headers.get("Origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("Host", "")


def _forged(sentence: Sentence) -> RequestFailedError:
    return RequestFailedError(403, reason="Forbidden", sentence=sentence)
