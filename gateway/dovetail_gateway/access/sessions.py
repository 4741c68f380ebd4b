"""Sessions of browsers: who signed in, in memory only. Tokens go to the API server and their provider alone.

A session's id is a random cookie, and a ticket is a random word that opens one session. Both are kept as digests, so
that neither is in a dump of the memory. A restart of the gateway ends all sessions.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from dovetail_gateway.access.callers import Caller

# A session without requests ends. One whose token says when it ends, ends with it at the latest.
IDLE_SECONDS: Final = 8 * 3600.0
TICKET_SECONDS: Final = 600.0
_MOST_SESSIONS: Final = 10_000
_MOST_OF_ONE: Final = 32
_MOST_TICKETS: Final = 1_000
_RANDOM_BYTES: Final = 32
# A token is renewed this long before its end, or after half its life if that is later.
_RENEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session: whose it is, when it was used last, and what renews its token from `renew_at` on."""

    caller: Caller
    used_at: float
    refresh_token: str = field(default="", repr=False)
    renew_at: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ticket:
    caller: Caller
    ends_at: float


class Sessions:
    """Opens, finds and closes sessions. `clock` counts seconds since the epoch, as tokens do."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # The least recently used first.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._tickets: OrderedDict[bytes, _Ticket] = OrderedDict()

    def issue_ticket(self, caller: Caller) -> str:
        """Return a word that opens one session of the caller within `TICKET_SECONDS`."""
        ticket = secrets.token_urlsafe(_RANDOM_BYTES)
        self._tickets[_digest(ticket)] = _Ticket(caller=caller, ends_at=self._clock() + TICKET_SECONDS)
        if len(self._tickets) > _MOST_TICKETS:
            self._tickets.popitem(last=False)
        return ticket

    def redeem(self, ticket: str) -> Caller | None:
        """Return the ticket's caller, once; None for a ticket that is used, too old or unknown."""
        found = self._tickets.pop(_digest(ticket), None)
        return found.caller if found is not None and found.ends_at > self._clock() else None

    def open(self, caller: Caller, *, refresh_token: str = "") -> str:
        """Open a session and return its id. Beyond the limits, the one that was not used for longest ends."""
        own = [key for key, each in self._sessions.items() if each.caller.key == caller.key]
        for oldest in own[: max(0, len(own) + 1 - _MOST_OF_ONE)]:
            del self._sessions[oldest]
        while len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        session = secrets.token_urlsafe(_RANDOM_BYTES)
        self._sessions[_digest(session)] = self._new(caller, refresh_token=refresh_token)
        return session

    def find(self, session: str) -> Session | None:
        """Return a session that has not ended; its token has expired at most where it can be renewed."""
        key, now = _digest(session), self._clock()
        found = self._sessions.get(key)
        if found is None:
            return None
        expired = _has_expired(found.caller, now=now) and not found.refresh_token
        if now - found.used_at > IDLE_SECONDS or expired:
            del self._sessions[key]
            return None
        return found

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
        if key in self._sessions:
            self._sessions[key] = self._new(caller, refresh_token=refresh_token)

    def postpone(self, session: str, *, seconds: float) -> None:
        """Renew an open session's token only after a while."""
        if (found := self._sessions.get(key := _digest(session))) is not None:
            self._sessions[key] = replace(found, renew_at=self._clock() + seconds)

    def close(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(session), None)

    def _new(self, caller: Caller, *, refresh_token: str) -> Session:
        now, ends_at = self._clock(), caller.expires_at
        renew_at = float("inf") if ends_at is None else max(ends_at - _RENEW_SECONDS, (now + ends_at) / 2)
        return Session(caller=caller, used_at=now, refresh_token=refresh_token, renew_at=renew_at)


def _has_expired(caller: Caller, *, now: float) -> bool:
    return caller.expires_at is not None and caller.expires_at <= now


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
