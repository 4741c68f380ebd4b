"""Fair share: recent usage of each account, which decays by half every half-life. Pure.

An account is what a quota with shares counts: a namespace, a user, or all subjects together. In a tree, a quota
without `shares` has one. No sum is kept in memory:
recorded usage and the use since then give the same number in every process, and a restart loses nothing.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.subjects import Subject, binding, specificity, subject_name
from dovetail.queue.quota_tree.parents import acts_as_parent_alone, ancestors_of
from dovetail.queue.quota_tree.tree import is_in_tree

# The name of a quota, and the name that it counts the subject as.
Account = tuple[str, str]
# Levels that differ by less than this are equal, so that the order does not change every second.
_STEP: Final = 0.05
# The level of a subject without an account: as if it had used exactly its share.
_DUE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """`gpus` GPUs were in use from `start` to `end`, or still are where `end` is None."""

    account: Account
    gpus: float
    start: datetime
    end: datetime | None = None


def shares_of(quotas: Collection[GPUQuota]) -> dict[str, int]:
    """The shares of each quota that has some, by name; `quotas` are all that exist.

    In a tree, each one has, except those that act as parents alone: no job counts for them.
    """
    inside, parents = is_in_tree(quotas), {quota.spec.parent for quota in quotas} - {None}
    return {
        quota.metadata.name: quota.spec.shares or 1
        for quota in quotas
        if quota.spec.shares is not None
        or (quota.metadata.name in inside and not acts_as_parent_alone(quota, parents=parents))
    }


def account_of(quotas: Iterable[GPUQuota], *, subject: Subject, lowest: str | None = None) -> Account | None:
    """The account charged for the subject's use: that of the most specific quota with shares, then by name.

    `lowest` is the quota of the tree that the subject counts for. Without `shares` it has one share, and is the account
    instead of those above it.
    """
    bound = binding(quotas, subject=subject)
    found = [quota for quota in bound if quota.spec.shares is not None]
    accounts = (
        (quota.metadata.name, who)
        for quota in sorted(found, key=lambda each: (*specificity(each), each.metadata.name))
        if (who := subject_name(quota.spec, subject=subject)) is not None
    )
    account = next(accounts, None)
    if lowest is None or lowest in {quota.metadata.name for quota in found}:
        return account
    above = ancestors_of(lowest, quotas={quota.metadata.name: quota for quota in bound})
    return (lowest, "") if account is None or account[0] in above else account


def decayed(gpu_seconds: float, *, seconds: float, half_life_seconds: float) -> float:
    """The GPU seconds that count of a use after `seconds`."""
    return float(gpu_seconds * 0.5 ** (max(0.0, seconds) / half_life_seconds))


def used_by(spell: Spell, *, since: datetime, now: datetime, half_life_seconds: float) -> float:
    """The GPU seconds of a spell after `since`, decayed to `now`: the integral over its time."""
    start = max(spell.start, since)
    end = min(spell.end or now, now)
    if end <= start:
        return 0.0
    scale = half_life_seconds / math.log(2)
    return (
        spell.gpus
        * scale
        * (
            _left(end, now=now, half_life_seconds=half_life_seconds)
            - _left(start, now=now, half_life_seconds=half_life_seconds)
        )
    )


def usage(
    noted: Mapping[Account, float],
    *,
    spells: Iterable[Spell],
    as_of: Mapping[str, datetime],
    now: datetime,
    half_life_seconds: float,
) -> dict[Account, float]:
    """Recent usage of each account, in GPU seconds.

    It is what was `noted` as of each quota's time, plus the use since then.
    """
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
    """How much of its share each account has used: 0 is nothing, 1 exactly its share.

    `shares` are by quota.
    """
    total_used = sum(used.values())
    total_shares = sum(shares[quota] for quota, _ in used)
    if total_used <= 0 or not total_shares:
        return dict.fromkeys(used, 0.0)
    due = total_used / total_shares
    return {account: _stepped(amount / shares[account[0]] / due) for account, amount in used.items()}


def level_of(account: Account | None, *, known: Mapping[Account, float]) -> float:
    """The level of an account: 0 before its first use; 1 without an account."""
    return _DUE if account is None else known.get(account, 0.0)


def _left(at: datetime, *, now: datetime, half_life_seconds: float) -> float:
    return float(0.5 ** ((now - at).total_seconds() / half_life_seconds))


def _stepped(level: float) -> float:
    return round(level / _STEP) * _STEP
