"""Each command's help ends with examples, and each example is a command line that the command takes."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dovetail_cli.app import COMMANDS, PROGRAMS, resolved, run, typer_app
from dovetail_cli.ui.examples import EXAMPLES


def leaves(command: Any, *, name: str) -> Iterator[str]:
    """The commands that do something: a command without subcommands, or the subcommands."""
    below = getattr(command, "commands", {})
    if not below:
        yield name
    for word, each in below.items():
        yield from leaves(each, name=f"{name} {word}")


def all_leaves() -> list[str]:
    return [leaf for name in COMMANDS for leaf in leaves(get_command(typer_app(name)), name=name)]


def test_the_help_of_each_command_ends_with_examples(
    subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    for leaf in all_leaves():
        name, *words = leaf.split()
        with subtests.test(leaf):
            assert run(name, arguments=[*words, "--help"], prog=name) == 0
            lines = capsys.readouterr().out.split("  Examples:\n")[1].splitlines()
            assert [line.strip() for line in lines] == list(EXAMPLES[leaf])


def test_no_example_is_of_a_command_that_does_not_exist() -> None:
    assert set(EXAMPLES) == set(all_leaves())


def take(example: str, *, leaf: str) -> None:
    """Parse a command line. Raises an error of usage for an option or value that the command does not take."""
    program, *words = shlex.split(example)
    if program not in PROGRAMS:
        assert program == "dovetail"
        program, *words = words
    assert program == leaf.split(maxsplit=1)[0]
    program, words = resolved(program, arguments=words)
    command, name = get_command(typer_app(program)), program
    while hasattr(command, "commands"):
        with command.make_context(name, list(words)) as context:
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    assert name in {leaf, leaf.rsplit(maxsplit=1)[-1]}
    command.make_context(name, list(words))


def test_each_command_takes_its_examples(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("evaluate.sh", "nodes.csv", "pods.csv", "nodes.yaml", "cluster.json"):
        (tmp_path / file).write_text("#!/bin/sh\n")
    examples = [(leaf, each) for leaf, listed in EXAMPLES.items() if leaf != "completion" for each in listed]
    for leaf, example in examples:
        with subtests.test(example):
            take(example, leaf=leaf)
