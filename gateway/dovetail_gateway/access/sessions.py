"""Sessions of browsers: who signed in, in memory only. Tokens go to the API server and their provider alone.

A session's id is a random cookie, kept as a digest, so that it is not in a dump of the memory. A restart of the gateway
ends all sessions.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from dovetail.api.reasons import problems as says
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.places import Bounds, FullError, FullSays, Holder, check

# A session without requests ends. One whose token says when it ends, ends with it at the latest.
IDLE_SECONDS: Final = 8 * 3600.0
# An Ingress without the addresses of its clients is one address.
BOUNDS: Final = Bounds(all=10_000, address=2_000)
_FULL: Final = FullSays(of_address=says.SESSIONS_OF_ADDRESS, in_all=says.SESSIONS_IN_ALL)
_MOST_OF_ONE: Final = 32
_RANDOM_BYTES: Final = 32
# A token is renewed this long before its end, or after half its life if that is later.
_RENEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session: whose it is, when it was used last, and what renews its token from `renew_at` on."""

    caller: Caller
    holder: Holder
    used_at: float
    refresh_token: str = field(default="", repr=False)
    renew_at: float = float("inf")


class Sessions:
    """Opens, finds and closes sessions. `clock` counts seconds since the epoch, as tokens do."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # The least recently used first.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def open(self, caller: Caller, *, holder: Holder, refresh_token: str = "", instead: str = "") -> str:
        """Open a session, end the session `instead`, and return the new id.

        Beyond the limit of one user, that user's least recently used session ends. Raises `FullError` if the table is
        full: no other user's session ends.
        """
        kept = self._without(instead, holder=holder)
        try:
            check((each.holder for each in kept.values()), new=holder, bounds=BOUNDS, says=_FULL)
        except FullError:
            kept = OrderedDict((key, each) for key, each in kept.items() if not self._has_ended(each))
            check((each.holder for each in kept.values()), new=holder, bounds=BOUNDS, says=_FULL)
        self._sessions = kept
        session = secrets.token_urlsafe(_RANDOM_BYTES)
        self._sessions[_digest(session)] = self._new(caller, holder=holder, refresh_token=refresh_token)
        return session

    def _without(self, instead: str, *, holder: Holder) -> OrderedDict[bytes, Session]:
        """The sessions that stay if the holder gets another one."""
        kept = self._sessions.copy()
        kept.pop(_digest(instead), None)
        own = [key for key, each in kept.items() if each.holder.user == holder.user]
        for oldest in own[: max(0, len(own) + 1 - _MOST_OF_ONE)]:
            del kept[oldest]
        return kept

    def find(self, session: str) -> Session | None:
        """Return a session that has not ended; its token has expired at most where it can be renewed."""
        key = _digest(session)
        found = self._sessions.get(key)
        if found is None:
            return None
        if self._has_ended(found):
            del self._sessions[key]
            return None
        return found

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        expired = _has_expired(session.caller, now=now) and not session.refresh_token
        return now - session.used_at > IDLE_SECONDS or expired

    def caller_of(self, session: str) -> Caller | None:
        """Return the session's caller; None for a session that has ended, or waits for a new token."""
        found, now = self.find(session), self._clock()
        if found is None or _has_expired(found.caller, now=now):
            return None
        key = _digest(session)
        self._sessions[key] = replace(found, used_at=now)
        self._sessions.move_to_end(key)
        return found.caller

    def keep(self, session: str, *, caller: Caller, refresh_token: str = "") -> None:
        """Give an open session another token; without a refresh token, it ends with this one."""
        key = _digest(session)
        if (found := self._sessions.get(key)) is not None:
            self._sessions[key] = self._new(caller, holder=found.holder, refresh_token=refresh_token)

    def postpone(self, session: str, *, seconds: float) -> None:
        """Renew an open session's token only after a while."""
        if (found := self._sessions.get(key := _digest(session))) is not None:
            self._sessions[key] = replace(found, renew_at=self._clock() + seconds)

    def close(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(session), None)

    def _new(self, caller: Caller, *, holder: Holder, refresh_token: str) -> Session:
        now, ends_at = self._clock(), caller.expires_at
        renew_at = float("inf") if ends_at is None else max(ends_at - _RENEW_SECONDS, (now + ends_at) / 2)
        return Session(caller=caller, holder=holder, used_at=now, refresh_token=refresh_token, renew_at=renew_at)


def _has_expired(caller: Caller, *, now: float) -> bool:
    return caller.expires_at is not None and caller.expires_at <= now


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
