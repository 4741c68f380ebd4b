"""Static HTML for notebooks: every text is escaped, and there is no script. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

# No colours: the notebook's own suit a light and a dark theme.
_CELL: Final = 'style="text-align:left;padding:.15em .8em .15em 0;border:0"'


def view(
    title: str, *, notes: Sequence[str] = (), items: Sequence[str] = (), rows: Iterable[tuple[str, str]] = ()
) -> str:
    """A title, paragraphs, a list, and a table with a name and a text in each row."""
    paragraphs = "".join(f'<p style="opacity:.7">{escape(note)}</p>' for note in notes)
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    lines = "".join(f"<tr><th {_CELL}>{escape(name)}</th><td {_CELL}>{escape(text)}</td></tr>" for name, text in rows)
    shown = paragraphs + (f"<ul>{listed}</ul>" if listed else "") + (f"<table>{lines}</table>" if lines else "")
    return f"<div><strong>{escape(title)}</strong>{shown}</div>"
