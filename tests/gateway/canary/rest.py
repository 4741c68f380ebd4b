"""What a gateway holds while nobody asks: the size of each table and each counter of all its objects.

Prepared queues are left out: they are of the core, and kept on purpose.

The same request again must change none of them. A counter that is not given back, a waiter that is not removed or a
connection that stays is found here whatever its name is.
"""

import asyncio
import gc
from collections import Counter, defaultdict, deque
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail_gateway.app import Gateway

_OURS: Final = ("dovetail_gateway", "dovetail.process")
_TABLES: Final = (dict, set, frozenset, list, deque, Counter)
_LEAVES: Final = (str, bytes, bytearray, int, float, type(None), type, ModuleType, msgspec.Struct)
# What counts how often something was done; and what the streams' feed keeps of the cluster's last changes, within its
# bound, or has not looked at yet. A Visibility is a value, which such a feed has as a key: its size is no table's.
_COUNTS: Final = frozenset({
    "Change", "Changes", "ClusterCache._node_uses", "Metrics", "Feed", "EncodedDeltas", "EncodedRows",
    "ClusterCache.version", "Pacing", "Prepared", "PreparedQueues", "Visibility", "_RequestHandler",
})  # fmt: skip


def at_rest(made: Gateway) -> dict[str, list[int]]:
    """The sizes and counters, by `Class.attribute`; those of several objects of a class in order."""
    found = defaultdict[str, list[int]](list)
    for holder in _ours(made):
        for name, value in _attributes(holder):
            key = f"{type(holder).__name__}.{name}"
            if {key, type(holder).__name__} & _COUNTS:
                continue
            if isinstance(value, _TABLES):
                found[key].append(len(value))
            elif isinstance(value, int):
                found[key].append(value)
    return {key: sorted(sizes) for key, sizes in sorted(found.items())}


async def settled(made: Gateway, *, expected: dict[str, list[int]] | None = None) -> dict[str, list[int]]:
    """The same once nothing changes any more.

    What is expected is waited for: between two looks, a connection that ends on a busy machine may not change.
    """
    after = at_rest(made)
    for patience in range(250):
        await asyncio.sleep(0.02)
        before, after = after, at_rest(made)
        if after == before and (patience > 200 or expected in (None, after)):
            return after
    raise AssertionError(f"{[key for key in after if after[key] != before.get(key)]} change while nobody asks")


def _ours(made: Gateway) -> list[Any]:
    seen, found, left = set[int](), list[Any](), [made, made.application]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _LEAVES):
            continue
        seen.add(id(each))
        if type(each).__module__.startswith(_OURS):
            found.append(each)
        left += _next(each)
    return found


def _next(each: Any) -> list[Any]:
    if isinstance(each, FunctionType):
        return [*(each.__closure__ or ())]
    if isinstance(each, MethodType):
        return [each.__self__, each.__func__]
    if isinstance(each, CellType):
        return [each.cell_contents]
    module = type(each).__module__
    if module.startswith(_OURS) or isinstance(each, (*_TABLES, tuple, web.Application)):
        return gc.get_referents(each)
    return gc.get_referents(each) if module.startswith("aiohttp.web_urldispatcher") else []


def _attributes(holder: Any) -> list[tuple[str, Any]]:
    slots = [name for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {**getattr(holder, "__dict__", {}), **{name: getattr(holder, name, None) for name in slots}}
    return list(names.items())
