"""Commands on lists that come in pages: what they print does not depend on the pages, nor on a page that fails once.

A page that cannot be had is a sentence: no command prints a part of a list as if it were all.
"""

import asyncio
import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from dovetail_cli import app
from tests.cli.test_two_tenants import KUBECONFIG, Server
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.objects import ONE

NAMESPACE: Final = ONE.namespace
# What reads lists. The audit does too, and looks again a minute later.
READS: Final = (
    "gqueue -a", "gqueue -a -o json", "ginfo", "ginfo --by-job", "top", "quota", "observe", "snapshot",
    "explain waits", "explain request 1", "gjob show waits",
)  # fmt: skip
_TIMES: Final = re.compile(r"\b\d+(\.\d+)?( ?s|m|h|d)\b|\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d:\d\d:\d\d|\d+\.\d+")
Fault = Callable[[], web.Response]


class Paged(Server):
    """The canary cluster, whose lists have pages of `size` objects. `lacks` may answer in the place of a page.

    `pages` counts the pages that were served, by path.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size: int | None = None
        self.pages = Counter[str]()
        self.lacks: Callable[[str, int], web.Response | None] = lambda _path, _page: None

    def add_to(self, made: web.Application) -> None:
        made.middlewares.append(self._paging)
        super().add_to(made)

    @property
    def _paging(self) -> Any:
        @web.middleware
        async def serve(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            if request.method != "GET" or "watch" in request.query or "limit" not in request.query:
                return await handler(request)
            at = int(request.query.get("continue", 0))
            if (failed := self.lacks(request.path, at)) is not None:
                return failed
            self.pages[request.path] += 1
            asked = {name: value for name, value in request.query.items() if name not in {"limit", "continue"}}
            found = await handler(request.clone(rel_url=request.rel_url.with_query(asked)))
            if not isinstance(found, web.Response) or found.status != 200:
                return found
            return self._page(json.loads(found.text or ""), at=at, most=int(request.query["limit"]))

        return serve

    def _page(self, whole: dict[str, Any], *, at: int, most: int) -> web.Response:
        items = whole["items"]
        end = at + min(self.size or len(items) + 1, most)
        token = {"continue": str(end), "remainingItemCount": len(items) - end} if end < len(items) else {}
        return web.json_response({**whole, "metadata": {**whole["metadata"], **token}, "items": items[at:end]})


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Paged]:
    async with Paged().running() as made:
        fill(made)
        file = tmp_path / "kubeconfig"
        file.write_text(KUBECONFIG.format(url=made.connection.server, namespace=NAMESPACE))
        monkeypatch.setenv("KUBECONFIG", str(file))
        monkeypatch.delenv("DOVETAIL_GATEWAY", raising=False)
        # The pauses between attempts are no matter of this test.
        monkeypatch.setattr("dovetail.kube.retry.Backoff.seconds", lambda *_args, **_options: 0.0)
        yield made


def _typed(line: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = app.main(line.split())
    return code, out.getvalue(), err.getvalue()


async def typed(line: str) -> tuple[int, str, str]:
    """The exit code of a command and what it printed, without times; what is said of several objects has no order."""
    code, out, err = await asyncio.to_thread(_typed, line)
    return code, _TIMES.sub("T", out), "\n".join(sorted(_TIMES.sub("T", err).splitlines()))


def _status(code: int) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": "Because", "message": "etcd is away", "details": {}}
    return web.json_response(body, status=code, headers={"Retry-After": "0"} if code == 429 else {})


@pytest.mark.parametrize("line", READS)
async def test_pages_of_one_object_that_each_fail_once_make_the_whole_list(server: Paged, line: str) -> None:
    whole = await typed(line)
    asked = server.pages.total()
    failed = set[tuple[str, int]]()

    def once(path: str, page: int) -> web.Response | None:
        if (path, page) in failed:
            return None
        failed.add((path, page))
        return _status(503 if page % 2 else 429)

    server.size, server.lacks = 1, once
    server.pages.clear()
    assert whole[0] in {0, 1}, whole[2]
    assert await typed(line) == whole
    assert server.pages.total() >= len(failed) > asked


@pytest.mark.parametrize("line", READS)
async def test_a_list_of_which_a_page_is_missing_is_not_printed(server: Paged, line: str) -> None:
    whole = await typed(line)
    asked = sorted(server.pages)
    server.size = 1
    for number, lacking in enumerate(asked):
        fault = FAULTS[(number + len(line)) % len(FAULTS)]
        server.lacks = lambda path, page, lacking=lacking, fault=fault: (
            fault() if path == lacking and page == 1 else None
        )
        code, out, err = await typed(line)
        assert "should not happen" not in err
        if (code, out) != whole[:2]:
            assert code, lacking
            assert not out or list(json.loads(out)) == ["error"]
            assert err.startswith("dovetail: ")


# A failure, half an answer, a token that has expired.
FAULTS: Final[tuple[Fault, ...]] = (
    lambda: _status(500),
    lambda: web.Response(text='{"items": ['),
    lambda: _status(410),
)
