"""Serves the console's files. Every path below `/console/` that names no file is the page, which reads the path."""

import html
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from aiohttp import web

from dovetail.api.reasons import problems as says
from dovetail_gateway.console import build
from dovetail_gateway.oidc.provider import CALLBACK_PATH
from dovetail_gateway.routing.problems import RequestFailedError

PATH: Final = "/console/"
PACKAGED: Final = Path(__file__).parent / "assets"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_END_OF_HEAD: Final = b"</head>"
# The answers that every page begins with. The browser asks for them while it reads the script.
_ME: Final = "/api/v3/me"
_SNAPSHOT: Final = "/api/v3/snapshot"
# What a page asks for in addition, by its name, as it writes it: these answers are small, so they come before the
# snapshot. A page with one of these parameters asks for something else.
_OF_PAGES: Final[Mapping[str, Sequence[str]]] = {
    "": ("/api/v3/findings",),
    "overview": ("/api/v3/findings",),
    "plan": ("/api/v3/plan?bounded=true&limit=1000",),
    "quotas": ("/api/v3/quotas",),
    "usage": ("/api/v3/usage?by=Namespace", "/api/v3/usage?by=Day"),
    "waste": ("/api/v3/right-sizes?limit=100",),
}
_OTHERWISE: Final = frozenset({"by", "days"})
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_JOB: Final = re.compile(r"job/([a-z0-9.-]+)/([a-z0-9.-]+)")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    kind: str


def folder() -> Path | None:
    """Where the built files are: in the installed package, or for a checkout in the cache; None if nowhere."""
    if PACKAGED.is_dir():
        return PACKAGED
    found = build.target()
    return found if found is not None and found.is_dir() else None


class Files:
    """The built files, read at the first request that finds them.

    `signed_in` says whether a request comes from a browser with a session: its page asks for its data at once.
    """

    def __init__(
        self,
        find: Callable[[], Path | None] = folder,
        *,
        signed_in: Callable[[web.Request], bool] = lambda _: False,
    ) -> None:
        self._find = find
        self._signed_in = signed_in
        self._files: Mapping[str, _File] = {}

    def add_to(self, app: web.Application) -> None:
        """Add the paths."""
        app.router.add_get("/", self.to_page)
        app.router.add_get("/console", self.to_page)
        app.router.add_get("/console/assets/{name}", self.asset)
        app.router.add_get("/console/{page:.*}", self.page)

    async def to_page(self, _request: web.Request) -> web.Response:
        """Lead to the page."""
        raise web.HTTPFound(PATH)

    async def page(self, request: web.Request) -> web.Response:
        """The page."""
        found = self._all().get("index.html")
        if found is None:
            raise RequestFailedError(503, reason="NotBuilt", sentence=says.NOT_BUILT())
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        # A provider sends a browser back with another user's session to come.
        at_once = request.path != CALLBACK_PATH and self._signed_in(request)
        body = found.content
        if at_once:
            asked = [_ME, *_own_answers(request.match_info.get("page", ""), query=request.query), _SNAPSHOT]
            body = body.replace(_END_OF_HEAD, b"".join(map(_preload, asked)) + _END_OF_HEAD, 1)
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)

    async def asset(self, request: web.Request) -> web.Response:
        """A file whose name has its content's hash."""
        found = self._all().get(f"assets/{request.match_info['name']}")
        if found is None:
            raise RequestFailedError(404, reason="NotFound", sentence=says.NO_SUCH_FILE())
        headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        response = web.Response(body=found.content, headers=headers)
        response.content_type = found.kind
        if found.kind.startswith("text/"):
            response.charset = "utf-8"
        response.enable_compression()
        return response

    def _all(self) -> Mapping[str, _File]:
        if not self._files and (place := self._find()) is not None:
            self._files = {
                str(path.relative_to(place)): _File(path.read_bytes(), _kind(path))
                for path in place.rglob("*")
                if path.is_file()
            }
        return self._files


def _own_answers(page: str, *, query: Mapping[str, str]) -> Sequence[str]:
    """The answers that this page asks for."""
    if page == "map" and _TIME.fullmatch(at := query.get("at", "")):
        return [f"/api/v3/devices/then?at={quote(at, safe='')}"]
    if (job := _JOB.fullmatch(page)) is not None:
        return [f"/api/v3/jobs/{job[1]}/{job[2]}"]
    return () if _OTHERWISE & set(query) else _OF_PAGES.get(page, ())


def _preload(path: str) -> bytes:
    return f'<link rel="preload" as="fetch" crossorigin href="{html.escape(path)}">'.encode()


def _kind(path: Path) -> str:
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"
