"""Limits before authentication: which Host headers are served, and how many requests a client may send."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from dovetail.process.rate_limit import Allowance, Spending

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_MOST_CLIENTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests a second for each address and for all together; a burst is twice as many."""

    each: float = 100.0
    all: float = 1000.0


class Hosts:
    """The names by which the gateway may be called.

    A page of another site can point its own name to this address (DNS rebinding); its requests then carry that name.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = _LOOPBACK | {name.lower() for name in names}

    def admits(self, header: str) -> bool:
        """Whether the Host header, with or without a port, names the gateway."""
        host, separator, port = header.lower().rpartition(":")
        return header.lower() in self._names or (bool(separator) and port.isdecimal() and host in self._names)


class RateLimit:
    """Counts requests by address and in total. None as `rates` limits nothing."""

    def __init__(self, rates: Rates | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._each: OrderedDict[str, Spending] = OrderedDict()
        self._all = Spending(_allowance(rates.all)) if rates else None

    def wait_seconds(self, address: str) -> float:
        """Count a request of the address; if that is one too many, do not count it and return the seconds to wait."""
        if self._rates is None or self._all is None:
            return 0.0
        now, own = self._clock(), self._of(address, allowance=_allowance(self._rates.each))
        if (wait := max(own.wait_seconds(now=now), self._all.wait_seconds(now=now))) > 0:
            return wait
        own.spend(now=now)
        self._all.spend(now=now)
        return 0.0

    def _of(self, address: str, *, allowance: Allowance) -> Spending:
        own = self._each.setdefault(address, Spending(allowance))
        self._each.move_to_end(address)
        if len(self._each) > _MOST_CLIENTS:
            self._each.popitem(last=False)
        return own


def _allowance(per_second: float) -> Allowance:
    return Allowance(burst=max(1, int(2 * per_second)), every_seconds=1.0 / per_second)
