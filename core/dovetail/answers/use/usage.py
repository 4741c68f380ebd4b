"""The answer about who used how much GPU time. Types only."""

from typing import Literal

from dovetail.answers import Row

UsageGroup = Literal["Namespace", "Project", "User", "Model", "Day"]


class UsageRow(Row, frozen=True, kw_only=True):
    """GPU time of one group.

    `gpuHours` were promised: a share counts as its part, a MIG instance by its slices. `usedHours` of them were at work
    by the measured utilization. `cost` is their price; null where no model of them has one. `unpricedHours` are those
    of models without a price. `savableHours` of the promised ones are more than the right sizes of the jobs need, and
    `savedHours` are those that accepted right sizes have saved: both of the latest runs of the jobs that still exist.
    """

    group: str
    gpu_hours: float
    used_hours: float
    cost: float | None
    unpriced_hours: float
    savable_hours: float
    saved_hours: float


class Usage(Row, frozen=True, kw_only=True):
    """GPU time by group, the most first, and all of it together.

    Days are those of UTC. `keptSince` is the first day that this gateway counted; null before the first sample.
    """

    since: str
    until: str
    kept_since: str | None
    currency: str
    items: list[UsageRow]
    total: UsageRow
