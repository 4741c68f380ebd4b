"""Objects that cannot be decoded or handled: counted, logged once, and reported.

Each affects only itself.

Anyone who may create an object decides what it contains. An object that ended its reader would end it at each restart,
until an administrator deletes the object by hand.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dovetail.api.meta import ObjectMeta

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger("dovetail.kube.unreadable")

# Receives the metadata and the problem ("cannot be read: it is nested too deeply"), once per resourceVersion.
OnUnreadable = Callable[[ObjectMeta, str], None]

_counts: Final = Counter[str]()


class UnreadableCollector:
    """Exports `dovetail_unreadable_objects_total{kind}` of this process.

    Each deployable registers one.
    """

    def collect(self) -> "Iterator[Metric]":
        """The counters, one sample for each kind."""
        # Deployables install this library; the core does not need it.
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

        family = CounterMetricFamily(
            "dovetail_unreadable_objects",
            "Objects that could not be read or handled and were left as last known, by kind.",
            labels=["kind"],
        )
        for kind, count in _counts.items():
            family.add_metric([kind], count)
        yield family


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """One version of an object that could not be read or handled."""

    uid: str
    resource_version: str
    problem: str


class UnreadableObjects:
    """The unreadable objects of one kind that exist now, by `key_of` their metadata."""

    def __init__(self, kind: str, *, report: OnUnreadable | None) -> None:
        self._kind = kind
        self._report = report
        self._found: dict[str, Unreadable] = {}

    @property
    def found(self) -> Mapping[str, Unreadable]:
        """A live, read-only view."""
        return MappingProxyType(self._found)

    def add(self, meta: ObjectMeta, *, key: str, problem: str, error: Exception | None = None) -> None:
        """Count and report this version of an object, and log its problem once.

        `error` adds its traceback to the log. A version with the same problem that was added before has no effect, and
        neither has one that is older than the known one: it is delivered once more.
        """
        known = self._found.get(key)
        new = Unreadable(uid=meta.uid, resource_version=meta.resource_version, problem=problem)
        if known is not None and (new == known or _is_older(new, than=known)):
            return
        self._found[key] = new
        _counts[self._kind] += 1
        # Not for each version: an owner who edits the object every second must not fill the log.
        if known is None or (known.uid, known.problem) != (new.uid, new.problem):
            log.warning("%s %s %s", self._kind, key, problem, exc_info=error)
        self._announce(meta, problem=problem, key=key)

    def discard(self, key: str) -> None:
        """Remove an object that can be read again, or that is gone."""
        self._found.pop(key, None)

    def discard_version(self, meta: ObjectMeta, *, key: str) -> None:
        """Remove this version of an object, which has been handled. A later one that cannot be read stays."""
        known = self._found.get(key)
        if known is not None and (known.uid, known.resource_version) == (meta.uid, meta.resource_version):
            self.discard(key)

    def _announce(self, meta: ObjectMeta, *, problem: str, key: str) -> None:
        if self._report is None:
            return
        try:
            self._report(meta, problem)
        except Exception:
            log.exception("%s %s %s, and reporting that failed", self._kind, key, problem)


def _is_older(new: Unreadable, *, than: Unreadable) -> bool:
    return new.uid == than.uid and int(new.resource_version) < int(than.resource_version)
