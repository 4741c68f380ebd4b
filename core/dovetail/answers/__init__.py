"""Answers: for each question one type, one function, and one text. Its JSON is that of REST v3 and of `-o json`. Pure.

`nodes` and `inventory` have nodes and devices, `jobs` jobs, `explain` why a job waits; `v1` and `v2` the answers of the
older versions of REST.
`cluster.availability` decides whether a device takes work; nothing here decides it again.
"""

from typing import Generic, TypeVar

from dovetail.api.meta import Record, wire_name

T = TypeVar("T")


class Row(Record, frozen=True, kw_only=True, rename=wire_name):
    """The common shape of answers: every field is there, null where it is not known; camelCase on the wire."""


class Page(Row, Generic[T], frozen=True, kw_only=True):
    """A page of rows. `next` is the cursor of the next page, null for the last one; `total` counts all rows."""

    items: list[T]
    next: str | None
    total: int
