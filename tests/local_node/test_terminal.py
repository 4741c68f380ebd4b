"""A job with the terminal, or the pipes, of the person who submitted it: both ends, without a queue between them."""

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dovetail_cli.submit import own_terminal
from dovetail_cli.submit.own_terminal import Door, attached
from dovetail_sandbox.localnode import terminal


@contextlib.contextmanager
def door() -> Iterator[Door]:
    made = Door()
    try:
        yield made
    finally:
        made.close()
    assert not made.folder.exists()


def started(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words)


@contextlib.asynccontextmanager
async def job(*command: str) -> AsyncIterator[tuple[subprocess.Popen[bytes], own_terminal.socket.socket]]:
    """The process of a job that runs the command, and its connection."""
    with door() as made, started(made.command(command)) as process:
        line = await made.entered(seconds=60)
        assert line is not None
        with line:
            yield process, line


def test_both_ends_speak_of_a_terminal_in_the_same_way() -> None:
    assert own_terminal._ASKED.format == terminal.ASKED.format


async def with_pipes(*command: str, typed: bytes = b"") -> tuple[int, str, int]:
    """The exit code that gbatch is told, what the command has printed, and the exit code of the job's process."""
    (read, write), (stdin, keys) = os.pipe(), os.pipe()
    os.write(keys, typed)
    os.close(keys)
    async with job(*command) as (process, line):
        code = await attached(line, with_terminal=False, stdin=stdin, stdout=write, stderr=write)
        os.close(write)
        os.close(stdin)
        own = await asyncio.to_thread(process.wait, 60)
    with os.fdopen(read) as printed:
        return code, printed.read(), own


async def test_pipes_are_the_commands_own_and_its_exit_code_is_known() -> None:
    assert await with_pipes("sh", "-c", "cat; exit 7", typed=b"line\n") == (7, "line\n", 7)


async def test_a_command_that_does_not_exist_is_said() -> None:
    said = "dovetail: no-such-program: No such file or directory\n"
    assert await with_pipes("no-such-program") == (127, said, 127)


async def test_a_command_that_a_signal_ends_has_the_exit_code_of_shells() -> None:
    assert (await with_pipes("sh", "-c", "kill -9 $$"))[::2] == (137, 137)


async def in_terminal(*command: str, typed: bytes) -> tuple[int, str]:
    """The exit code and the screen of a command, with keys that are typed into a terminal of 30 rows, 90 columns."""
    keyboard, screen = pty.openpty()
    termios.tcsetwinsize(screen, (30, 90))
    before = termios.tcgetattr(screen)
    async with job(*command) as (_, line):
        os.write(keyboard, typed)
        code = await attached(line, with_terminal=True, stdin=screen, stdout=screen, stderr=screen)
    assert termios.tcgetattr(screen) == before
    os.set_blocking(keyboard, False)
    shown = os.read(keyboard, 65_536).decode()
    os.close(keyboard)
    os.close(screen)
    return code, shown


async def test_a_command_has_a_terminal_of_this_size_and_its_keys() -> None:
    script = "test -t 0 && stty size && read word && echo got $word; exit 3"
    code, shown = await in_terminal("sh", "-c", script, typed=b"hello\r")
    assert (code, "30 90" in shown, "got hello" in shown) == (3, True, True)


async def test_ctrl_c_reaches_the_command() -> None:
    script = "trap 'echo interrupted; exit 130' INT; echo ready; while :; do sleep 0.05; done"
    keyboard, screen = pty.openpty()
    async with job("sh", "-c", script) as (_, line):
        attaching = asyncio.create_task(attached(line, with_terminal=True, stdin=screen, stdout=screen, stderr=screen))
        shown = await asyncio.to_thread(os.read, keyboard, 65_536)
        assert b"ready" in shown
        os.write(keyboard, b"\x03")
        assert await attaching == 130
    os.close(keyboard)
    os.close(screen)


@pytest.mark.parametrize("ends", ["gbatch", "gcancel"])
async def test_the_command_ends_with_the_terminal_and_with_the_job(ends: str, tmp_path: Path) -> None:
    file = tmp_path / "said"
    script = f"trap 'echo $0 >> {file}; exit 0' HUP TERM; echo ready > {file}; while :; do sleep 0.05; done"
    async with job("sh", "-c", script) as (process, line):
        line.setblocking(True)
        (read, write) = os.pipe()
        own_terminal.socket.send_fds(line, [own_terminal._ASKED.pack(False, 0, 0)], [read, write, write])
        while not file.exists() or not file.read_text():  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.02)
        if ends == "gbatch":
            line.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
        os.close(read)
        os.close(write)
    assert file.read_text() == "ready\nsh\n"


def test_a_door_that_nobody_enters_is_none() -> None:
    async def wait() -> object:
        with door() as made:
            return await made.entered(seconds=0.01)

    assert asyncio.run(wait()) is None
