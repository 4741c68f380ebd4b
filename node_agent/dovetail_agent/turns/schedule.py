"""Decides whose turn it is on each device. Pure: the clock is an argument.

A tenant on several devices runs on all of them or on none. Tenants that share a device are rivals, and all tenants that
rivalry connects form one circle. The turns of a circle begin and end together: otherwise a tenant on two devices would
wait for ever for both to be free at once.

Within a circle, the next turn goes to the tenant with the least run time for its weight (stride scheduling: time run,
divided by weight), and then in that order to all others that share no device with those before. A tenant that has
waited for `LONGEST_WAIT_TURNS` comes first, so that no weight starves another: it runs at most as many turns later as
the circle has tenants.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

# 30 s with turns of 2 s: leases, readiness probes and NCCL's time-outs are longer.
LONGEST_WAIT_TURNS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A tenant that wants to compute, its devices (UUIDs) and its weight."""

    uid: str
    devices: frozenset[str]
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderState:
    """A contender's state: seconds run for its weight, end of its turn or start of its wait.

    Without rivals, its turn has no end and it is not charged.
    """

    contender: Contender
    charged_seconds: float = 0.0
    turn_ends: float | None = None
    waits_since: float | None = None

    @property
    def contends(self) -> bool:
        """Whether it has rivals."""
        return self.turn_ends != math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """All turns of a node at one moment, by the tenants' UIDs."""

    standings: Mapping[str, ContenderState] = field(default_factory=lambda: MappingProxyType({}))
    at: float = 0.0

    @property
    def waiting(self) -> frozenset[str]:
        """UIDs of the tenants to keep frozen."""
        return frozenset(uid for uid, each in self.standings.items() if each.turn_ends is None)

    @property
    def next_at(self) -> float:
        """When the first turn ends; infinite while no tenant has rivals."""
        return min((each.turn_ends for each in self.standings.values() if each.turn_ends is not None), default=math.inf)


def step(turns: Turns, *, contenders: Iterable[Contender], now: float, turn_seconds: float) -> Turns:
    """Return the turns at `now` with these contenders.

    A tenant that is missing is no longer a rival.
    """
    charged = _charged(turns, now=now)
    found = {each.uid: each for each in contenders}
    rivals = _rivals(found.values())
    standings: dict[str, ContenderState] = {}
    for circle in _circles(rivals):
        members = {uid: _entering(found[uid], known=charged, rivals=rivals[uid]) for uid in circle}
        if len(members) == 1:
            standings |= {uid: replace(each, turn_ends=math.inf, waits_since=None) for uid, each in members.items()}
        else:
            standings |= _dealt(members, rivals=rivals, now=now, turn_seconds=turn_seconds)
    return Turns(standings=MappingProxyType(standings), at=now)


def _charged(turns: Turns, *, now: float) -> dict[str, ContenderState]:
    elapsed = max(0.0, now - turns.at)
    return {
        uid: replace(each, charged_seconds=each.charged_seconds + elapsed / each.contender.weight)
        if each.contends and each.turn_ends is not None
        else each
        for uid, each in turns.standings.items()
    }


def _rivals(contenders: Iterable[Contender]) -> dict[str, set[str]]:
    on_device: dict[str, set[str]] = {}
    listed = list(contenders)
    for each in listed:
        for device in each.devices:
            on_device.setdefault(device, set()).add(each.uid)
    return {each.uid: set[str]().union(*(on_device[device] for device in each.devices)) - {each.uid} for each in listed}


def _circles(rivals: Mapping[str, set[str]]) -> list[list[str]]:
    circles, left = [], set(rivals)
    while left:
        circle, edge = set[str](), {min(left)}
        while edge:
            circle |= edge
            edge = set[str]().union(*(rivals[uid] for uid in edge)) - circle
        circles.append(sorted(circle))
        left -= circle
    return circles


def _entering(contender: Contender, *, known: Mapping[str, ContenderState], rivals: set[str]) -> ContenderState:
    """Return its state so far.

    A tenant that begins to contend starts level with its least served rival: idle time earns nothing.
    """
    before = known.get(contender.uid, ContenderState(contender=contender, turn_ends=math.inf))
    standing = replace(before, contender=contender)
    if before.contends or not rivals:
        return standing
    others = [known[uid] for uid in rivals if uid in known]
    contending = [each.charged_seconds for each in others if each.contends]
    owed = min(contending) if contending else max((each.charged_seconds for each in others), default=0.0)
    return replace(standing, charged_seconds=max(standing.charged_seconds, owed), turn_ends=None)


def _dealt(
    members: Mapping[str, ContenderState], *, rivals: Mapping[str, set[str]], now: float, turn_seconds: float
) -> dict[str, ContenderState]:
    """Return a circle's states: turns that continue, and the next ones where a device is free."""
    ends = min((each.turn_ends for each in members.values() if each.turn_ends is not None), default=now)
    goes_on = {uid for uid, each in members.items() if each.turn_ends is not None} if ends > now else set[str]()
    ends = ends if goes_on else now + turn_seconds
    runs = set(goes_on)
    for uid in _order(members, now=now, turn_seconds=turn_seconds):
        if not rivals[uid] & runs:
            runs.add(uid)
    return {
        uid: replace(each, turn_ends=ends, waits_since=None)
        if uid in runs
        else replace(each, turn_ends=None, waits_since=now if each.waits_since is None else each.waits_since)
        for uid, each in members.items()
    }


def _order(members: Mapping[str, ContenderState], *, now: float, turn_seconds: float) -> Sequence[str]:
    """Sort: overdue tenants first, the longest wait leading; then by run time for their weight."""

    def key(uid: str) -> tuple[bool, float, str]:
        each = members[uid]
        overdue = each.waits_since is not None and now - each.waits_since >= LONGEST_WAIT_TURNS * turn_seconds
        return not overdue, each.waits_since if overdue and each.waits_since is not None else each.charged_seconds, uid

    return sorted(members, key=key)
