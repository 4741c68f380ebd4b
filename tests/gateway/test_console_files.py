"""The console's files: served by name and hash, within the budget of bytes."""

import gzip
from pathlib import Path

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from dovetail_gateway.console import build
from dovetail_gateway.console.serve import Files

BUDGET_BYTES = 120 << 10


async def fetched(folder: Path | None, path: str) -> tuple[int, str]:
    app = web.Application()
    Files(lambda: folder).add_to(app)
    async with TestServer(app) as server, ClientSession() as session, session.get(server.make_url(path)) as answer:
        return answer.status, answer.headers.get("Cache-Control", "")


async def test_hashed_files_are_kept_and_the_page_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-1a2b.js").write_text("1")
    (tmp_path / "index.html").write_text("<!doctype html>")
    assert await fetched(tmp_path, "/console/queue") == (200, "no-cache")
    status, kept = await fetched(tmp_path, "/console/assets/index-1a2b.js")
    assert (status, "immutable" in kept) == (200, True)


def test_script_and_style_stay_within_the_budget() -> None:
    files = [path for path in build.build().rglob("*") if path.suffix in {".js", ".css"}]
    assert {path.suffix for path in files} == {".js", ".css"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= BUDGET_BYTES


def test_the_lockfile_names_no_registry() -> None:
    lock = (Path(build.__file__).parents[3] / "console" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
