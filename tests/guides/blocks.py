"""Blocks of a guide: cut out of its text, with their digests, commands and samples. Pure."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

_FENCE: Final = re.compile(r"^( *)```([a-z]*)[ \t]*\n(.*?)^ *```[ \t]*$", re.MULTILINE | re.DOTALL)
_REMARK: Final = re.compile(r"[ \t]*//[^\n\"]*$", re.MULTILINE)
_COLUMN: Final = re.compile(r"\S+(?: \S+)*")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a guide; `language` is empty where the fence names none."""

    language: str
    text: str

    @property
    def digest(self) -> str:
        """The first 16 digits of its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a transcript, and the lines that it prints there."""

    command: str
    printed: tuple[str, ...]


def blocks_of(guide: str) -> list[Block]:
    """The fenced blocks, without the indentation of their fences."""
    found = []
    for margin, language, body in _FENCE.findall(guide):
        lines = [line.removeprefix(margin) for line in body.splitlines()]
        found.append(Block(language, "\n".join(lines) + "\n"))
    return found


def transcript(text: str) -> list[Step]:
    """The steps of a shell's block, in which a line after `$ ` is a command and those below it are what it prints.

    What it prints ends with an empty line or a remark; lines beyond are commands without `$ `.
    """
    steps: list[Step] = []
    printing = False
    for line in text.splitlines():
        ends = not line.strip() or line.startswith("#")
        if line.startswith("$ "):
            steps.append(Step(line.removeprefix("$ "), ()))
            printing = True
        elif printing and not ends:
            steps[-1] = replace(steps[-1], printed=(*steps[-1].printed, line))
        elif printing or not steps:
            steps.append(Step(line, ()))
            printing = False
        else:
            steps[-1] = replace(steps[-1], command=f"{steps[-1].command}\n{line}")
    return [step for step in steps if step.command.strip()]


def sample(text: str) -> Any:
    """The value of a block of JSON, whose remarks are left out."""
    return json.loads(_REMARK.sub("", text))


def shape(value: Any, *, path: str = "") -> dict[str, str]:
    """The names and types of all fields: `nodes[].memory` is a field of a list's objects.

    A whole number with a fraction, such as `32.0`, is a float.
    """
    match value:
        case dict():
            found = dict[str, str]()
            for name, each in value.items():
                found |= shape(each, path=f"{path}.{name}".lstrip("."))
            return found or {path: "object"}
        case list():
            found = {}
            for each in value:
                found |= shape(each, path=f"{path}[]")
            return found or {path: "list"}
    return {path: "null" if value is None else type(value).__name__}


def table(lines: tuple[str, ...] | list[str]) -> list[dict[str, str]]:
    """The rows of a printed table by the names of its columns, which are at least two spaces apart."""
    head, *rows = [line for line in lines if line.strip()]
    columns = [(match[0], match.start()) for match in _COLUMN.finditer(head)]
    ends = [start for _, start in columns[1:]] + [None]
    return [{name: row[start:end].strip() for (name, start), end in zip(columns, ends, strict=True)} for row in rows]
