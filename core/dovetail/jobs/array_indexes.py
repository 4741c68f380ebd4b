"""Indexes of an array's tasks as users write them, such as `0-15:2,20`. Pure."""

from collections.abc import Iterable

from dovetail.api.gpujob import MAX_TASKS


class IndexesError(ValueError):
    """The problem with the indexes, in a sentence."""


def indexes_in(text: str) -> list[int]:
    """The indexes in a text, in order, each once. Raises `IndexesError`.

    The text has the form of `spec.array.indexes`; anything after % is ignored.
    """
    found: set[int] = set()
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        start, end = int(first), int(last or first)
        if end < start:
            raise IndexesError(f'array "{text}": {part} ends before it starts, write {end}-{start}')
        found.update(range(start, end + 1, int(step or 1)))
        if len(found) > MAX_TASKS:
            raise IndexesError(
                f'array "{text}" has {len(found)} tasks or more, and {MAX_TASKS} are allowed: make several jobs of it'
            )
    return sorted(found)


def as_text(indexes: Iterable[int]) -> str:
    """Indexes in short form, such as `0-3,7`."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and index == parts[-1][-1] + 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join("-".join(str(end) for end in part) for part in parts)
