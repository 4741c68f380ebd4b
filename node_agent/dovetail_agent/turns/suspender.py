"""How a tenant is stopped where it is, and let go on: the protocol that turns use. Values and the protocol only.

Two things can do it: the freezer, which stops a pod's processes and leaves all memory where it is, and CUDA's
checkpoint, which also moves the device's memory to the host. The second is built around the first, for the order
matters: a frozen process answers no checkpoint call, so it is lock, checkpoint, freeze; and thaw, restore, unlock.
"""

from dataclasses import dataclass
from typing import Protocol

from dovetail_agent.tenants import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a tenant was not stopped or could not go on: a word for metrics and events, and a sentence with numbers.

    `lost` says that it never goes on again, whatever is tried: its restore has failed for good.
    """

    reason: str
    message: str
    lost: bool = False


class Suspender(Protocol):
    """Stops tenants and lets them go on.

    Both calls block, for milliseconds or, where memory moves, seconds: the caller gives them a thread, and never makes
    two at once for one tenant. Both may be repeated: stopping what stands still and waking what runs are done at once.
    A tenant that has ended meanwhile is no refusal.
    """

    @property
    def name(self) -> str:
        """As metrics and events call it."""
        ...

    def suspend(self, tenant: Tenant) -> Refusal | None:
        """Stop all processes of a tenant. After a refusal the tenant runs: nothing is left half done."""
        ...

    def resume(self, tenant: Tenant) -> Refusal | None:
        """Let a tenant go on. After a refusal it stands still, and is tried again unless it is lost."""
        ...
