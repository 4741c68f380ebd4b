"""One-time codes: a command shows one, and one browser signs in with it as the command's user. In memory only.

A code is bound to the first browser that asks with it, by a random word in that browser's cookie. It is kept as a
digest, lives two minutes, and opens one session.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.reasons import problems as says
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.places import Bounds, FullError, FullSays, Holder, check

CODE_SECONDS: Final = 120.0
BOUNDS: Final = Bounds(all=1_000, address=100)
_FULL: Final = FullSays(of_address=says.CODES_OF_ADDRESS, in_all=says.CODES_IN_ALL)
_MOST_OF_ONE: Final = 8
# Crockford's alphabet has no letters that look like digits. Ten characters have 50 bits, and at most 120,000 requests
# come within the life of a code.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTERS: Final = 10
_TYPED: Final = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    caller: Caller
    holder: Holder
    ends_at: float
    browser: bytes = b""


class Codes:
    """Gives out codes, binds and redeems them. `clock` counts seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[bytes, _Code] = {}

    def issue(self, caller: Caller, *, holder: Holder) -> str:
        """Return a code for the caller, such as `7KXQ2-M4TPD`. Raises `FullError`."""
        now = self._clock()
        self._codes = {key: each for key, each in self._codes.items() if each.ends_at > now}
        if sum(each.holder.user == holder.user for each in self._codes.values()) >= _MOST_OF_ONE:
            raise FullError(says.CODES_UNUSED(user=holder.user, count=_MOST_OF_ONE))
        check((each.holder for each in self._codes.values()), new=holder, bounds=BOUNDS, says=_FULL)
        text = "".join(secrets.choice(_ALPHABET) for _ in range(_CHARACTERS))
        self._codes[_key(text)] = _Code(caller=caller, holder=holder, ends_at=now + CODE_SECONDS)
        return f"{text[:5]}-{text[5:]}"

    def bind(self, code: str, *, browser: str) -> Caller | None:
        """Bind a code to the browser with this word, and return whose it is.

        None for a code that is used, too old, unknown, or bound to another browser. The browser gets as much time again
        to answer who it wants to be.
        """
        key, now = _key(code), self._clock()
        found = self._codes.get(key)
        if found is None or found.ends_at <= now or found.browser not in {b"", _digest(browser)}:
            return None
        if not found.browser:
            self._codes[key] = replace(found, browser=_digest(browser), ends_at=now + CODE_SECONDS)
        return found.caller

    def redeem(self, code: str, *, browser: str) -> Caller | None:
        """Return whose code it is, once; None unless it is bound to this browser."""
        found = self._codes.get(_key(code))
        if found is None or found.ends_at <= self._clock() or found.browser != _digest(browser):
            return None
        del self._codes[_key(code)]
        return found.caller


def _key(code: str) -> bytes:
    """A typed code may have small letters, and others in place of digits."""
    return _digest(code.upper().translate(_TYPED))


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
