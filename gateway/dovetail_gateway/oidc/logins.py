"""Sign-ins at the provider, from the browser's first request to the code that it brings back.

The gateway keeps nothing of a sign-in that has begun, so that no number of them pushes another one out. `state` says
when the sign-in ends, and is signed together with a random word in the cookie of the browser that began it. Nonce and
PKCE verifier are derived from it with the same key, which this process alone has.
"""

import base64
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.reasons import problems as says
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.oidc import id_token
from dovetail_gateway.oidc.errors import RefusedError
from dovetail_gateway.oidc.provider import Provider

LOGIN_SECONDS: Final = 600.0
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Who signed in, and the token that renews the session."""

    caller: Caller
    refresh_token: str = field(repr=False)


class Logins:
    """Begins and finishes sign-ins. `clock` counts seconds since the epoch, as tokens do."""

    def __init__(self, provider: Provider, *, clock: Callable[[], float] = time.time) -> None:
        self.provider = provider
        self._clock = clock
        self._key = secrets.token_bytes(_RANDOM_BYTES)

    async def begin(self, *, browser: str) -> str:
        """Return where the browser with this word in its cookie goes to sign in. Raises `SignOnError`."""
        about = f"{secrets.token_urlsafe(_RANDOM_BYTES)}.{self._clock() + LOGIN_SECONDS:.0f}"
        return await self.provider.authorization_url(
            state=f"{about}.{self._signed('state', about=about, browser=browser)}",
            nonce=self._signed("nonce", about=about, browser=browser),
            verifier=self._signed("verifier", about=about, browser=browser),
        )

    async def finish(self, *, state: str, browser: str, code: str, error: str) -> Finished:
        """Exchange what the provider sent with the browser. Raises `SignOnError`."""
        about, _, signature = state.rpartition(".")
        signed = self._signed("state", about=about, browser=browser)
        if not browser or not hmac.compare_digest(signature.encode(), signed.encode()):
            raise RefusedError(says.SIGN_IN_ELSEWHERE())
        if float(about.rpartition(".")[2]) <= self._clock():
            raise RefusedError(says.SIGN_IN_TOO_LONG(minutes=round(LOGIN_SECONDS / 60)))
        if error or not code:
            raise RefusedError(says.SIGN_IN_REFUSED(problem=error) if error else says.SIGN_IN_WITHOUT_CODE())
        tokens = await self.provider.exchange(code, verifier=self._signed("verifier", about=about, browser=browser))
        options = self.provider.options
        id_token.check(
            tokens.id_token,
            issuer=options.issuer,
            client_id=options.client_id,
            nonce=self._signed("nonce", about=about, browser=browser),
            now=self._clock(),
        )
        return Finished(caller=caller_of(token_of(tokens.id_token)), refresh_token=tokens.refresh_token)

    def _signed(self, purpose: str, *, about: str, browser: str) -> str:
        """43 characters, as many as RFC 7636 asks of a verifier."""
        message = f"{purpose}\0{about}\0{browser}".encode()
        return base64.urlsafe_b64encode(hmac.digest(self._key, message, "sha256")).decode().rstrip("=")
