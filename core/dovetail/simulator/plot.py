"""The curves as a picture: allocation and fragmentation by load, and refused pods by kind."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from dovetail.fragmentation.capacity import Floats
from dovetail.simulator.curve import by_kind
from dovetail.simulator.experiment import Outcome

_LOWEST_PERCENT: Final = 60
_POINTS: Final = 400
# The lines of similar policies overlap: a broken line shows what is beneath it.
_DASHES: Final[tuple[Any, ...]] = ("-", (0, (4, 2)), "-.", (0, (1, 1.5)), (0, (7, 2)), (0, (3, 1, 1, 1, 1, 1)))
# With more bars in a group their numbers would be illegible.
_NUMBERED_POLICIES: Final = 6


def draw(outcomes: Sequence[Outcome], *, departures: bool = False) -> Figure:
    """All outcomes in one figure; `Figure.savefig` writes it."""
    figure = Figure(figsize=(14, 4.8), layout="constrained")
    allocation, fragmentation, refused = figure.subplots(1, 3)
    for number, outcome in enumerate(outcomes):
        style = {"color": f"C{number % 10}", "linestyle": _DASHES[number % len(_DASHES)], "linewidth": 1.8}
        load = outcome.at if departures else _percent(outcome, milli=outcome.arrived_milli)
        shown = np.unique(np.linspace(0, len(load) - 1, _POINTS).astype(int))
        allocated = _percent(outcome, milli=outcome.allocated_milli)
        allocation.plot(load[shown], allocated[shown], label=outcome.policy, **style)
        loads = sorted(outcome.fragments_milli)
        milli = np.array([outcome.fragments_milli[one] for one in loads])
        fragmentation.plot(loads, _percent(outcome, milli=milli), label=outcome.policy, **style)
    _frame_allocation(allocation, outcomes=outcomes, departures=departures)
    fragmentation.set(
        title="Idle, but in pieces too small for what comes",
        xlabel="arrived, % of GPUs", ylabel="fragments, % of GPUs", ylim=(0, None),
    )  # fmt: skip
    _bars(refused, outcomes=outcomes)
    for axes in (allocation, fragmentation, refused):
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = allocation.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(labels)), frameon=False)
    return figure


def _frame_allocation(axes: Any, *, outcomes: Sequence[Outcome], departures: bool) -> None:
    axes.set(title="Allocated", ylabel="allocated, % of GPUs")
    if departures:
        # At time 0 the cluster fills at once; only the time after that is of interest.
        later = [_percent(outcome, milli=outcome.allocated_milli[outcome.at > 0]) for outcome in outcomes]
        lowest = min((float(one.min()) for one in later if one.size), default=0.0)
        axes.set(xlabel="mean lifetimes", ylim=(max(0.0, lowest - 5), 100.5))
        return
    # Without refusals all lines are one: the range begins a little below the lowest end.
    ends = [float(_percent(outcome, milli=outcome.allocated_milli[-1:])[0]) for outcome in outcomes]
    begun = max(100 * outcome.begun_milli / outcome.capacity_milli for outcome in outcomes)
    lowest = max(begun, min(_LOWEST_PERCENT, min(ends) - 15))
    axes.axline((lowest, lowest), slope=1, color="0.6", linewidth=1, zorder=0, label="if none were refused")
    axes.set(xlabel="arrived, % of GPUs", xlim=(lowest, None), ylim=(lowest, 100.5))


def _bars(axes: Any, *, outcomes: Sequence[Outcome]) -> None:
    kinds = list(by_kind({kind: 0 for outcome in outcomes for kind in outcome.refused}))
    width = 0.8 / max(1, len(outcomes))
    for number, outcome in enumerate(outcomes):
        places = np.arange(len(kinds)) + number * width
        counts = [outcome.refused.get(kind, 0) for kind in kinds]
        bars = axes.bar(places, counts, width * 0.92, color=f"C{number % 10}")
        if len(outcomes) <= _NUMBERED_POLICIES:
            axes.bar_label(bars, fontsize=6.5, rotation=90, padding=2)
    axes.set_xticks(np.arange(len(kinds)) + 0.4 - width / 2, kinds)
    # Leave room above the highest bar for its number, on a logarithmic scale.
    most = max((count for outcome in outcomes for count in outcome.refused.values()), default=1)
    axes.set(title="Refused pods", ylabel="pods", yscale="symlog", ylim=(0, 4 * most))


def _percent(outcome: Outcome, *, milli: Floats) -> Floats:
    percent: Floats = 100 * milli / outcome.capacity_milli
    return percent
