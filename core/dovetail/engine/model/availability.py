"""Why a device takes no new work: a closed set of causes, each with one sentence. Values only."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, get_args

from dovetail.api.gpunode import Cause

_ORDER: Final = {cause: at for at, cause in enumerate(get_args(Cause))}

OF_NODE: Final[frozenset[Cause]] = frozenset(
    {"NodeGone", "NodeNotReady", "ServedTwice", "NotManaged", "NodeCordoned", "NodeDrained"}
)
# The node takes no pods at all, with or without GPUs.
BLOCKING: Final[frozenset[Cause]] = frozenset({"NodeGone", "NodeNotReady", "ServedTwice"})
CORDONED_NODE: Final[frozenset[Cause]] = frozenset({"NodeCordoned", "NodeDrained"})
BROKEN: Final[frozenset[Cause]] = frozenset({"DriverUnreadable", "Unhealthy"})
CLOSED: Final[frozenset[Cause]] = frozenset({"Reshaping", "Cordoned", "Strangers"})

_WORDS: Final[dict[Cause, str]] = {
    "NodeGone": "node is gone",
    "NodeNotReady": "node is not ready",
    "NotManaged": "node is not managed by Dovetail",
    "NodeCordoned": "node is cordoned",
    "NodeDrained": "node is being drained",
    "Unhealthy": "GPU is unhealthy",
    "Reshaping": "GPU is being partitioned again",
    "Cordoned": "GPU is cordoned",
    "Strangers": "GPU is used by processes without an allocation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """One cause, with what is known of it, such as the driver's error."""

    cause: Cause
    detail: str = ""

    @property
    def text(self) -> str:
        """The words that all nodes and devices of this cause and detail share."""
        words = _WORDS.get(self.cause, "")
        return ": ".join(filter(None, (words, self.detail)))

    def on(self, node: str, *, index: int | None = None) -> str:
        """The sentence that names the node, and the device where the cause is its own."""
        if self.cause == "DriverUnreadable":
            # What follows a semicolon is a hint, or a time.
            said, semicolon, more = self.detail.partition(";")
            return f"{said} on node {node}{semicolon}{more}"
        if self.cause == "ServedTwice":
            return f"node {node}: {self.detail}"
        if self.cause in OF_NODE:
            return self.text.replace("node is", f"node {node} is", 1)
        device = "a GPU" if index is None else f"GPU {index}"
        return self.text.replace("GPU is", f"{device} on node {node} is", 1)


def in_order(found: Iterable[Unavailable]) -> tuple[Unavailable, ...]:
    """The causes in the order in which they are reported."""
    return tuple(sorted(found, key=lambda each: _ORDER[each.cause]))


def without(found: Iterable[Unavailable], *, causes: Collection[Cause]) -> tuple[Unavailable, ...]:
    """What is left once these causes are repaired."""
    return tuple(each for each in found if each.cause not in causes)


def first_of(found: Iterable[Unavailable], *, causes: frozenset[Cause]) -> Unavailable | None:
    """The first of these causes, in the order in which they are reported; None without one."""
    return next((each for each in in_order(found) if each.cause in causes), None)
