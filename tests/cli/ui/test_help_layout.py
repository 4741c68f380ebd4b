"""What help lists, and under which titles."""

import re
from collections import Counter
from typing import Any

import pytest
import typer
from typer.main import get_command

from dovetail_cli import app
from dovetail_cli.ui import help_layout


def leaves(command: Any, *, name: str) -> list[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    return [leaf for word, each in below.items() for leaf in leaves(each, name=f"{name} {word}")] or [(name, command)]


ALL = [leaf for name in app.COMMANDS for leaf in leaves(get_command(app.typer_app(name)), name=name)]


def help_of(command: Any, *, name: str) -> str:
    help_layout.arrange(command, name=name)
    with command.make_context(name, [], resilient_parsing=True) as context:
        return str(command.get_help(context))


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_help_names_every_option_once_and_no_type_of_python(name: str, command: Any) -> None:
    shown = help_of(command, name=name)
    assert not {word for word in ("<str>", "<int>", "<list", "<float>") if word in shown}
    # The description may begin a line with an option too.
    listed = re.split(r"^(?:Arguments|Options|GPUs):$", shown, maxsplit=1, flags=re.MULTILINE)[1]
    words = Counter(line.split()[0].rstrip(",") for line in listed.splitlines() if line.startswith("  -"))
    options = [each for each in command.get_params(typer.Context(command)) if each.param_type_name == "option"]
    shown_once = {each.name: sum(words[word] for word in each.opts) for each in options if not each.hidden}
    assert shown_once == dict.fromkeys(shown_once, 1)


@pytest.mark.parametrize("name", help_layout.GROUPS)
def test_a_group_names_options_that_there_are(name: str) -> None:
    command: Any = get_command(app.typer_app(name))
    listed = [parameter for parameters in help_layout.GROUPS[name].values() for parameter in parameters]
    assert len(listed) == len(set(listed))
    known = {each.name for each in command.params}
    # Options of one field of the spec name their group where they are declared.
    declared = {each.name: each.rich_help_panel for each in command.params if getattr(each, "rich_help_panel", None)}
    assert set(declared.values()) <= help_layout.GROUPS[name].keys()
    assert not set(declared) & set(listed)
    listed += declared
    assert set(listed) <= known
    # Which cluster it is, and where the words of the job come from, are in no group.
    assert known - set(listed) == {"words", "namespace", "kubeconfig", "context"}


def test_the_overview_has_every_command_once() -> None:
    lines = [line for line in app.overview().splitlines() if line.startswith("  ")]
    assert sorted(line[2:].partition("  ")[0] for line in lines) == sorted(app.COMMANDS)


@pytest.mark.parametrize("name", ["gjob", "sandbox", "config", "gflowd"])
def test_a_command_of_commands_lists_each_with_its_whole_first_sentence(name: str) -> None:
    shown = help_of(get_command(app.typer_app(name)), name=name)
    assert "..." not in shown.partition("Commands:")[2]
