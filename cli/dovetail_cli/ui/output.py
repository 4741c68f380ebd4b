"""Output formats: padded tables for people; JSON, YAML and CSV for programs. Text only."""

import csv
import io
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from dovetail_cli.ui.errors import UsageError

FORMATS: Final = ("table", "json", "yaml", "csv")
Row = Mapping[str, Any]
_BETWEEN: Final = "  "
# Cells of text that are cut keep at least so many columns, or on a very narrow terminal so many.
_NARROWEST: Final = (8, 3)
# Numbers, times and shares, which mean something else once they are cut: `00:01:30`, `0.5`, `508/640`, `66%`.
_FIGURE: Final = re.compile(r"[-\d.:/,%∞]*")
_SEQUENCE: Final = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;[^\x1b]*\x1b\\")

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
    rows: Sequence[Row],
    *,
    columns: Sequence[str],
    form: str,
    colours: Mapping[str, Mapping[str, str]] | None = None,
    links: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Rows in any of the formats, without the last line end.

    No rows are `[]`, a CSV header, or the table's header. `colours` has for a column the colours of its cells, by their
    text, and `links` their addresses.
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
            return table(lines, width=terminal_width(), colours=colours or {}, links=links or {})


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
    links: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> str:
    """Cells padded with spaces, two between columns; the last column is not padded.

    Where the table is wider than `width`, the cells of the widest columns of text end in `…`: a terminal would wrap the
    lines within words. `links` has for a column the addresses of its cells, by their text.
    """
    widths = [max(cell_width(line[at]) for line in lines) for at in range(len(lines[0]))]
    if width is not None:
        widths = _fitting(widths, lines=lines, width=width)
    looks = [(colours.get(head, {}), links.get(head, {})) for head in lines[0]]
    return "\n".join(
        _BETWEEN.join(
            _dressed(_padded(_cut(cell, width=width), width=width), colour=known.get(cell), url=urls.get(cell))
            for cell, width, (known, urls) in zip(line, widths, looks, strict=True)
        ).rstrip()
        for line in lines
    )


def _dressed(cell: str, *, colour: str | None, url: str | None) -> str:
    if url is not None:
        # A terminal underlines what leads somewhere: the text, and not the blanks behind it.
        text = cell.rstrip()
        return f"{link(text, url=url)}{cell[len(text) :]}"
    return cell if colour is None else paint(cell, colour=colour)


def _fitting(widths: Sequence[int], *, lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of columns, so that a line has `width` columns of the terminal.

    Text gives way before figures, the widest column first. On a terminal that is too narrow even so, the last columns
    are left out.
    """
    fitting = list(widths)
    room = width - len(_BETWEEN) * (len(fitting) - 1)
    texts = [at for at in range(len(fitting)) if not _has_figures([line[at] for line in lines[1:]])]
    for narrowest in _NARROWEST:
        while sum(fitting) > room and (wide := [at for at in texts if fitting[at] > narrowest]):
            fitting[max(wide, key=lambda at: fitting[at])] -= 1
    for at in reversed(range(len(fitting))):
        fitting[at] -= min(fitting[at], max(0, sum(fitting) - room))
    return fitting


def _has_figures(cells: Sequence[str]) -> bool:
    return any(cells) and all(_FIGURE.fullmatch(cell) for cell in cells)


def cell_width(text: str) -> int:
    """The columns of a terminal that a text takes.

    A Chinese character takes two, and an accent of its own none.
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def _padded(cell: str, *, width: int) -> str:
    return cell + " " * (width - cell_width(cell))


def _cut(cell: str, *, width: int) -> str:
    if cell_width(cell) <= width:
        return cell
    kept = cell[: max(0, width - 1)]
    while cell_width(kept) > width - 1 and kept:
        kept = kept[:-1]
    return f"{kept}…" if width > 0 else ""


def wrapped(text: str, *, hang: int | None = None, width: int | None = None) -> str:
    """Break lines that are wider than the terminal, or than `width`.

    They break at blanks only, so a word that is wider than the terminal stays whole. The rest begins in column `hang`,
    by default two columns after the line's own beginning.
    """
    most = terminal_width() if width is None else width
    if most is None:
        return text
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, hang=hang, width=most))


def _pieces(line: str, *, hang: int | None, width: int) -> list[str]:
    if _shown_width(line) <= width:
        return [line]
    margin = len(line) - len(line.lstrip())
    below = " " * (margin + len(_BETWEEN) if hang is None else hang)
    if len(below) > width // 2:
        below = _BETWEEN
    pieces, blank = [""], True
    # Blanks between words keep their number, as in aligned text.
    for word in re.findall(r"\s+|\S+", line):
        if blank or _shown_width(pieces[-1] + word) <= width:
            pieces[-1] += word
        elif word.isspace():
            continue
        else:
            pieces[-1] = pieces[-1].rstrip()
            pieces.append(below + word)
        blank = blank and word.isspace()
    return pieces


def _shown_width(text: str) -> int:
    return cell_width(_SEQUENCE.sub("", text))


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


def link(text: str, *, url: str) -> str:
    """`text` that a terminal opens in a browser (OSC 8); unchanged in a pipe."""
    return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\" if in_colour() else text
