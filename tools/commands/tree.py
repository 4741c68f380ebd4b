"""The commands as they declare themselves: usage, options with defaults, examples. No I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from typer.main import get_command

from dovetail_cli.app import COMMANDS, PROGRAMS, typer_app
from dovetail_cli.ui.examples import EXAMPLES

# Every command that asks the cluster has these: the page says once what they mean.
_COMMON: Final = frozenset({"kubeconfig", "context", "help"})
_COMMON_NAMESPACE: Final = "Namespace [that of the kubeconfig's context]."
_PYTHON_TYPE: Final = re.compile(r" <[^<>]*>$")
_RANGE: Final = re.compile(
    r"  ?\[(?:required|x[<>]=[^]]*|[-\d.]+<=x[^]]*|default: [^]]*|env var: [^]]*)(?:[;,] [^]]*)?\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option.

    name     its first long word, by which `meanings.toml` knows it
    words    all its words, each with the value that it takes
    default  what counts without it; empty for none
    meaning  its help
    """

    name: str
    words: tuple[str, ...]
    default: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that does something.

    name      its words as the table of commands has them, such as `gjob log`
    usage     the line of its help
    summary   the first paragraph of its help
    options   without those that all have
    examples  command lines
    """

    name: str
    usage: str
    summary: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]


def commands() -> dict[str, Command]:
    """All commands, by their names."""
    return {found.name: found for name in COMMANDS for found in _leaves(get_command(typer_app(name)), name=name)}


def _leaves(command: Any, *, name: str) -> Iterator[Command]:
    below = getattr(command, "commands", {})
    if not below:
        yield _command(command, name=name)
    for word, each in below.items():
        yield from _leaves(each, name=f"{name} {word}")


def _command(command: Any, *, name: str) -> Command:
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = " ".join(
        command_line
        for param in command.params
        if param.param_type_name == "argument"
        for command_line in param.get_usage_pieces(context)
    )
    options = tuple(_options(command, context=context))
    called = name if name.split(maxsplit=1)[0] in PROGRAMS else f"dovetail {name}"
    help_ = (command.help or "").replace("\f", "").strip()
    return Command(
        name=name,
        usage=" ".join(part for part in (called, "[OPTIONS]" if options else "", arguments) if part),
        summary=" ".join(help_.split("\n\n")[0].split()),
        options=options,
        examples=tuple(EXAMPLES[name]),
    )


def _options(command: Any, *, context: Any) -> Iterator[Option]:
    for param in command.params:
        if (
            param.param_type_name != "option"
            or param.hidden
            or param.name in _COMMON
            or param.help == _COMMON_NAMESPACE
        ):
            continue
        record = param.get_help_record(context)
        value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
        words = (*param.opts, *param.secondary_opts)
        yield Option(
            name=next(word for word in words if word.startswith("--")),
            words=tuple(f"{word}{value}" for word in words),
            default=_default(param),
            meaning=_RANGE.sub("", _PYTHON_TYPE.sub("", record[1])).strip(),
        )


def _default(param: Any) -> str:
    default = param.default
    is_plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    return str(getattr(default, "value", default)) if is_plain and str(default) else ""
