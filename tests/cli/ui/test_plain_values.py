"""Values that are read without pydantic are those that typer reads."""

import subprocess
import sys
from typing import Any

import pytest
from typer.exceptions import TyperException
from typer.main import get_command

from dovetail_cli import app
from dovetail_cli.ui import plain_values

LINES = [
    ["sleep", "1"],
    ["--gpus", "1", "-p", "20", "--env", "A=1", "--env", "B=2", "python", "train.py", "--lr", "0.1"],
    ["--no-cpu-fallback", "--wait", "--nodes", "04", "x"],
    ["--name", "深度学习", "--max-retries", "-3", "x"],
    ["-p", "1.5", "x"],
    ["-p", "x", "x"],
    ["-p", "", "x"],
    ["--nodes", "9" * 30, "x"],
    ["--name", "\udcff", "x"],
    [],
]


def read(words: list[str], *, plainly: bool) -> dict[str, Any] | str:
    command: Any = get_command(app.typer_app("gbatch"))
    if plainly:
        plain_values.prepare(command)
    try:
        return dict(command.make_context("gbatch", list(words)).params)
    except TyperException as error:
        return str(error.format_message())


@pytest.mark.parametrize("words", LINES, ids=str)
def test_a_command_line_gives_the_values_that_typer_gives(words: list[str]) -> None:
    plain, typers = read(words, plainly=True), read(words, plainly=False)
    assert plain == typers
    if isinstance(plain, dict) and isinstance(typers, dict):
        assert {name: type(value) for name, value in plain.items()} == {
            name: type(value) for name, value in typers.items()
        }


def test_a_submission_imports_neither_pydantic_nor_a_logger() -> None:
    code = (
        "import sys; from dovetail_cli import app; "
        "app.main(['gbatch', '--kubeconfig', '/nowhere', '-g', '1', 'true']); "
        "print(sorted({'pydantic', 'structlog', 'aiohttp', 'numpy', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
