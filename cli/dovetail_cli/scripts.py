"""What a job runs, from gbatch's words: a script whose text travels in the pod, a command, or standard input. Pure.

`#SBATCH` and `# GFLOW` lines in a script are not read yet: `directives` finds them, so that nobody is misled.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from dovetail_cli.errors import UsageError

# One argument of a process is at most 128 KiB on Linux; the rest of the command needs some of it.
MAX_SCRIPT_BYTES: Final = 100 * 1024
# How each interpreter takes a program as an argument.
_FLAGS: Final = {"sh": "-c", "python": "-c", "perl": "-e", "ruby": "-e"}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_DIRECTIVE: Final = re.compile(r"#SBATCH\s|# ?GFLOW\s")
_SHELL_SYNTAX: Final = re.compile(r"[\s|&;<>()$`\"'*?\[\]{}~#=]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script's text and what it is called."""

    name: str
    text: str


def read_script(data: bytes, *, name: str) -> Script:
    """A script out of a file's bytes. Raises `UsageError` for what is no text, is empty, or is too long."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{name} is no text: scripts travel in the pod as text, programs belong into the image")
    if not text.strip():
        raise UsageError(f"{name} is empty")
    if len(data) > MAX_SCRIPT_BYTES:
        raise UsageError(f"{name} has {len(data)} bytes: a script may have at most {MAX_SCRIPT_BYTES}")
    return Script(name=PurePath(name).name, text=text)


def script_command(script: Script, arguments: Sequence[str]) -> list[str]:
    """The container's command that runs the script with these arguments, by its `#!` line or else by `sh`."""
    first = script.text.splitlines()[0]
    words = shlex.split(first.removeprefix("#!")) if first.startswith("#!") else ["/bin/sh"]
    words = [word for word in words if word != "-S"] if words and PurePath(words[0]).name == "env" else words
    program = next((PurePath(word).name for word in words if PurePath(word).name != "env"), "")
    family = "sh" if program in _SHELLS else program.rstrip("0123456789.")
    flag = _FLAGS.get(family)
    if flag is None:
        raise UsageError(
            f'{script.name}: its first line "{first}" names no interpreter that takes a script as text; '
            f"allowed are {', '.join(sorted({*_SHELLS, *_FLAGS}))}"
        )
    # A shell takes the word after the program as $0, the others have no such word.
    called = [script.name] if family == "sh" else []
    return [*words, flag, script.text, *called, *arguments]


def plain_command(words: Sequence[str]) -> list[str]:
    """The container's command for `gbatch command …`; one word with blanks or shell syntax is a line for the shell."""
    if len(words) == 1 and _SHELL_SYNTAX.search(words[0]):
        return ["/bin/sh", "-c", words[0]]
    return list(words)


def directives(script: Script) -> int:
    """How many lines of the script give options to a queue."""
    return sum(bool(_DIRECTIVE.match(line)) for line in script.text.splitlines())
