"""Suggestions for misspelt words. Pure."""

from collections.abc import Iterable


def nearest(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A similar word in any case; empty without one."""
    import difflib  # noqa: PLC0415 - only a mistake needs it, and it takes milliseconds of each command

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else ""


def suggestion(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean "x"?` for a similar word in any case, else nothing."""
    near = nearest(word, known=known, cutoff=cutoff)
    return f'; did you mean "{near}"?' if near else ""
