"""The pages with generated blocks, and their text as it is to be."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tools.commands.tree import Command, Option, commands

_ROOT: Final = Path(__file__).resolve().parents[2]
_ENGLISH: Final = _ROOT / "docs" / "commands.md"
_CHINESE: Final = _ROOT / "docs" / "zh-CN" / "commands.md"
PAGES: Final = (_ENGLISH, _CHINESE)
MEANINGS: Final = Path(__file__).with_name("meanings.toml")
_TITLES: Final[Mapping[Path, str]] = {
    _ENGLISH: "| option | default | meaning |",
    _CHINESE: "| 选项 | 默认值 | 含义 |",
}
_LANGUAGES: Final[Mapping[Path, str]] = {_ENGLISH: "en", _CHINESE: "zh-CN"}
_BLOCK: Final = re.compile(r"<!-- command: ([\w -]+?) -->\n.*?<!-- end -->", flags=re.DOTALL)

Meanings = Mapping[str, Mapping[str, str]]


@cache
def meanings() -> Mapping[str, Meanings]:
    """By language and command, what options mean where that is more than their help says."""
    found: Mapping[str, Meanings] = tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
    return found


def shown(page: Path) -> list[str]:
    """The commands that have a block on a page, in order."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def generated(page: Path) -> str:
    """The page with its blocks as the commands declare themselves. Raises `KeyError` for a block of no command."""
    known, own = commands(), meanings()[_LANGUAGES[page]]

    def block(found: re.Match[str]) -> str:
        return _block(known[found[1]], title=_TITLES[page], meanings=own.get(found[1], {}))

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


def _block(command: Command, *, title: str, meanings: Mapping[str, str]) -> str:
    parts = [f"`{command.usage}`: {command.summary}"]
    if command.options:
        parts.append("\n".join([title, "|---|---|---|", *(_row(each, meanings=meanings) for each in command.options)]))
    parts.append("\n".join(["```console", *(f"$ {each}" for each in command.examples), "```"]))
    return f"<!-- command: {command.name} -->\n" + "\n\n".join(parts) + "\n<!-- end -->"


def _row(option: Option, *, meanings: Mapping[str, str]) -> str:
    words = ", ".join(f"`{_in_cell(word)}`" for word in option.words)
    default = f"`{_in_cell(option.default)}`" if option.default else ""
    # Help texts have no markup: a bar would end the cell.
    meaning = meanings.get(option.name) or _in_cell(option.meaning)
    return f"| {words} | {default} | {meaning} |"


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")
