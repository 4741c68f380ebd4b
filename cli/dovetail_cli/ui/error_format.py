"""Errors for programs: what `-o json` and `-o yaml` print when a command fails."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_NAMES: Final = ("-o", "--output")
_FORMS: Final = frozenset({"json", "yaml"})
# What follows their options belongs to the user's command.
_PASS_ON: Final = frozenset({"gbatch"})


def of(arguments: Sequence[str], *, command: str) -> str:
    """The format that a command line asks for: json, yaml, or nothing for tables and CSV.

    It has to be known even where the command line is refused, so it is read from the words themselves.
    """
    words = _options(arguments) if command in _PASS_ON else arguments
    values = [_value(word, following=following) for word, following in pairwise([*words, ""])]
    return next((value for value in reversed(values) if value in _FORMS), "")


def _options(arguments: Sequence[str]) -> Sequence[str]:
    """The words before the user's command, whose first word follows no option."""
    pairs = enumerate(pairwise(["", *arguments]))
    end = (at for at, (before, word) in pairs if word == "--" or not (word.startswith("-") or before.startswith("-")))
    return arguments[: next(end, len(arguments))]


def _value(word: str, *, following: str) -> str:
    """The value of `-o` or `--output`, in any way to write it; empty for another word."""
    name, equals, value = word.partition("=")
    if word in _NAMES:
        return following
    if name in _NAMES and equals:
        return value
    return word[2:] if word.startswith("-o") else ""


def print_error(message: str, *, exit_code: int, form: str) -> None:
    """Print the error as a document with `error.message` and `error.code`."""
    from dovetail_cli.ui import output

    value = {"error": {"message": message, "code": exit_code}}
    print(output.as_json(value) if form == "json" else output.as_yaml(value))
