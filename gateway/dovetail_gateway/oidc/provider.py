"""The OpenID provider: its metadata, and what the gateway asks at its token endpoint. The only I/O of this package."""

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus, urlsplit

import aiohttp
import msgspec
from oauthlib.oauth2 import WebApplicationClient

from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail_gateway.oidc.errors import AwayError, RefusedError
from dovetail_gateway.outgoing import OutgoingClient

_SECONDS: Final = 10.0
# Anybody can begin a sign-in, so that this bounds what the provider is asked.
_FRESH_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
CALLBACK_PATH: Final = "/console/callback"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """The provider, and the client that this gateway is for it.

    - `issuer`: its URL, as its tokens have it
    - `client_id`: the audience that the API server accepts
    - `client_secret`: empty for a public client, which PKCE alone protects
    - `public_url`: where browsers reach this gateway, without a slash at the end
    - `scopes`: what a sign-in asks for
    - `ca_file`: certificates that the provider's is signed with; None for those of the system
    """

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    public_url: str
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    ca_file: Path | None = None

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends the browser back to."""
        return self.public_url + CALLBACK_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What the provider gave: an ID token, and a refresh token if it gives any."""

    id_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Granted(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str = ""
    refresh_token: str = ""


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    error: str
    error_description: str = ""


class Provider(OutgoingClient):
    """Asks one provider. Use it in `async with`. Its methods raise `AwayError` and `RefusedError`."""

    def __init__(self, options: ProviderOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(ca_file=options.ca_file, seconds=_SECONDS)
        self.options = options
        self._clock = clock
        self._client = WebApplicationClient(options.client_id)
        self._metadata: _Metadata | None = None
        self._read_at = -inf
        self._reading: asyncio.Future[_Metadata] | None = None

    async def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to sign in."""
        metadata = await self._fresh()
        url: str = self._client.prepare_request_uri(
            metadata.authorization_endpoint,
            redirect_uri=self.options.redirect_uri,
            scope=list(self.options.scopes),
            state=state,
            code_challenge=self._client.create_code_challenge(verifier, "S256"),
            code_challenge_method="S256",
            nonce=nonce,
        )
        return url

    async def exchange(self, code: str, *, verifier: str) -> Tokens:
        """The tokens for the code that the browser brought."""
        return await self._granted(
            lambda **more: self._client.prepare_request_body(
                code=code, redirect_uri=self.options.redirect_uri, code_verifier=verifier, **more
            )
        )

    async def renew(self, refresh_token: str) -> Tokens:
        """New tokens for a refresh token; a provider that gives no new refresh token leaves the old one valid."""
        tokens = await self._granted(
            lambda include_client_id, **more: self._client.prepare_refresh_body(
                refresh_token=refresh_token,
                **({"client_id": self.options.client_id} if include_client_id else {}),
                **more,
            )
        )
        return tokens if tokens.refresh_token else Tokens(id_token=tokens.id_token, refresh_token=refresh_token)

    async def _granted(self, body: Callable[..., str]) -> Tokens:
        metadata = await self._known()
        headers, more = dict(_FORM), {}
        secret = self.options.client_secret
        in_header = secret and "client_secret_basic" in metadata.token_endpoint_auth_methods_supported
        if in_header:
            headers["Authorization"] = _basic(self.options.client_id, secret=secret)
        elif secret:
            more["client_secret"] = secret
        status, text = await self._ask(
            "POST", url=metadata.token_endpoint, headers=headers, data=body(include_client_id=not in_header, **more)
        )
        if status != HTTPStatus.OK:
            raise self._refusal(status, text=text)
        granted = self._read(text, as_type=_Granted, of=metadata.token_endpoint)
        if not granted.id_token:
            raise RefusedError(says.NO_ID_TOKEN(issuer=self.options.issuer))
        return Tokens(id_token=granted.id_token, refresh_token=granted.refresh_token)

    def _refusal(self, status: int, *, text: bytes) -> RefusedError | AwayError:
        try:
            said = decode(text, as_type=_Error)
        except UnreadableError:
            return AwayError(says.PROVIDER_STATUS(issuer=self.options.issuer, status=status))
        because = f"{said.error}, {said.error_description}" if said.error_description else said.error
        if said.error in {"invalid_client", "unauthorized_client"}:
            return RefusedError(says.CLIENT_NOT_ACCEPTED(client=self.options.client_id, problem=because))
        return RefusedError(says.SIGN_IN_REFUSED(problem=because))

    async def _known(self) -> _Metadata:
        """The provider's metadata, as the last sign-in read them."""
        if self._metadata is None:
            self._metadata = await self._read_metadata()
        return self._metadata

    async def _fresh(self) -> _Metadata:
        """The provider's metadata, at most `_FRESH_SECONDS` old, and read once for all who wait.

        So a provider that is away is named by the console, and not by the browser's own page.
        """
        if self._metadata is not None and self._clock() - self._read_at < _FRESH_SECONDS:
            return self._metadata
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_metadata())
            self._reading.add_done_callback(self._done)
        # The first request may be cancelled while others still wait.
        self._metadata = await asyncio.shield(self._reading)
        self._read_at = self._clock()
        return self._metadata

    def _done(self, read: asyncio.Future[_Metadata]) -> None:
        self._reading = None
        if not read.cancelled():
            # Marks the error as seen where every request that waited is gone.
            read.exception()

    async def _read_metadata(self) -> _Metadata:
        url = self.options.issuer.rstrip("/") + "/.well-known/openid-configuration"
        status, text = await self._ask("GET", url=url, headers={"Accept": "application/json"})
        if status != HTTPStatus.OK:
            raise AwayError(says.URL_STATUS(url=url, status=status))
        found = self._read(text, as_type=_Metadata, of=url)
        if found.issuer != self.options.issuer:
            raise RefusedError(says.URL_OTHER_ISSUER(url=url, issuer=found.issuer))
        for endpoint in (found.authorization_endpoint, found.token_endpoint):
            if urlsplit(endpoint).scheme != "https":
                raise RefusedError(says.URL_PLAIN_ENDPOINT(url=url, endpoint=endpoint))
        return found

    async def _ask(self, method: str, *, url: str, **options: Any) -> tuple[int, bytes]:
        assert self._http is not None, "use the provider in `async with`"
        try:
            async with self._http.request(method, url, allow_redirects=False, **options) as response:
                text = bytearray()
                async for part in response.content.iter_any():
                    text += part
                    if len(text) > _MOST_BYTES:
                        raise AwayError(says.ANSWER_TOO_LARGE(url=url, most_mib=_MOST_BYTES >> 20))
                return response.status, bytes(text)
        except (aiohttp.ClientError, OSError) as error:
            issuer, why = self.options.issuer, str(error)
            late = says.PROVIDER_TOO_LATE(issuer=issuer, seconds=_SECONDS)
            raise AwayError(says.PROVIDER_SILENT(issuer=issuer, problem=why) if why else late) from error

    def _read(self, text: bytes, *, as_type: type[T], of: str) -> T:
        try:
            return decode(text, as_type=as_type)
        except UnreadableError as error:
            raise AwayError(says.ANSWER_UNREADABLE(url=of, problem=error.problem)) from error


def _basic(client_id: str, *, secret: str) -> str:
    # RFC 6749, 2.3.1: both are encoded as in a form first.
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
