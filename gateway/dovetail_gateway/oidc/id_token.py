"""Checks of an ID token that came from the provider's token endpoint. Pure.

The gateway verifies no signature. It got the token from the provider over TLS, which OpenID Connect Core 3.1.3.7 allows
instead, and the API server verifies the signature before the token opens a session.
"""

import base64
from typing import Final

import msgspec

from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail_gateway.oidc.errors import RefusedError

# How far the clocks of the provider and of this machine may differ.
LEEWAY_SECONDS: Final = 60.0


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of an ID token that the gateway checks; times are seconds since the epoch."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    iat: float | None = None
    nbf: float | None = None
    nonce: str = ""
    azp: str = ""


def check(text: str, *, issuer: str, client_id: str, now: float, nonce: str = "", renewed: str = "") -> None:
    """Raise `RefusedError` unless the token is for this client and valid now.

    It must have the `nonce` of its sign-in. Without one, it must be of the same user as the token `renewed`.
    """
    claims = _claims(text)
    if claims.iss != issuer:
        raise RefusedError(says.ID_TOKEN_OTHER_ISSUER(issuer=claims.iss, trusted=issuer))
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    # A token for several clients says in azp which one asked for it.
    if client_id not in audiences or (claims.azp and claims.azp != client_id):
        named = ", ".join(f'"{each}"' for each in audiences)
        raise RefusedError(says.ID_TOKEN_OTHER_CLIENT(audiences=named, client=client_id))
    if nonce and claims.nonce != nonce:
        raise RefusedError(says.ID_TOKEN_OTHER_SIGN_IN())
    if renewed and claims.sub != _claims(renewed).sub:
        raise RefusedError(says.ID_TOKEN_OTHER_USER())
    _check_times(claims, now=now)


def _check_times(claims: Claims, *, now: float) -> None:
    if claims.exp + LEEWAY_SECONDS <= now:
        raise RefusedError(says.ID_TOKEN_EXPIRED(seconds=round(now - claims.exp)))
    begins = max(claims.nbf or 0.0, claims.iat or 0.0)
    if begins - LEEWAY_SECONDS > now:
        raise RefusedError(says.ID_TOKEN_EARLY(seconds=round(begins - now)))


def _claims(text: str) -> Claims:
    parts = text.split(".")
    if len(parts) != 3:
        raise RefusedError(says.ID_TOKEN_NO_JWT())
    try:
        return decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), as_type=Claims)
    except UnreadableError as error:
        raise RefusedError(says.ID_TOKEN_UNREADABLE(problem=error.problem)) from error
    except ValueError as error:
        raise RefusedError(says.ID_TOKEN_NO_BASE64()) from error
