"""Fair share: what each account has used of late, each GPU second counting half after a half-life. Pure.

An account is one whom a quota with shares counts. Nothing is added up in memory: what was used until a noted time and
what ran since then give the same number whoever computes it, and a restart loses nothing.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.limits import Subject, binds, whom

# The name of a quota and whom of those it binds it counts.
Account = tuple[str, str]
# Levels that differ by less than this are equal, so that the order does not change with every second.
_STEP: Final = 0.05
# Whom no quota with shares binds goes as if it had used exactly what is its due.
_DUE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """`gpus` were in use from `start` to `end`, or still are where there is no end."""

    account: Account
    gpus: float
    start: datetime
    end: datetime | None = None


def account_of(quotas: Iterable[GPUQuota], subject: Subject) -> Account | None:
    """The account that the subject's use goes to: of the quota that names it most closely, then by name."""
    found = [quota for quota in quotas if quota.spec.shares is not None and binds(quota.spec, subject)]
    for quota in sorted(found, key=lambda each: (not each.spec.users, not each.spec.namespaces, each.metadata.name)):
        who = whom(quota.spec, subject)
        if who is not None:
            return quota.metadata.name, who
    return None


def decayed(gpu_seconds: float, *, seconds: float, half_life_seconds: float) -> float:
    """What is left of a use after some time."""
    return float(gpu_seconds * 0.5 ** (max(0.0, seconds) / half_life_seconds))


def used_by(spell: Spell, *, since: datetime, now: datetime, half_life_seconds: float) -> float:
    """GPU seconds that a spell has used after `since`, as they count now: the integral of its decaying parts."""
    start = max(spell.start, since)
    end = min(spell.end or now, now)
    if end <= start:
        return 0.0
    scale = half_life_seconds / math.log(2)
    return spell.gpus * scale * (_left(end, now, half_life_seconds) - _left(start, now, half_life_seconds))


def usage(
    noted: Mapping[Account, float],
    spells: Iterable[Spell],
    *,
    as_of: Mapping[str, datetime],
    now: datetime,
    half_life_seconds: float,
) -> dict[Account, float]:
    """What each account has used of late: what was `noted`, at the time `as_of` by quota, and what ran since then."""
    found = {
        account: decayed(amount, seconds=(now - as_of[account[0]]).total_seconds(), half_life_seconds=half_life_seconds)
        for account, amount in noted.items()
    }
    for spell in spells:
        since = as_of.get(spell.account[0], spell.start)
        used = used_by(spell, since=since, now=now, half_life_seconds=half_life_seconds)
        found[spell.account] = found.get(spell.account, 0.0) + used
    return found


def levels(used: Mapping[Account, float], *, shares: Mapping[str, int]) -> dict[Account, float]:
    """How much of its due each account has used: 0 nothing, 1 exactly its part. `shares` are the quotas'."""
    total_used = sum(used.values())
    total_shares = sum(shares[quota] for quota, _ in used)
    if total_used <= 0 or not total_shares:
        return dict.fromkeys(used, 0.0)
    due = total_used / total_shares
    return {account: _stepped(amount / shares[account[0]] / due) for account, amount in used.items()}


def level_of(account: Account | None, *, known: Mapping[Account, float]) -> float:
    """The level of an account; one that has used nothing goes first, who has no account as if it had had its due."""
    return _DUE if account is None else known.get(account, 0.0)


def _left(at: datetime, now: datetime, half_life_seconds: float) -> float:
    return float(0.5 ** ((now - at).total_seconds() / half_life_seconds))


def _stepped(level: float) -> float:
    return round(level / _STEP) * _STEP
