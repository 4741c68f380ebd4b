"""Sign-ins that a browser has begun and not finished yet.

A sign-in is bound to the browser that began it by a random word in a cookie, and to the provider's answer by `state`
and `nonce`. Each can be finished once.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from oauthlib.oauth2 import WebApplicationClient

from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.oidc import id_token
from dovetail_gateway.oidc.errors import RefusedError
from dovetail_gateway.oidc.provider import Provider

LOGIN_SECONDS: Final = 600.0
_MOST_LOGINS: Final = 1_000
_RANDOM_BYTES: Final = 32
# RFC 7636 allows 43 to 128 characters.
_VERIFIER_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Where the browser goes, and the word that it must bring back."""

    url: str
    browser: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Who signed in, the token that renews the session, and the page from which the sign-in began."""

    caller: Caller
    refresh_token: str = field(repr=False)
    page: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    browser: bytes
    nonce: str
    verifier: str
    page: str
    ends_at: float


class Logins:
    """Begins and finishes sign-ins. `clock` counts seconds since the epoch, as tokens do."""

    def __init__(self, provider: Provider, *, clock: Callable[[], float] = time.time) -> None:
        self.provider = provider
        self._clock = clock
        # The oldest first.
        self._logins: OrderedDict[bytes, _Login] = OrderedDict()

    async def begin(self, *, page: str, browser: str = "") -> Begun:
        """Begin a sign-in; `browser` is the word that the browser has of another one. Raises `SignOnError`."""
        browser = browser or secrets.token_urlsafe(_RANDOM_BYTES)
        state, nonce = secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES)
        verifier: str = WebApplicationClient("").create_code_verifier(_VERIFIER_CHARACTERS)
        url = await self.provider.authorization_url(state=state, nonce=nonce, verifier=verifier)
        ends_at = self._clock() + LOGIN_SECONDS
        self._logins[_digest(state)] = _Login(
            browser=_digest(browser), nonce=nonce, verifier=verifier, page=page, ends_at=ends_at
        )
        if len(self._logins) > _MOST_LOGINS:
            self._logins.popitem(last=False)
        return Begun(url=url, browser=browser)

    async def finish(self, *, state: str, browser: str, code: str, error: str) -> Finished:
        """Exchange what the provider sent with the browser. Raises `SignOnError`."""
        login = self._logins.pop(_digest(state), None)
        if login is None or not hmac.compare_digest(login.browser, _digest(browser)):
            raise RefusedError("this sign-in did not begin in this browser, or is finished already: sign in again")
        if login.ends_at <= self._clock():
            raise RefusedError(f"the sign-in took longer than {LOGIN_SECONDS / 60:.0f} minutes: sign in again")
        if error or not code:
            raise RefusedError(f"the provider refuses the sign-in: {error or 'it sent no code'}")
        tokens = await self.provider.exchange(code, verifier=login.verifier)
        options = self.provider.options
        id_token.check(
            tokens.id_token,
            issuer=options.issuer,
            client_id=options.client_id,
            nonce=login.nonce,
            now=self._clock(),
        )
        return Finished(
            caller=caller_of(token_of(tokens.id_token)), refresh_token=tokens.refresh_token, page=login.page
        )


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
