"""An OpenID provider over TLS that fails as a test says; tests/cluster/test_single_sign_on.py has a real one."""

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from dovetail_gateway.oidc.provider import ProviderOptions
from tests.authority import Authority

CLIENT = "web"


def jwt(claims: dict[str, Any]) -> str:
    """A token with these claims and no real signature: the API server of the tests knows it as a text."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


@dataclass
class OpenIdProvider:
    """What it says. `claims` replace those of an ID token; `answer` replaces the answer of the token endpoint.

    `leads_to` is the path to which such an answer redirects.

    `tokens` are the ID tokens that it gave, `forms` what was sent to the token endpoint.
    """

    issuer: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    answer: tuple[int, Any] | None = None
    leads_to: str = ""
    lifetime: float = 3600.0
    refreshes: bool = True
    nonce: str = ""
    tokens: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    discoveries: int = 0

    async def discovery(self, _request: web.Request) -> web.Response:
        self.discoveries += 1
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
        }
        return web.json_response(found | self.metadata)

    async def token(self, request: web.Request) -> web.Response:
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        self.headers.append(request.headers.get("Authorization", ""))
        if self.answer is not None:
            status, body = self.answer
            headers = {"Location": self.issuer + self.leads_to} if self.leads_to else {}
            return web.Response(
                status=status, text=body if isinstance(body, str) else json.dumps(body), headers=headers
            )
        now = time.time()
        claims = {"iss": self.issuer, "sub": "rita", "aud": CLIENT, "iat": now, "exp": now + self.lifetime}
        given = jwt(claims | {"nonce": self.nonce, "jti": len(self.tokens)} | self.claims)
        self.tokens.append(given)
        refresh = {"refresh_token": f"refresh-{len(self.tokens)}"} if self.refreshes else {}
        return web.json_response({"token_type": "Bearer", "access_token": "x", "id_token": given, **refresh})

    def answered(self, url: str, *, error: str = "") -> dict[str, str]:
        """What the browser brings back from this authorization URL."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.nonce = asked["nonce"]
        return {"state": asked["state"], **({"error": error} if error else {"code": "the-code"})}


@asynccontextmanager
async def provider(folder: Path) -> AsyncIterator[OpenIdProvider]:
    """A provider on a port of its own; `folder` gets its certificates."""
    authority, said = Authority(), OpenIdProvider()
    pair = authority.sign("127.0.0.1").write(folder, authority=authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", said.discovery)
    app.router.add_post("/token", said.token)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        said.issuer = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield said
    finally:
        await runner.cleanup()


def options_for(said: OpenIdProvider, *, folder: Path, public_url: str, secret: str = "s:ecret") -> ProviderOptions:
    """A gateway's options for this provider."""
    return ProviderOptions(
        issuer=said.issuer,
        client_id=CLIENT,
        client_secret=secret,
        public_url=public_url,
        ca_file=folder / "ca.crt",
    )
