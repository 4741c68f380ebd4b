"""The picture of the notebook for the documentation: `make pictures`. Its outputs are those of a queue."""

import asyncio
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import pytest

from tests.console import browser as browsers
from tests.console.browser import CHROMIUM
from tests.local_node.machine import Machine, new_machine
from tests.local_node.notebooks import executed
from tests.pictures.test_pictures import FOLDER, MOST_BYTES, small

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
_WIDTH: Final = 900
_STYLE: Final = (
    "body{font:14px system-ui;margin:1em 2em;color:#1f2328} pre{margin:0;white-space:pre-wrap} p{margin:.4em 0}"
    ".in{background:#f6f8fa;border:1px solid #d1d9e0;padding:.5em .8em;margin:.8em 0 .4em} .out{padding:0 .8em}"
)


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A queue of its own, which the kernel finds."""
    with new_machine(tmp_path_factory.mktemp("machine")) as made:
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
            monkeypatch.setenv(name, made.environment[name])
        for name in ("KUBECONFIG", "DOVETAIL_GATEWAY", "DOVETAIL_TOKEN", "DOVETAIL_NAMESPACE"):
            monkeypatch.delenv(name, raising=False)
        yield made


async def test_the_picture_shows_a_card_a_bar_a_table_and_a_sentence(machine: Machine, tmp_path: Path) -> None:
    notebook = await asyncio.to_thread(executed, machine.work)
    page = page_of(notebook)
    assert all(part in page for part in ("Succeeded", "<progress", "<table", "InvalidError: "))
    folder = Path(FOLDER) if FOLDER else tmp_path
    async with browsers.chromium() as started:
        tab = await started.new_page(viewport={"width": _WIDTH, "height": 600})
        await tab.set_content(page)
        picture = small(await tab.screenshot(full_page=True))
    assert len(picture) <= MOST_BYTES
    await asyncio.to_thread((folder / "notebook.png").write_bytes, picture)


def page_of(notebook: Any) -> str:
    """The cells and their outputs as a page, as notebooks draw them."""
    parts = [f"<!doctype html><meta charset='utf-8'><style>{_STYLE}</style>"]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts.append(f'<pre class="in">{escape(cell.source)}</pre>')
            parts += [f'<div class="out">{_shown(each)}</div>' for each in cell.outputs]
        else:
            parts.append(f"<p>{escape(cell.source.removeprefix('# '))}</p>")
    return os.linesep.join(parts)


def _shown(output: Any) -> str:
    if output.output_type == "error":
        return f"<pre>{escape(os.linesep.join(output.traceback))}</pre>"
    if output.output_type == "stream":
        return f"<pre>{escape(output.text)}</pre>"
    return str(output.data.get("text/html") or f"<pre>{escape(output.data['text/plain'])}</pre>")
