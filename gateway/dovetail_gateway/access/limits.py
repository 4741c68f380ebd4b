"""Where a request comes from, and how many requests an address or a user may send."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.process.rate_limit import Allowance, Spending

# What all service accounts of a namespace may have together of what each user may have, in connections and requests.
MOST_USERS: Final = 4
ACCOUNT: Final = "system:serviceaccount:"
_MOST_KEYS: Final = 10_000
# What a provider gives one customer: with a limit for each address, one customer would have 2^64 of them.
_IPV6_PREFIX: Final = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests a second; a burst is twice as many.

    - `each`: of one user, and of one address in whose requests no user is known yet; all service accounts of one
      namespace together have `MOST_USERS` times that
    - `all`: of all addresses together, in whose requests no user is known yet
    """

    each: float = 100.0
    all: float = 1000.0


class Addresses:
    """Tells where requests come from, behind proxies too.

    X-Forwarded-For counts only as far as `proxies` wrote it: anyone can send the header.
    """

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = proxies

    def is_proxy(self, address: str) -> bool:
        """Whether the address is a trusted proxy's."""
        found = _parsed(address)
        return found is not None and any(found in network for network in self._proxies)

    def client(self, peer: str, *, forwarded: Sequence[str]) -> str:
        """The client's address; `forwarded` are the values of X-Forwarded-For, in their order.

        It is the last one that is no trusted proxy's. A text that is no address counts as its proxy's.
        """
        client = peer
        for text in reversed([each.strip() for value in forwarded for each in value.split(",")]):
            if not self.is_proxy(client) or _parsed(text) is None:
                break
            client = text
        return client


def source(address: str) -> str:
    """What limits of addresses count by: the address, and of IPv6 its network of 64 bits."""
    found = _parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return address


def namespace_of(username: str) -> str | None:
    """The namespace of a service account; None for any other user."""
    if not username.startswith(ACCOUNT):
        return None
    return username.removeprefix(ACCOUNT).partition(":")[0]


def tenant_of(username: str) -> str:
    """Whose turns and bounds a user shares: those of all service accounts of its namespace, or its own.

    Who may create service accounts in a namespace has any number of users there.
    """
    namespace = namespace_of(username)
    return username if namespace is None else f"system:serviceaccounts:{namespace}"


class Budgets:
    """An allowance for each key."""

    def __init__(self, allowance: Allowance, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance = allowance
        self._clock = clock
        self._spendings: OrderedDict[str, Spending] = OrderedDict()

    def wait_seconds(self, key: str) -> float:
        """Seconds until the key may spend again; 0 where it may now."""
        found = self._spendings.get(key)
        return 0.0 if found is None else found.wait_seconds(now=self._clock())

    def spend(self, key: str) -> None:
        """Spend one of the key's allowance. Call `wait_seconds` first."""
        own = self._spendings.setdefault(key, Spending(self._allowance))
        own.spend(now=self._clock())
        self._spendings.move_to_end(key)
        if len(self._spendings) > _MOST_KEYS:
            self._spendings.popitem(last=False)


class RateLimit:
    """Counts requests by user, or by address where no user is known. None as `rates` limits nothing."""

    def __init__(self, rates: Rates | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        each = Allowance(burst=1, every_seconds=0.0) if rates is None else _allowance(rates.each)
        self._users = Budgets(each, clock=clock)
        self._tenants = Budgets(each if rates is None else _allowance(MOST_USERS * rates.each), clock=clock)
        self._addresses = Budgets(each, clock=clock)
        self._all = Budgets(each if rates is None else _allowance(rates.all), clock=clock)

    def wait_of_user(self, user: str) -> float:
        """Count a request of the user; if that is one too many, do not count it and return the seconds to wait."""
        budgets, tenant = [(self._users, user)], tenant_of(user)
        if tenant != user:
            budgets.append((self._tenants, tenant))
        return self._counted(*budgets)

    def wait_of_address(self, address: str) -> float:
        """The same of a request from the address in which no user is known."""
        return self._counted((self._addresses, source(address)), (self._all, ""))

    def _counted(self, *budgets: tuple[Budgets, str]) -> float:
        if self._rates is None:
            return 0.0
        if (wait := max(budget.wait_seconds(key) for budget, key in budgets)) > 0:
            return wait
        for budget, key in budgets:
            budget.spend(key)
        return 0.0


def _allowance(per_second: float) -> Allowance:
    return Allowance(burst=max(1, int(2 * per_second)), every_seconds=1.0 / per_second)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
