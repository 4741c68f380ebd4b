"""Why a node does not fit: a closed set of kinds, each with one sentence and numbers. Values only."""

from dataclasses import dataclass, field
from typing import Final, Literal

from dovetail.api.meta import MessageDetail

RefusalKind = Literal[
    "NoGPU", "WrongVendor", "WrongModel", "TooFewDevices", "DeviceIndex", "NotManaged", "Cordoned", "Unhealthy",
    "Quota", "DevicesBusy", "ShareShort", "MemoryGuard", "TenantLimit", "ModeConflict", "Held", "CPUOrMemoryShort",
]  # fmt: skip

# Nothing that ends or is evicted on the node would make it fit: kube-scheduler need not try preemption there.
UNRESOLVABLE: Final[frozenset[RefusalKind]] = frozenset(
    {
        "NoGPU", "WrongVendor", "WrongModel", "TooFewDevices", "DeviceIndex", "NotManaged", "Cordoned", "Unhealthy",
        "Quota",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One node's answer when it does not fit.

    `message` has numbers of this node; `text` is the same for every node that refuses for the same cause, since
    kube-scheduler counts equal texts in its event. `details` are the clauses of `message` without the node's name in
    front, and `text_details` those of `text`; empty where words of others are passed on.
    """

    kind: RefusalKind
    message: str
    text: str
    details: tuple[MessageDetail, ...] = field(default=(), compare=False)
    text_details: tuple[MessageDetail, ...] = field(default=(), compare=False)

    @property
    def unresolvable(self) -> bool:
        """Whether no departure could make the node fit."""
        return self.kind in UNRESOLVABLE
