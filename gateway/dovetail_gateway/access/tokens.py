"""Bearer tokens as callers send them. Pure.

TokenError   an Authorization header that carries no bearer token
"""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError
from dovetail.decoding import UnreadableError, decode

# RFC 6750; a longer one would not fit into the header's limit.
_BEARER: Final = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]{1,30000}=*)")


class TokenError(SaidError):
    """An Authorization header that carries no bearer token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token; `repr` shows none of it.

    `digest` is its SHA-256, the only form in which anything is stored. `expires_at` is what it says itself, in seconds
    since the epoch; None if it does not say. It is not verified: the API server does that, so it can only shorten.
    """

    text: str = field(repr=False)
    digest: bytes
    expires_at: float | None


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None


def token_of(text: str) -> Token:
    """The token of this text."""
    return Token(text=text, digest=hashlib.sha256(text.encode()).digest(), expires_at=_expiry(text))


def bearer(header: str) -> Token:
    """The token of an Authorization header. Raises `TokenError`."""
    found = _BEARER.fullmatch(header.strip())
    if found is None:
        raise TokenError(says.NO_BEARER())
    return token_of(found[1])


def _expiry(text: str) -> float | None:
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return decode(payload, as_type=_Claims).exp
    except (UnreadableError, ValueError):
        return None
