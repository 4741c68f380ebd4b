"""The chart's values as the table of its README, read from the comments in values.yaml.

`python -m tests.chart.values_table` writes the table anew.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

CHART: Final = Path(__file__).parents[2] / "helm" / "dovetail"
BEGIN: Final = "<!-- values: written by `python -m tests.chart.values_table` -->"
END: Final = "<!-- end of values -->"


class Value(NamedTuple):
    """One value that an installer may set."""

    path: str
    default: Any
    description: str


def values() -> Iterator[Value]:
    """Every value that has a `# -- ` comment, in the file's order."""
    text = CHART.joinpath("values.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    keys: list[str] = []
    description = ""
    for line in text.splitlines():
        if comment := re.match(r" *# -- (.*)", line):
            description = comment[1]
        elif key := re.match(r"( *)(\w+):", line):
            keys = [*keys[: len(key[1]) // 2], key[2]]
            if description:
                yield Value(".".join(keys), _at(tree, keys), description)
            description = ""


def table() -> str:
    """The table in Markdown."""
    rows = [f"| `{path}` | `{json.dumps(default)}` | {text} |" for path, default, text in values()]
    return "\n".join(["| Value | Default | Meaning |", "| --- | --- | --- |", *rows])


def _at(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def main() -> None:
    """Put the table where README.md has the old one."""
    readme = CHART / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
