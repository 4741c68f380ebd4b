"""The protocol for freezing and resuming a tenant. Values and the protocol only.

There are two implementations. The freezer stops a pod's processes and leaves all memory in place. CUDA's checkpoint
also moves the device's memory to the host. The second wraps the first, because the order matters: a frozen process
answers no checkpoint call. Suspend is lock, checkpoint, freeze; resume is thaw, restore, unlock.
"""

from dataclasses import dataclass
from typing import Protocol

from dovetail.api.gpunodetenants import NodeTenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a suspend or resume failed: a reason for metrics and events, a message with numbers.

    `lost` means that the tenant never runs again, whatever is tried: its restore has failed for good.
    """

    reason: str
    message: str
    lost: bool = False


class Suspender(Protocol):
    """Suspends and resumes tenants.

    Both calls block, for milliseconds or, where memory moves, seconds. The caller runs them in a thread, and never two
    at once for one tenant. Both are idempotent: they return at once for a tenant that is already suspended or running.
    A tenant that has ended meanwhile is no refusal.
    """

    @property
    def name(self) -> str:
        """The name in metrics and events."""
        ...

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        """Stop all processes of a tenant.

        After a refusal the tenant runs: nothing is left half done.
        """
        ...

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        """Resume a tenant.

        After a refusal it stays stopped, and the caller retries unless it is lost.
        """
        ...
