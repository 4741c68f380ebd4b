"""Pages of a sorted list, by a cursor that is the last key: stable while the list changes. Pure."""

from bisect import bisect_right
from collections.abc import Sequence


def page(keys: Sequence[str], *, cursor: str, limit: int) -> tuple[Sequence[str], str | None]:
    """The keys after the cursor, at most `limit`, and the cursor of the next page. `keys` are sorted."""
    start = bisect_right(keys, cursor) if cursor else 0
    chosen = keys[start : start + limit]
    more = start + limit < len(keys)
    return chosen, chosen[-1] if more else None
