"""Plain command lines are read as typer reads them: the same arguments, or left to typer."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail_cli import app
from dovetail_cli.commands.ginfo import ginfo
from dovetail_cli.commands.gqueue import gqueue
from dovetail_cli.commands.gstats import gstats
from dovetail_cli.commands.limits import limits
from dovetail_cli.commands.quota import quota
from dovetail_cli.commands.top import top
from dovetail_cli.explain.command import app as explain
from dovetail_cli.ui import command_line

LISTING = (ginfo, gqueue, gstats, limits, quota, top)
EXPLAINING = tuple(explain.commands.values())
# Names, beginnings of names, values with and without a hyphen, and what only looks like an option.
VALUES = (
    "",
    "-",
    "--",
    "x",
    "a,b",
    "-5",
    "+5",
    "0.5",
    "2",
    "1e3",
    "nan",
    "json",
    "PD,R",
    "-x",
    "--x",
    "a=b",
    "ä",
    "\udce4",
)


@cache
def by_typer(function: Callable[..., None]) -> Callable[[list[str]], dict[str, Any] | None]:
    """What typer calls the function with, or None for a command line that it refuses."""
    seen: list[dict[str, Any]] = []
    declared = command_line.for_typer(function)
    recorder = typer.Typer(add_completion=False)

    def record(**arguments: Any) -> None:
        seen.append(arguments)

    record.__annotations__, record.__signature__ = declared.__annotations__, declared.__signature__  # type: ignore[attr-defined]
    recorder.command(context_settings={"help_option_names": ["-h", "--help"]})(record)
    command = typer.main.get_command(recorder)

    def ask(words: list[str]) -> dict[str, Any] | None:
        seen.clear()
        try:
            command.main(args=words, prog_name="command", standalone_mode=False)
        except typer.exceptions.TyperException:
            return None
        return seen[0] if seen else None

    return ask


def words_of(function: Callable[..., None]) -> st.SearchStrategy[list[str]]:
    names = sorted(command_line._targets(function)[0])
    spellings = [
        *names,
        *(f"{name}=x" for name in names),
        *(name[:-1] for name in names),
        "-ac",
        "-aw",
        "-ojson",
        "-n-5",
    ]
    return st.lists(st.sampled_from([*spellings, *VALUES]), max_size=5)


@pytest.mark.parametrize("function", [*LISTING, *EXPLAINING])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_plain_command_line_is_read_as_typer_reads_it(function: Callable[..., None], data: st.DataObject) -> None:
    words = data.draw(words_of(function))
    found = command_line.read(function, words=words)
    if found is None:
        return
    defaults = {name: each.default for name, each in command_line.signature(function).parameters.items()}

    assert by_typer(function)(words) == defaults | found


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["-a"], {"everything": True}),
        (["-agt"], {"everything": True, "by_state": True, "tree": True}),
        (["-j1,3", "--jobs", "5", "--jobs=7"], {"jobs": ["1,3", "5", "7"]}),
        (["-n", "-5", "-r", "-TIME"], {"limit": "-5", "sort": "-TIME"}),
        (["-o", "csv", "-o", "json"], {"form": "json"}),
        (["-w", "--interval", "0.5"], {"watch": True, "interval": 0.5}),
    ],
)
def test_what_people_write_needs_no_typer(words: list[str], arguments: dict[str, object]) -> None:
    assert command_line.read(gqueue, words=words) == arguments


@pytest.mark.parametrize(
    "words",
    [
        ["--help"], ["-h"], ["extra"], ["--outp", "json"], ["--all=1"], ["-o"], ["--interval", "soon"], ["-Z"],
        ["-N", "ä"],
    ],
)  # fmt: skip
def test_help_mistakes_and_what_is_not_plain_are_left_to_typer(words: list[str]) -> None:
    assert command_line.read(gqueue, words=words) is None


def test_positional_arguments_go_where_the_command_takes_them() -> None:
    assert command_line.read(quota, words=["a", "-o", "json", "b"]) == {"names": ["a", "b"], "form": "json"}


@pytest.mark.parametrize("name", ["ginfo", "gqueue", "gstats", "limits", "quota", "top"])
def test_a_command_that_lists_imports_no_typer(name: str) -> None:
    program = (
        f"import sys; from dovetail_cli import app; app.run('{name}', arguments=['-o', 'x'], prog='{name}'); "
        "print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert '-o "x": unknown format' in done.stderr
    assert not any(f"'{heavy}'" in done.stdout for heavy in ("typer", "pydantic", "aiohttp", "numpy", "rich", "yaml"))


@pytest.mark.parametrize(
    ("words", "name", "arguments"),
    [
        (["7"], "job", {"name": "7"}),
        (["7", "-o", "json"], "job", {"name": "7", "form": "json"}),
        (["job", "train", "--all"], "job", {"name": "train", "everything": True}),
        (["pod", "train-0", "-n", "vision"], "pod", {"name": "train-0", "namespace": "vision"}),
        (["request", "2(V100)", "--cpu", "4"], "request", {"text": "2(V100)", "cpu": "4"}),
    ],
)
def test_a_command_of_several_is_chosen_without_typer(words: list[str], name: str, arguments: dict[str, str]) -> None:
    assert app._plain(explain, arguments=words) == (explain.commands[name], arguments)


@pytest.mark.parametrize("words", [[], ["--help"], ["job"], ["job", "--help"], ["7", "8"], ["-n", "vision", "7"]])
def test_what_is_not_plain_of_a_command_of_several_is_left_to_typer(words: list[str]) -> None:
    assert app._plain(explain, arguments=words) is None


def test_explaining_imports_no_typer() -> None:
    program = (
        "import sys; from dovetail_cli import app; app.run('explain', arguments=['7', '--kubeconfig', '/none'], "
        "prog='explain'); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "no such kubeconfig" in done.stderr
    assert not any(f"'{heavy}'" in done.stdout for heavy in ("typer", "pydantic_settings", "aiohttp", "rich"))


def test_a_reader_that_ends_early_ends_the_command_silently() -> None:
    program = "import sys; from dovetail_cli import app; sys.exit(app._call(lambda: print('x' * 10**6), arguments={}))"
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    done = subprocess.run([sys.executable, "-c", program], stdout=reader.stdin, stderr=subprocess.PIPE, check=False)
    assert reader.stdin
    reader.stdin.close()

    assert (done.returncode, done.stderr) == (1, b"")


def test_every_listing_command_of_the_table_is_declared_without_typer() -> None:
    for name in ("ginfo", "gqueue", "gstats", "limits", "quota", "top"):
        assert command_line.is_declared_here(app._target(name))
    assert not command_line.is_declared_here(app._target("cordon"))
