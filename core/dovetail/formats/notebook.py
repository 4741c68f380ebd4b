"""Static HTML for notebooks: every text is escaped, and there is no script. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

# No colours: the notebook's own suit a light and a dark theme.
_CELL: Final = 'style="text-align:left;padding:.15em .8em .15em 0;border:0"'
_LOG: Final = 'style="margin:.3em 0;opacity:.8;white-space:pre-wrap"'


def view(
    title: str,
    *,
    url: str = "",
    share: float | None = None,
    notes: Sequence[str] = (),
    items: Sequence[str] = (),
    rows: Iterable[tuple[str, str]] = (),
    log: Sequence[str] = (),
) -> str:
    """A title, a progress bar, paragraphs, a list, a table with a name and a text in each row, and lines of a log.

    `url` is where the title leads, and `share` the part of the bar that is done, from 0 to 1.
    """
    bar = "" if share is None else f'<progress value="{share:.4f}" max="1" style="width:20em"></progress>'
    paragraphs = "".join(f'<p style="opacity:.7">{escape(note)}</p>' for note in notes)
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    lines = "".join(f"<tr><th {_CELL}>{escape(name)}</th><td {_CELL}>{escape(text)}</td></tr>" for name, text in rows)
    printed = escape("\n".join(log))
    shown = [
        f"<p>{bar}</p>" if bar else "",
        paragraphs,
        f"<ul>{listed}</ul>" if listed else "",
        f"<table>{lines}</table>" if lines else "",
        f"<pre {_LOG}>{printed}</pre>" if printed else "",
    ]
    return f"<div>{_title(title, url=url)}{''.join(shown)}</div>"


def table(heads: Sequence[str], *, lines: Iterable[Sequence[str]], note: str = "") -> str:
    """A table with a line of heads, and a paragraph below it."""
    first = "".join(f"<th {_CELL}>{escape(head)}</th>" for head in heads)
    cells = ["".join(f"<td {_CELL}>{escape(text)}</td>" for text in line) for line in lines]
    below = f'<p style="opacity:.7">{escape(note)}</p>' if note else ""
    return f"<div><table><tr>{first}</tr>{''.join(f'<tr>{each}</tr>' for each in cells)}</table>{below}</div>"


def _title(title: str, *, url: str) -> str:
    # An address of another kind, such as javascript:, would run in the notebook.
    if not url.startswith(("http://", "https://")):
        return f"<strong>{escape(title)}</strong>"
    return f'<a href="{escape(url)}" target="_blank"><strong>{escape(title)}</strong></a>'
