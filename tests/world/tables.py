"""Every table that an object holds, found in the code's own attributes: to compare with another's, or to be empty.

A table is a dictionary, set, list or deque in an attribute of one of our classes. The walk finds a new cache the moment
that somebody adds one: it has to agree with one rebuilt from the objects and be empty at the end, or to be named with a
reason in one of the lists below.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

import msgspec

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.partitions import profiles

_TABLES: Final = (dict, set, list, deque, OrderedDict, frozenset)
_LEAVES: Final = (str, bytes, int, float, bool, type(None), msgspec.Struct, Mapping, Callable)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: where it is, as `Class._attribute` from the root on, and what it has."""

    path: str
    content: Any

    @property
    def name(self) -> str:
        return ".".join(self.path.split(".")[-2:])


def tables(*roots: object) -> dict[str, Table]:
    """All tables that can be reached from the roots, each once."""
    found: dict[str, Table] = {}
    seen: set[int] = set()
    for root in roots:
        _walk(root, path=type(root).__name__, found=found, seen=seen)
    return found


def _walk(holder: object, *, path: str, found: dict[str, Table], seen: set[int]) -> None:
    if id(holder) in seen or not type(holder).__module__.startswith("dovetail"):
        return
    seen.add(id(holder))
    if isinstance(holder, Ledger):
        found[f"{path}.content"] = Table(path=f"{path}.content", content=content_of(holder))
        return
    for name, value in _attributes(holder):
        _note(value, path=f"{path}.{name}", found=found, seen=seen)


def _note(value: object, *, path: str, found: dict[str, Table], seen: set[int]) -> None:
    if isinstance(value, _TABLES):
        if id(value) not in seen:
            seen.add(id(value))
            found[path] = Table(path=path, content=value)
            each_is_ours = [each for each in _values(value) if _is_holder(each)]
            for at, each in enumerate(each_is_ours):
                _walk(each, path=f"{path}[{at}].{type(each).__name__}", found=found, seen=seen)
    elif isinstance(value, tuple):
        for at, each in enumerate(value):
            _note(each, path=f"{path}[{at}]", found=found, seen=seen)
    elif _is_holder(value):
        _walk(value, path=f"{path}.{type(value).__name__}", found=found, seen=seen)


def _values(table: Any) -> list[Any]:
    return list(table.values()) if isinstance(table, dict) else list(table)


def _is_holder(value: object) -> bool:
    """Whether it is an object of ours that may hold tables: values are frozen."""
    is_ours = type(value).__module__.startswith("dovetail") and not isinstance(value, type | msgspec.Struct)
    return is_ours and not (is_dataclass(value) and type(value).__dataclass_params__.frozen and not _holds(value))


def _holds(value: Any) -> bool:
    """Whether a frozen dataclass holds what changes, as `CycleCaches` does."""
    return any(_is_holder(getattr(value, each.name)) for each in fields(value) if hasattr(value, each.name))


def _attributes(holder: object) -> Iterator[tuple[str, Any]]:
    if hasattr(holder, "__dict__"):
        yield from vars(holder).items()
    for kind in type(holder).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(holder, name):
                yield name, getattr(holder, name)


# --- the ledger, whose tables are columns ------------------------------------------------------------------------


def content_of(ledger: Ledger) -> dict[str, Any]:
    """All that a ledger says of the nodes that exist and of the claims, in no order of arrival."""
    found = {"claims": {claim.key: (claim, ledger.is_hold(claim.key)) for claim in ledger.claims()}}
    for profile in ("", *profiles(ledger)):
        seen = ledger.of_profile(profile)
        found[f"nodes {profile}"] = {name: _node(seen, name) for name in sorted(seen.nodes())}
        found[f"models {profile}"] = seen.models()
        found[f"totals {profile}"] = seen.totals()
    return found


def _node(ledger: Ledger, name: str) -> dict[str, Any]:
    row = ledger.node_row(name)
    columns = {field: getattr(row, field) for field in type(row).__slots__} if hasattr(type(row), "__slots__") else {}
    coded = {"model", "vendor", "resource"}
    width = len(ledger.devices(name))
    return {
        "facts": ledger.facts(name),
        "devices": ledger.devices(name),
        "instances": ledger.instances(name),
        "obstacle": ledger.obstacle(name),
        "unmeasured": ledger.unmeasured_reason(name),
        "claims": sorted(claim.key for claim in ledger.claims_on(name)),
        **{
            field: value[:width] if isinstance(value, list) else value
            for field, value in columns.items()
            if field not in coded
        },
    }
