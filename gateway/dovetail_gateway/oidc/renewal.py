"""Sessions whose tokens are renewed at the provider before they end."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from dovetail.logs import get_logger
from dovetail_gateway.access.callers import Caller, caller_of
from dovetail_gateway.access.sessions import Session, Sessions
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.oidc import id_token
from dovetail_gateway.oidc.errors import AwayError, RefusedError
from dovetail_gateway.oidc.provider import Provider

log = get_logger("dovetail.gateway")

# A provider that is away is asked again after this time.
RETRY_SECONDS: Final = 10.0


class RenewedSessions:
    """Finds the caller of a session, with a new token where the old one is about to end.

    `provider` is None without single sign-on. `clock` counts seconds since the epoch, as tokens do.
    """

    def __init__(
        self, sessions: Sessions, *, provider: Provider | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions = sessions
        self._provider = provider
        self._clock = clock
        # A refresh token is good once at many providers, so that two requests must not both use it.
        self._renewing: dict[str, asyncio.Future[None]] = {}

    def holder_of(self, session: str) -> Caller | None:
        """Return whose session it is, without a renewal and without counting it as used; None without a session."""
        found = self._sessions.find(session) if session else None
        return None if found is None else found.caller

    async def caller_of(self, session: str) -> Caller | None:
        """Return the session's caller; None for a session that has ended, or cannot be renewed now."""
        found = self._sessions.find(session)
        if self._provider is not None and found is not None and found.refresh_token and self._due(found):
            renewing = self._renewing.get(session)
            if renewing is None:
                renewing = asyncio.ensure_future(self._renew(session, held=found, provider=self._provider))
                self._renewing[session] = renewing
                renewing.add_done_callback(partial(self._done, session))
            # The first request may be cancelled while others still wait.
            await asyncio.shield(renewing)
        return self._sessions.caller_of(session)

    def _due(self, session: Session) -> bool:
        return session.renew_at <= self._clock()

    def _done(self, session: str, _renewing: asyncio.Future[None]) -> None:
        self._renewing.pop(session, None)

    async def _renew(self, session: str, *, held: Session, provider: Provider) -> None:
        options = provider.options
        try:
            tokens = await provider.renew(held.refresh_token)
            id_token.check(
                tokens.id_token,
                issuer=options.issuer,
                client_id=options.client_id,
                renewed="" if held.caller.token is None else held.caller.token.text,
                now=self._clock(),
            )
        except RefusedError as error:
            log.info("a session is not renewed", reason=str(error))
            # It ends with the token that it has.
            self._sessions.keep(session, caller=held.caller)
        except AwayError as error:
            log.warning("a session is not renewed yet", reason=str(error))
            self._sessions.postpone(session, seconds=RETRY_SECONDS)
        else:
            caller = caller_of(token_of(tokens.id_token))
            self._sessions.keep(session, caller=caller, refresh_token=tokens.refresh_token)
