"""The DRA drivers that assign a node's GPUs, from their ResourceSlices.

Pure: the clock is an argument.

kubelet deletes the slices of its node when it starts, and the driver publishes them again. So a deleted slice counts
for some time: a guard that forgets at once would open exactly when kubelet restarts.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Node, ResourceSlice
from dovetail.decoding import decode
from dovetail.pods.node_affinity import term_admits

ABSENT_SECONDS: Final = 60.0
# The name that `serving` returns for a driver that is not known yet.
UNKNOWN: Final = ""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where a driver's devices can be used: one node, nodes of a selector (JSON), or all nodes."""

    driver: str
    node: str = ""
    selector: bytes = b""

    def covers(self, node: Node) -> bool:
        """Whether a node can use the devices."""
        if self.node:
            return self.node == node.metadata.name
        return not self.selector or any(term_admits(node, term=term) for term in self._terms)

    @cached_property
    def _terms(self) -> Sequence[Mapping[str, Any]]:
        selector = decode(self.selector, as_type=dict[str, Any])
        return tuple(selector.get("nodeSelectorTerms") or ())


class NodeDrivers:
    """The drivers by node. A slice counts until it has been absent for `absent_seconds`.

    The time before this process is unknown: a slice may have been deleted a moment ago. So for `absent_seconds` after
    the start, a node whose pods hold resource claims counts as served by an unknown driver. A node without such pods is
    open: no driver has assigned a device there, and none can before its slices are back.
    """

    def __init__(self, *, clock: Callable[[], float], absent_seconds: float = ABSENT_SECONDS) -> None:
        self._clock = clock
        self._absent_seconds = absent_seconds
        self._known_at = clock() + absent_seconds
        self._starting = absent_seconds > 0
        self._slices: dict[str, frozenset[Reach]] = {}
        self._offered: Counter[Reach] = Counter()
        # Until when a reach counts that no slice has any more.
        self._leaving: dict[Reach, float] = {}
        self._by_node: dict[str, set[Reach]] = {}
        self._wide: set[Reach] = set()

    def slice_changed(self, found: ResourceSlice) -> Collection[Reach]:
        """A ResourceSlice was added or modified. Returns the reaches that begin to count."""
        name, reaches = found.metadata.name, frozenset(_reaches(found))
        before = self._slices.get(name, frozenset())
        self._slices[name] = reaches
        self._offered.update(reaches - before)
        self._withdraw(before - reaches)
        new = [reach for reach in reaches if reach not in self._wide and reach not in self._by_node.get(reach.node, ())]
        for reach in new:
            (self._by_node.setdefault(reach.node, set()) if reach.node else self._wide).add(reach)
        return new

    def slice_gone(self, found: ResourceSlice) -> None:
        """A ResourceSlice was deleted: its reach still counts for `absent_seconds`."""
        self._withdraw(self._slices.pop(found.metadata.name, frozenset()))

    def time_passes(self) -> Collection[Reach]:
        """The reaches that stopped counting since the last call."""
        now = self._clock()
        # A slice that came back is offered again: drop its mark only.
        ended = [reach for reach, until in self._leaving.items() if until <= now or self._offered[reach] > 0]
        for reach in ended:
            del self._leaving[reach]
        over = [reach for reach in ended if self._offered[reach] <= 0]
        for reach in over:
            self._forget(reach)
        return over

    def start_is_over(self) -> bool:
        """Whether nodes whose pods hold resource claims have opened since the last call; true once."""
        over = self._starting and self._clock() >= self._known_at
        self._starting = self._starting and not over
        return over

    def serving(self, node: Node, *, has_claims: bool) -> tuple[str, ...]:
        """The names of the drivers that assign the node's devices.

        `has_claims`: pods there hold resource claims.
        """
        reaches = [*self._by_node.get(node.metadata.name, ()), *(reach for reach in self._wide if reach.covers(node))]
        found = {reach.driver for reach in reaches}
        if not found and has_claims and self._starting:
            return (UNKNOWN,)
        return tuple(sorted(found))

    def _withdraw(self, reaches: Collection[Reach]) -> None:
        for reach in reaches:
            self._offered[reach] -= 1
            if self._offered[reach] <= 0:
                self._leaving[reach] = self._clock() + self._absent_seconds

    def _forget(self, reach: Reach) -> None:
        self._offered.pop(reach, None)
        self._wide.discard(reach)
        self._by_node.get(reach.node, set()).discard(reach)
        if not self._by_node.get(reach.node, ()):
            self._by_node.pop(reach.node, None)


def drivers_now(slices: Iterable[ResourceSlice]) -> NodeDrivers:
    """The drivers of these slices alone, at one moment."""
    drivers = NodeDrivers(clock=lambda: 0.0, absent_seconds=0.0)
    for each in slices:
        drivers.slice_changed(each)
    return drivers


def _reaches(found: ResourceSlice) -> Iterator[Reach]:
    """Where the devices of a slice can be used.

    Each device says so where the slice itself does not.
    """
    spec = found.spec
    devices = spec.devices or ()
    for said in (spec, *devices, *(device.basic for device in devices if device.basic is not None)):
        if said.node_name:
            yield Reach(driver=spec.driver, node=said.node_name)
        elif said.node_selector is not None:
            yield Reach(driver=spec.driver, selector=msgspec.json.encode(said.node_selector))
        elif said.all_nodes:
            yield Reach(driver=spec.driver)
