"""How many items the containers of an object graph have: what grows with work that is done keeps something of it."""

from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any


def items_by_attribute(root: object) -> Counter[str]:
    """The items of each attribute's containers, nested ones included, over all objects of Dovetail below `root`."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    left: list[tuple[object, str]] = [(root, "")]
    while left:
        value, attribute = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping | list | tuple | set | frozenset | deque | array):
            found[attribute] += len(value)
            inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
            left += [(each, attribute) for each in inner]
        elif type(value).__module__.partition(".")[0].startswith("dovetail"):
            left += [(each, f"{type(value).__qualname__}.{name}") for name, each in _attributes(value)]
    return found


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name, getattr(value, name)
