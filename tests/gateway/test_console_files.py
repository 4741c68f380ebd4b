"""The console's files: served by name and hash, within the budget of bytes."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from dovetail_gateway.console import build
from dovetail_gateway.console.serve import Files
from dovetail_gateway.routing.problems import RequestFailedError

BUDGET_BYTES = 250 << 10


async def fetched(folder: Path | None, path: str) -> tuple[int, str]:
    app = web.Application()
    Files(lambda: folder).add_to(app)
    async with TestServer(app) as server, ClientSession() as session, session.get(server.make_url(path)) as answer:
        return answer.status, answer.headers.get("Cache-Control", "")


async def test_hashed_files_are_kept_and_the_page_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1a2b.js").write_text("1")
    (tmp_path / "index.html").write_text("<!doctype html>")
    assert await fetched(tmp_path, "/console/jobs") == (200, "no-cache")
    status, kept = await fetched(tmp_path, "/console/assets/index-1a2b.js")
    assert (status, "immutable" in kept) == (200, True)


async def test_the_page_of_a_browser_with_a_session_asks_for_its_data_in_its_head(tmp_path: Path) -> None:
    plain = "<!doctype html><head></head>"
    (tmp_path / "index.html").write_text(plain)
    app = web.Application()
    Files(lambda: tmp_path, signed_in=lambda request: "session" in request.cookies).add_to(app)
    async with TestServer(app) as server, ClientSession() as session:

        async def page(path: str, **cookies: str) -> str:
            async with session.get(server.make_url(path), cookies=cookies) as answer:
                return await answer.text()

        begun = await page("/console/jobs", session="x")
        assert re.findall(r'<link rel="preload" as="fetch" crossorigin href="([^"]+)">', begun) == [
            "/api/v3/me",
            "/api/v3/snapshot",
        ]
        usage = await page("/console/usage", session="x")
        assert 'href="/api/v3/usage?by=Namespace">' in usage
        assert usage.index("by=Day") < usage.index("/api/v3/snapshot"), "the small answers come first"
        assert "/api/v3/usage" not in await page("/console/usage?days=7", session="x")
        assert 'href="/api/v3/jobs/red/train.1">' in await page("/console/job/red/train.1", session="x")
        assert "/api/v3/devices/then" not in await page("/console/map?at=%22noon", session="x")
        strange = await page("/console/job/red/%22%3E%3Cscript%3E", session="x")
        assert ("/api/v3/jobs" in strange, "<script>" in strange) == (False, False)
        assert await page("/console/jobs") == plain
        # The session that is there is about to be another user's.
        assert await page("/console/callback", session="x") == plain


FILES = {
    "index.html": "<!doctype html>",
    "assets/index-1a2b.js": "let a = 1;" * 500,
    "assets/index-1a2b.css": "a{}",
    "assets/face-3c.woff2": "font",
}


async def test_each_file_has_its_type_and_nothing_else_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    found = dict[str, tuple[int, str, str]]()
    app, built = web.Application(), list[Path]()
    app.middlewares.append(_problems)
    Files(lambda: built[0] if built else None).add_to(app)
    async with TestServer(app) as server, ClientSession() as session:

        async def ask(path: str) -> tuple[int, str, str]:
            async with session.get(server.make_url(path), allow_redirects=False) as answer:
                text = await answer.text()
                return answer.status, answer.headers.get("Location") or answer.headers["Content-Type"], text

        assert (await ask("/console/"))[0] == 503, "it is not built"
        for name, text in FILES.items():
            (tmp_path / name).write_text(text)
        built.append(tmp_path)
        for path in (
            "/",
            "/console",
            "/console/",
            "/console/jobs/red/train",
            "/console/assets/none.js",
            *(f"/console/{name}" for name in FILES),
        ):
            found[path] = await ask(path)
        built.clear()
        assert (await ask("/console/"))[0] == 200, "the files are read once"
    html, script = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
    page = FILES["index.html"]
    assert found["/"][:2] == found["/console"][:2] == (302, "/console/")
    assert found["/console/"] == found["/console/jobs/red/train"] == found["/console/index.html"] == (200, html, page)
    assert found["/console/assets/none.js"][0] == 404
    assert found["/console/assets/index-1a2b.js"] == (200, script, FILES["assets/index-1a2b.js"])
    assert found["/console/assets/index-1a2b.css"] == (200, "text/css; charset=utf-8", "a{}")
    assert found["/console/assets/face-3c.woff2"] == (200, "font/woff2", "font")


@web.middleware
async def _problems(request: web.Request, handler: Callable[[web.Request], Any]) -> Any:
    try:
        return await handler(request)
    except RequestFailedError as error:
        return web.Response(status=error.status, text=error.sentence.message)


def test_all_files_with_the_font_stay_within_the_budget() -> None:
    files = [path for path in build.build().rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".js", ".css", ".woff2", ".html", ".svg"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= BUDGET_BYTES


def test_the_licence_of_the_font_is_among_the_files() -> None:
    licences = [path for path in (build.build() / "assets").iterdir() if path.name.startswith("LICENSE")]
    assert ["SIL OPEN FONT LICENSE" in path.read_text(encoding="utf-8") for path in licences] == [True]


def test_the_lockfile_names_no_registry() -> None:
    lock = (Path(build.__file__).parents[3] / "console" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
