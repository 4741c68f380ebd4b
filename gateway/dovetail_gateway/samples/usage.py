"""GPU time by day, namespace, project, user and model: each share counts as its part of a device. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

from dovetail_gateway.samples.bounds import OTHERS
from dovetail_gateway.samples.readings import Holding

# Longer than the names of service accounts; PostgreSQL indexes no more than some 2,700 bytes. It keeps no NUL either.
MOST_OF_A_USER: Final = 512
# Accounts of one namespace on one day. Projects and users are labels and annotations, which users choose.
MOST_OF_A_DAY: Final = 500
# Further ones have an account for each of so many models. Models are what nodes report.
MOST_MODELS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Account:
    """For whom GPU time counts on a day (UTC)."""

    day: date
    namespace: str
    project: str
    user: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """GPU seconds that were promised, and what of them was at work by the measured utilization. They only grow."""

    gpu_seconds: float = 0.0
    used_seconds: float = 0.0

    def plus(self, other: "Used") -> "Used":
        """The sum."""
        return Used(
            gpu_seconds=self.gpu_seconds + other.gpu_seconds, used_seconds=self.used_seconds + other.used_seconds
        )

    def at_least(self, other: "Used") -> "Used":
        """The larger of each: two gateways count the same, and one that was away has less."""
        return Used(
            gpu_seconds=max(self.gpu_seconds, other.gpu_seconds),
            used_seconds=max(self.used_seconds, other.used_seconds),
        )


class Ledger:
    """GPU time by account. Mutable."""

    def __init__(self) -> None:
        # By day: an answer reads a month of a year.
        self._used: dict[date, dict[Account, Used]] = {}
        self._changed: set[Account] = set()
        # How many accounts each namespace has on a day.
        self._many: Counter[tuple[date, str]] = Counter()

    def add(self, more: Mapping[Account, Used]) -> None:
        """Add time. What is beyond `MOST_OF_A_DAY` counts for `OTHERS`."""
        for wanted, used in more.items():
            day = self._used.setdefault(wanted.day, {})
            account = self._account_of(wanted)
            self._put(account, used=day.get(account, Used()).plus(used))
            self._changed.add(account)

    def _account_of(self, wanted: Account) -> Account:
        """The account for which the time of this one counts."""
        many, there = self._many[wanted.day, wanted.namespace], self._used[wanted.day]
        if many < MOST_OF_A_DAY:
            return wanted
        found = counted_as(wanted, among=there)
        return _further(wanted) if found.model == OTHERS and many < MOST_OF_A_DAY + MOST_MODELS else found

    def _put(self, account: Account, *, used: Used) -> None:
        day = self._used[account.day]
        self._many[account.day, account.namespace] += account not in day
        day[account] = used

    def restore(self, known: Mapping[Account, Used]) -> None:
        """Take what another process counted."""
        for account, used in known.items():
            before = self._used.setdefault(account.day, {}).get(account, Used())
            self._put(account, used=before.at_least(used))

    def take_changed(self) -> dict[Account, Used]:
        """The accounts that changed since this was last called."""
        found = {account: self._used[account.day][account] for account in self._changed}
        self._changed.clear()
        return found

    def between(self, since: date, *, until: date) -> dict[Account, Used]:
        """The accounts of the days from `since`, before `until`, as they are now."""
        found = dict[Account, Used]()
        for day, used in self._used.items():
            if since <= day < until:
                found.update(used)
        return found

    def forget(self, *, before: date) -> None:
        """Drop the days before that one."""
        self._used = {day: used for day, used in self._used.items() if day >= before}
        self._changed = {each for each in self._changed if each.day >= before}
        self._many = Counter({key: count for key, count in self._many.items() if key[0] >= before})

    @property
    def first_day(self) -> date | None:
        """The earliest day; None without any."""
        return min(self._used, default=None)


def counted_as(account: Account, *, among: Collection[Account]) -> Account:
    """The account itself where it is among these, otherwise that of all further ones of its namespace.

    That is the one of its model, or, if that is not among these either, the one of all further models.
    """
    further = _further(account)
    return next((each for each in (account, further) if each in among), replace(further, model=OTHERS))


def _further(account: Account) -> Account:
    return replace(account, project=OTHERS, user=OTHERS)


def spent(holdings: Iterable[Holding], *, since: datetime, until: datetime) -> dict[Account, Used]:
    """What these holdings used between two times, each from its own start."""
    found: dict[Account, Used] = {}
    for holding in holdings:
        begin = max(since, holding.since or since)
        end = until if holding.until is None else min(until, holding.until)
        for day, seconds in _by_day(begin, end=end):
            account = Account(
                day=day,
                namespace=holding.namespace,
                project=holding.project,
                user=holding.user.replace("\x00", "")[:MOST_OF_A_USER],
                model=holding.model,
            )
            used = Used(
                gpu_seconds=holding.promised * seconds,
                used_seconds=holding.promised * (holding.utilization or 0.0) * seconds,
            )
            found[account] = found.get(account, Used()).plus(used)
    return found


def _by_day(begin: datetime, *, end: datetime) -> Iterable[tuple[date, float]]:
    """The seconds of each day (UTC) from `begin` to `end`."""
    begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    while begin < end:
        midnight = datetime.combine(begin.date() + timedelta(days=1), datetime.min.time(), UTC)
        stop = min(midnight, end)
        yield begin.date(), (stop - begin).total_seconds()
        begin = stop
