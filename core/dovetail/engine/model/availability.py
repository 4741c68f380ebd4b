"""Why a device takes no new work: a closed set of causes, each with one sentence. Values only."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, get_args

from dovetail.api.gpunode import Cause
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.nodes import AS_SAID, CAUSES, DETAIL, DRIVER_UNREADABLE, HINT, SERVED_TWICE

_ORDER: Final = {cause: at for at, cause in enumerate(get_args(Cause))}

OF_NODE: Final[frozenset[Cause]] = frozenset(
    {"NodeGone", "NodeNotReady", "ServedTwice", "NotManaged", "NodeCordoned", "NodeDrained"}
)
# The node takes no pods at all, with or without GPUs.
BLOCKING: Final[frozenset[Cause]] = frozenset({"NodeGone", "NodeNotReady", "ServedTwice"})
CORDONED_NODE: Final[frozenset[Cause]] = frozenset({"NodeCordoned", "NodeDrained"})
BROKEN: Final[frozenset[Cause]] = frozenset({"DriverUnreadable", "Unhealthy"})
CLOSED: Final[frozenset[Cause]] = frozenset({"Reshaping", "Cordoned", "Strangers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """One cause, with what is known of it, such as the driver's error."""

    cause: Cause
    detail: str = ""

    @property
    def shared(self) -> Sentence:
        """The words that all nodes and devices of this cause and detail share."""
        if self.cause not in CAUSES:
            return AS_SAID(detail=self.detail)
        return CAUSES[self.cause].anywhere() + self._detail

    @property
    def text(self) -> str:
        """The same as a text."""
        return self.shared.message

    def on(self, node: str, *, index: int | None = None) -> Sentence:
        """The sentence that names the node, and the device where the cause is its own."""
        if self.cause == "DriverUnreadable":
            # What follows a semicolon is a hint, or a time.
            said, semicolon, more = self.detail.partition(";")
            problem = DRIVER_UNREADABLE(problem=said, node=node)
            return problem + HINT(hint=more) if semicolon else problem
        if self.cause == "ServedTwice":
            return SERVED_TWICE(node=node, conflict=self.detail)
        clauses = CAUSES[self.cause]
        if clauses.on_device is not None and index is not None:
            return clauses.on_device(node=node, index=index) + self._detail
        return clauses.on_node(node=node) + self._detail

    @property
    def _detail(self) -> Sentence:
        return DETAIL(detail=self.detail) if self.detail else NOTHING


def in_order(found: Iterable[Unavailable]) -> tuple[Unavailable, ...]:
    """The causes in the order in which they are reported."""
    return tuple(sorted(found, key=lambda each: _ORDER[each.cause]))


def without(found: Iterable[Unavailable], *, causes: Collection[Cause]) -> tuple[Unavailable, ...]:
    """What is left once these causes are repaired."""
    return tuple(each for each in found if each.cause not in causes)


def first_of(found: Iterable[Unavailable], *, causes: frozenset[Cause]) -> Unavailable | None:
    """The first of these causes, in the order in which they are reported; None without one."""
    return next((each for each in in_order(found) if each.cause in causes), None)
