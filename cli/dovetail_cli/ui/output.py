"""Output formats: padded tables for people; JSON, YAML and CSV for programs. Text only."""

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from dovetail_cli.ui.errors import UsageError

FORMATS: Final = ("table", "json", "yaml", "csv")
Row = Mapping[str, Any]
_BETWEEN: Final = "  "
# A cell that is cut keeps at least so many characters.
_NARROWEST: Final = 8

_BOLD: Final = "\x1b[1m"
_COLOURS: Final = {
    "red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m", "blue": "\x1b[34m", "magenta": "\x1b[35m",
    "cyan": "\x1b[36m", "dim": "\x1b[2m",
}  # fmt: skip
_PLAIN: Final = "\x1b[0m"


def check_format(name: str, *, allowed: Sequence[str] = FORMATS) -> str:
    """The format that was asked for. Raises `UsageError` for one that there is not."""
    if name not in allowed:
        raise UsageError(f'-o "{name}": unknown format, allowed are {", ".join(allowed)}')
    return name


def render(
    rows: Sequence[Row], *, columns: Sequence[str], form: str, colours: Mapping[str, Mapping[str, str]] | None = None
) -> str:
    """Rows in any of the formats, without the last line end.

    No rows are `[]`, a CSV header, or the table's header. `colours` has for a column the colours of its cells, by their
    text.
    """
    match form:
        case "json":
            return as_json(list(rows))
        case "yaml":
            return as_yaml(list(rows))
        case "csv":
            return as_csv(rows, columns=columns)
        case _:
            lines = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
            return table(lines, width=terminal_width(), colours=colours or {})


def document(value: Any, *, form: str) -> str:
    """One value as JSON or YAML."""
    return as_json(value) if form == "json" else as_yaml(value)


def as_json(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def as_yaml(value: Any) -> str:
    """YAML with the keys in their own order."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def as_csv(rows: Sequence[Row], *, columns: Sequence[str]) -> str:
    """CSV with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue().rstrip("\n")


def table(
    lines: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    colours: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> str:
    """Cells padded with spaces, two between columns; the last column is not padded.

    Where the table is wider than `width`, the cells of the widest columns end in `…`: a terminal would wrap the lines
    within words.
    """
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    if width is not None:
        widths = _fitting(widths, width=width)
    by_column = [colours.get(head, {}) for head in lines[0]]
    return "\n".join(
        _BETWEEN.join(
            _painted(_cut(cell, width=width).ljust(width), colour=known.get(cell))
            for cell, width, known in zip(line, widths, by_column, strict=True)
        ).rstrip()
        for line in lines
    )


def _painted(cell: str, *, colour: str | None) -> str:
    return cell if colour is None else paint(cell, colour=colour)


def _fitting(widths: Sequence[int], *, width: int) -> list[int]:
    """The widths of columns, the widest reduced first, so that a line has `width` characters.

    No column gets narrower than `_NARROWEST`, so that a narrow terminal may still wrap.
    """
    fitting = list(widths)
    room = width - len(_BETWEEN) * (len(fitting) - 1)
    while sum(fitting) > room and max(fitting) > _NARROWEST:
        fitting[fitting.index(max(fitting))] -= 1
    return fitting


def _cut(cell: str, *, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: max(0, width - 1)]}…"


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def terminal_width() -> int | None:
    """The columns of a person's terminal; None where the output goes elsewhere, and is not cut."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def on_terminal() -> bool:
    """Whether standard output is a person's terminal."""
    return sys.stdout.isatty()


def in_colour() -> bool:
    """Whether output to that terminal may have colours.

    `NO_COLOR` forbids it, and a dumb terminal would show the codes.
    """
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, *, colour: str) -> str:
    """`text` in a colour, or unchanged where the output is not a terminal."""
    return f"{_COLOURS[colour]}{text}{_PLAIN}" if in_colour() else text


def bold(text: str) -> str:
    """`text` in bold on a terminal."""
    return f"{_BOLD}{text}{_PLAIN}" if in_colour() else text
