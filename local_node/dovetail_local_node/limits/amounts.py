"""What a pod's requests and limits mean for a cgroup. Pure.

As in Kubernetes: limits cap, and a request for CPU weighs while the CPUs are busy. The formulas are kubelet's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Resources
from dovetail.formats.quantities import Quantity, QuantityError, milli, whole

PERIOD_US: Final = 100_000
_LEAST_QUOTA_US: Final = 1_000
_LEAST_SHARES: Final = 2
_MOST_SHARES: Final = 262_144
_MOST_WEIGHT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The caps of one pod, None for no cap, and its shares of busy CPUs (1024 for each CPU that it requests)."""

    memory_bytes: int | None = None
    cpu_milli: int | None = None
    cpu_shares: int = _LEAST_SHARES

    @property
    def quota_us(self) -> int | None:
        """Microseconds of CPU time in each `PERIOD_US`."""
        return None if self.cpu_milli is None else max(_LEAST_QUOTA_US, self.cpu_milli * PERIOD_US // 1000)

    @property
    def cpu_weight(self) -> int:
        """The shares as cgroup v2 counts them, from 1 to 10,000."""
        return 1 + (self.cpu_shares - _LEAST_SHARES) * (_MOST_WEIGHT - 1) // (_MOST_SHARES - _LEAST_SHARES)


def of_container(amounts: Resources) -> Limits:
    """The limits of a container. An amount of 0, or one that is no quantity, is none: the API server refuses those."""
    memory, cpu = (_amount(amounts.limits, name=name) for name in ("memory", "cpu"))
    asked = _amount(amounts.requests, name="cpu") or 0
    return Limits(
        memory_bytes=memory or None,
        cpu_milli=cpu or None,
        cpu_shares=min(_MOST_SHARES, max(_LEAST_SHARES, asked * 1024 // 1000)),
    )


def _amount(amounts: Mapping[str, Quantity], *, name: str) -> int | None:
    if name not in amounts:
        return None
    try:
        return milli(amounts[name]) if name == "cpu" else whole(amounts[name])
    except QuantityError:
        return None
