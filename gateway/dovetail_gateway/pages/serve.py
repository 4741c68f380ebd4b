"""Serves openapi.json and the page that shows it."""

from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

_TYPES: Final = {"docs.html": "text/html", "docs.css": "text/css", "docs.js": "text/javascript"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def add_pages(app: web.Application, *, document: dict[str, Any]) -> None:
    """Add `/openapi.json` and `/api/docs`."""
    text = msgspec.json.encode(document)

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="application/json", headers={"Cache-Control": "no-cache"})

    async def docs(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/api/docs/docs.html")

    app.router.add_get("/openapi.json", openapi)
    app.router.add_get("/api/docs", docs)
    for name in _TYPES:
        app.router.add_get(f"/api/docs/{name}", _file(name))


def _file(name: str) -> Any:
    body = resources.files(__package__).joinpath(name).read_bytes()

    async def serve(_request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
        return web.Response(body=body, content_type=_TYPES[name], charset="utf-8", headers=headers)

    return serve
