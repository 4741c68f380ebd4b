"""Allocation, fragmentation and refusals at a load, in percent of the devices."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dovetail.fragmentation.capacity import Floats
from dovetail.simulator.experiment import Outcome

LOADS: Final = (90, 95, 100, 110, 130)
# When pods leave: after a mean lifetime, most of the first pods are gone, and with them their order.
WARM_UP_LIFETIMES: Final = 1.0


def allocation_at(outcome: Outcome, *, percent: int) -> float | None:
    """The mean allocation over the arrivals at which the load, rounded, is `percent`.

    Where one pod skips that load, the allocation before it. None for a load that was not reached, or that was exceeded
    at the start.
    """
    arrived = np.rint(100 * outcome.arrived_milli / outcome.capacity_milli)
    there = arrived == percent
    if there.any():
        return _percent(outcome, milli=float(outcome.allocated_milli[there].mean()))
    before = int(np.count_nonzero(arrived < percent))
    if before == len(arrived):
        return None
    if before:
        return _percent(outcome, milli=float(outcome.allocated_milli[before - 1]))
    begun = _percent(outcome, milli=float(outcome.begun_milli))
    return begun if round(begun) <= percent else None


def fragmentation_at(outcome: Outcome, *, percent: int) -> float | None:
    """The fragmentation when the load, rounded, first was `percent`.

    None for a load that was not reached.
    """
    reached = [load for load in outcome.fragments_milli if load <= percent]
    if not reached or max(outcome.fragments_milli) < percent:
        return None
    return _percent(outcome, milli=outcome.fragments_milli[max(reached)])


def average_allocation(outcome: Outcome, *, warm_up: float = WARM_UP_LIFETIMES) -> float | None:
    """The mean allocation over time after the warm-up, for pods that leave.

    None when the run ends before.
    """
    gaps: Floats = np.diff(outcome.at)
    gaps = np.where(outcome.at[:-1] >= warm_up, gaps, 0.0)
    if not gaps.sum():
        return None
    return _percent(outcome, milli=float(outcome.allocated_milli[:-1] @ gaps / gaps.sum()))


def lost_by_moves(outcome: Outcome, *, warm_up: float = WARM_UP_LIFETIMES) -> float | None:
    """What moves lost over the time of `average_allocation`, to be subtracted from it. None where that is None."""
    span = float(outcome.at[-1]) - warm_up
    if span <= 0:
        return None
    return _percent(outcome, milli=sum(milli for at, milli in outcome.lost if at >= warm_up) / span)


def report(outcome: Outcome, *, departures: bool = False) -> dict[str, Any]:
    """A run as `dovetail simulate -o json` prints it."""
    return {
        "policy": outcome.policy,
        "allocation": {"average": average_allocation(outcome)}
        if departures
        else _by_load(outcome, measure=allocation_at),
        "fragmentation": {} if departures else _by_load(outcome, measure=fragmentation_at),
        "failed": outcome.failed,
        "failed_by_class": by_kind(outcome.refused),
        "placements_per_second": round(outcome.placements_per_second),
    }


def by_kind(refused: Mapping[str, int]) -> dict[str, int]:
    """Refused pods by kind: those without GPUs, shares, then by number of GPUs."""
    return {word: refused[word] for word in sorted(refused, key=lambda word: (_rank(word), word))}


def _rank(word: str) -> int:
    known = {"no GPU": -1, "share": 0}
    return known[word] if word in known else int(word.split(maxsplit=1)[0])


def _by_load(outcome: Outcome, *, measure: Any) -> dict[str, float | None]:
    return {str(load): measure(outcome, percent=load) for load in LOADS}


def _percent(outcome: Outcome, *, milli: float) -> float:
    return round(100 * milli / outcome.capacity_milli, 3)
