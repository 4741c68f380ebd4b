"""Checks of an ID token that came from the provider's token endpoint. Pure.

The gateway verifies no signature. It got the token from the provider over TLS, which OpenID Connect Core 3.1.3.7 allows
instead, and the API server verifies the signature before the token opens a session.
"""

import base64
from typing import Final

import msgspec

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
        raise RefusedError(f'the ID token is of the issuer "{claims.iss}", and this gateway trusts "{issuer}"')
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    # A token for several clients says in azp which one asked for it.
    if client_id not in audiences or (claims.azp and claims.azp != client_id):
        named = ", ".join(f'"{each}"' for each in audiences)
        raise RefusedError(f'the ID token is for {named}, and this gateway is the client "{client_id}"')
    if nonce and claims.nonce != nonce:
        raise RefusedError("the ID token answers another sign-in: its nonce differs")
    if renewed and claims.sub != _claims(renewed).sub:
        raise RefusedError("the renewed ID token is of another user")
    _check_times(claims, now=now)


def _check_times(claims: Claims, *, now: float) -> None:
    clocks = "compare the clocks of the provider and of the gateway"
    if claims.exp + LEEWAY_SECONDS <= now:
        raise RefusedError(f"the ID token expired {now - claims.exp:.0f} s ago: {clocks}")
    begins = max(claims.nbf or 0.0, claims.iat or 0.0)
    if begins - LEEWAY_SECONDS > now:
        raise RefusedError(f"the ID token is valid only in {begins - now:.0f} s: {clocks}")


def _claims(text: str) -> Claims:
    parts = text.split(".")
    if len(parts) != 3:
        raise RefusedError("the provider's ID token cannot be read: it is no JWT")
    try:
        return decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), as_type=Claims)
    except UnreadableError as error:
        raise RefusedError(f"the provider's ID token cannot be read: {error.problem}") from error
    except ValueError as error:
        raise RefusedError("the provider's ID token cannot be read: it is not Base64") from error
