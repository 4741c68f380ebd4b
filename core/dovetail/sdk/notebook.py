"""What a notebook shows: views that are drawn again, cards of jobs, bars, and tables. Elsewhere nothing.

IPython is never imported for that: a notebook has it.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from dovetail.formats import notebook as html

T = TypeVar("T")
MOST_ROWS: Final = 50
# A table of rows whose type has no columns of its own shows their first values that are no lists.
_MOST_COLUMNS: Final = 8


class View:
    """One output of a notebook, which each `show` replaces."""

    def __init__(self, displays: Any) -> None:
        self._displays = displays
        self._handle: Any = None
        self._last = ""

    def show(self, shown: str, *, text: str) -> None:
        """Show HTML, and `text` where a notebook shows no HTML."""
        if shown == self._last:
            return
        self._last = shown
        bundle = {"text/html": shown, "text/plain": text}
        if self._handle is None:
            self._handle = self._displays.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def view() -> View | None:
    """A view at this place of the notebook; None outside one."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if running is None or not hasattr(running, "kernel"):
        return None
    displays = sys.modules.get("IPython.display")
    return None if displays is None else View(displays)


def bar(done: int, *, total: int, failed: int, title: str, url: str = "") -> str:
    """A progress bar of calls: how many have ended, and how many of these without a value."""
    words = f"{done} of {total} calls have ended{f', {failed} of them failed' if failed else ''}"
    return html.view(title, url=url, share=done / total if total else 1.0, notes=[words])


class Listed(list[T], Generic[T]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return table(self)


def table(rows: Iterable[Any], *, more: bool = False) -> str:
    """Rows as a table, at most `MOST_ROWS` of them."""
    listed = list(rows)
    if not listed:
        return html.view("None")
    heads = _heads(listed[0])
    lines = [[_text(getattr(getattr(each, "row", each), head)) for head in heads] for each in listed[:MOST_ROWS]]
    left = "There are more." if more or len(listed) > MOST_ROWS else ""
    return html.table([head.replace("_", " ") for head in heads], lines=lines, note=left)


def _heads(item: Any) -> Sequence[str]:
    row = getattr(item, "row", item)
    known: Sequence[str] | None = getattr(type(row), "COLUMNS", None)
    if known is not None:
        return known
    plain = [each for each in msgspec.structs.fields(row) if not isinstance(getattr(row, each.name), list | dict)]
    return [each.name for each in plain[:_MOST_COLUMNS]]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
