"""Pages of a sorted list, by a cursor that names the last key: stable while the list changes. Pure."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence

from dovetail_gateway.routing.problems import RequestFailedError


def page(keys: Sequence[str], *, cursor: str, limit: int) -> tuple[Sequence[str], str | None]:
    """The keys after the cursor, at most `limit`, and the cursor of the next page. `keys` are sorted."""
    start = bisect_right(keys, _key(cursor)) if cursor else 0
    chosen = keys[start : start + limit]
    more = start + limit < len(keys)
    return chosen, _cursor(chosen[-1]) if more else None


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _key(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise RequestFailedError(
            422, reason="Invalid", message=f'cursor "{cursor}": use `next` of the page before'
        ) from error
