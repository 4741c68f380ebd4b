"""Views on a real terminal (a pty): drawn in place, after a resize at once, ended by Ctrl-C."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dovetail.api.conversion import values_of
from dovetail_cli.ui import live_screen
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api, refusal

GPUNODES = "GET /apis/dovetail.dev/v1beta1/gpunodes"
JOBS = "GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
users: [{{name: test, user: {{}}}}]
"""


class Terminal:
    """A program on a pty, and what it has written there."""

    def __init__(self, process: asyncio.subprocess.Process, *, terminal: int) -> None:
        self.process = process
        self.written = ""
        self._terminal = terminal
        self._arrived = asyncio.Event()
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._terminal, 65536)
        except OSError:
            # Linux reports EIO when the program has closed the terminal.
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._terminal)
        self.written += data.decode()
        self._arrived.set()

    async def until(self, text: str, *, count: int = 1) -> None:
        async with asyncio.timeout(60):
            while self.written.count(text) < count:
                self._arrived.clear()
                await self._arrived.wait()

    def resize(self, *, lines: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@asynccontextmanager
async def on_terminal(*words: str, api: Api, folder: Path) -> AsyncIterator[Terminal]:
    """Run `dovetail WORDS` on a terminal of 10 lines."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(url=api.url))
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dovetail_cli", *words, "--kubeconfig", str(kubeconfig),
        stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, "TERM": "xterm-256color"}, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(process, terminal=ours)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


def answer(api: Api, *names: str, count: int = 1) -> None:
    jobs = [values_of(make_job(name, number=at, phase="Queued")) for at, name in enumerate(names, start=1)]
    for _ in range(count):
        api.answer(GPUNODES, Answer(body={"metadata": {}, "items": []}))
        api.answer(JOBS, Answer(body={"metadata": {}, "items": jobs}))


async def test_the_queue_is_drawn_in_place_until_ctrl_c(api: Api, tmp_path: Path) -> None:
    answer(api, "first")
    answer(api, "second", count=200)
    async with on_terminal("gqueue", "-w", "--interval", "0.1", api=api, folder=tmp_path) as terminal:
        await terminal.until("first")
        await terminal.until("second", count=2)
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.process.wait() == 0
        await terminal.until("\x1b[?1049l")
    assert "\x1b[?1049h" in terminal.written
    # Nothing is cleared between two tables, which would flicker.
    assert "\x1b[2J" not in terminal.written[terminal.written.index("first") :]
    assert "Traceback" not in terminal.written


async def test_a_resized_terminal_shows_at_once_what_it_has_room_for(api: Api, tmp_path: Path) -> None:
    answer(api, *(f"job-{at}" for at in range(20)))
    async with on_terminal("gqueue", "-w", "--interval", "3600", api=api, folder=tmp_path) as terminal:
        await terminal.until("… and 12 lines more")
        terminal.resize(lines=5, columns=40)
        await terminal.until("… and 17 lines more")
    assert len(api.of(JOBS)) == 1


async def test_while_the_api_server_is_away_the_last_view_stays(api: Api, tmp_path: Path) -> None:
    answer(api, "first")
    api.answer(GPUNODES, *[Answer(drop=True) for _ in range(9)])
    api.answer(JOBS, *[Answer(drop=True) for _ in range(9)])
    answer(api, "second", count=50)
    async with on_terminal("gqueue", "-w", "--interval", "0.1", api=api, folder=tmp_path) as terminal:
        await terminal.until("no answer since ")
        await terminal.until("second")


async def test_an_error_restores_the_terminal_and_ends_the_view(api: Api, tmp_path: Path) -> None:
    answer(api, "first")
    api.answer(GPUNODES, Answer(body={"metadata": {}, "items": []}))
    api.answer(JOBS, refusal(403, message="you may not list gpujobs"))
    async with on_terminal("gqueue", "-w", "--interval", "0.1", api=api, folder=tmp_path) as terminal:
        assert await terminal.process.wait() == 1
        await terminal.until("dovetail: not allowed: you may not list gpujobs")
    assert terminal.written.index("\x1b[?1049l") < terminal.written.index("dovetail: not allowed")


@pytest.mark.parametrize(
    ("height", "shown"), [(3, ["a", "b", "c"]), (2, ["a", "… and 2 lines more"]), (0, ["… and 3 lines more"])]
)
def test_lines_without_room_are_counted(height: int, shown: list[str]) -> None:
    assert live_screen.cropped(["a", "b", "c"], height=height) == shown
