"""A job's command, from gbatch's words: a script inside the pod, a command, or stdin. Pure."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from dovetail_cli.ui.errors import UsageError

# One argument of a process is at most 128 KiB on Linux; the rest of the command needs some of it.
MAX_SCRIPT_BYTES: Final = 100 * 1024
# How each interpreter takes a program as an argument.
_FLAGS: Final = {"sh": "-c", "python": "-c", "perl": "-e", "ruby": "-e"}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_VERSION: Final = re.compile(r"\d[\d.]*$")
# `-` and `--` at the end of a #! line; and options whose value is the next word, as in `bash -euo pipefail`.
_OPTIONS_END: Final = frozenset({"-", "--"})
_WITH_VALUE: Final = re.compile(r"[-+][A-Za-z]*[oOWX]")
_PROGRAM: Final = b"\x7fELF"
_SHELL_SYNTAX: Final = re.compile(r"[\s|&;<>()$`\"'*?\[\]{}~#=]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script's text and what it is called."""

    name: str
    text: str


def read_script(data: bytes, *, name: str) -> Script:
    """A script from a file's bytes.

    Raises `UsageError` if it is no text, is empty, or is too long.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{name} is neither a script, which is text in UTF-8, nor a program of Linux")
    if not text.strip():
        raise UsageError(f"{name} is empty")
    if len(data) > MAX_SCRIPT_BYTES:
        raise UsageError(f"{name} has {len(data)} bytes: a script may have at most {MAX_SCRIPT_BYTES}")
    # A shell takes the end of a line as Windows writes it for a part of the line's last word.
    return Script(name=PurePath(name).name, text=text.replace("\r\n", "\n"))


def is_program(data: bytes) -> bool:
    """Whether a file that begins so is a compiled program, which is a command and no script."""
    return data.startswith(_PROGRAM)


def script_command(script: Script, *, arguments: Sequence[str]) -> list[str]:
    """The container's command that runs the script, by its `#!` line or else by `sh`."""
    first = script.text.splitlines()[0]
    words = _interpreter(script, first=first) if first.startswith("#!") else ["/bin/sh"]
    at = 1 if PurePath(words[0]).name == "env" else 0
    program = PurePath(words[at]).name if len(words) > at else ""
    family = "sh" if program in _SHELLS else _VERSION.sub("", program)
    flag = _FLAGS.get(family)
    if flag is None or (family == "sh" and program not in _SHELLS):
        raise UsageError(
            f'{script.name}: its first line "{first}" names no interpreter that takes a script as text; '
            f"allowed are {', '.join(sorted({*_SHELLS, *_FLAGS}))}; any other runs as a command, such as "
            f"{program or 'node'} {script.name}"
        )
    _check_options(words[at + 1 :], script=script, first=first)
    # A shell takes the word after the program as $0, the others have no such word.
    called = [script.name] if family == "sh" else []
    return [*words, flag, script.text, *called, *arguments]


def _interpreter(script: Script, *, first: str) -> list[str]:
    """The words of a `#!` line, without those that only say that the script's file comes next."""
    try:
        words = shlex.split(first.removeprefix("#!"))
    except ValueError as error:
        raise UsageError(f'{script.name}: its first line "{first}" cannot be read: {error}') from error
    if words and PurePath(words[0]).name == "env":
        words = [word for word in words if word != "-S"]
    while words and words[-1] in _OPTIONS_END:
        words.pop()
    return words or [""]


def _check_options(words: Sequence[str], *, script: Script, first: str) -> None:
    """Check that only options follow the interpreter, which would run any other word as a file."""
    before = ""
    for word in words:
        if not word.startswith(("-", "+")) and not _WITH_VALUE.fullmatch(before):
            raise UsageError(f'{script.name}: its first line "{first}" would run "{word}" instead of the script')
        before = word


def plain_command(words: Sequence[str], *, arguments: Sequence[str] = ()) -> list[str]:
    """The container's command for `gbatch command …`.

    One word with blanks or shell syntax is a line for the shell.

    The `arguments` are handed to it behind its own; a line for the shell finds them in `$@`.
    """
    if len(words) == 1 and _SHELL_SYNTAX.search(words[0]):
        return ["/bin/sh", "-c", words[0], *(["sh", *arguments] if arguments else [])]
    return [*words, *arguments]
