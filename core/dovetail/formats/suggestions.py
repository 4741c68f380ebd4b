"""Suggestions for misspelt words. Pure."""

import difflib
from collections.abc import Iterable


def suggestion(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean "x"?` for a similar word in any case, else nothing."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f'; did you mean "{by_lower[near[0]]}"?' if near else ""
