"""The curves as a picture: allocation and fragmentation against the load, and refused pods by kind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dovetail.fragmentation.columns import Floats
from dovetail.simulator.experiment import Outcome

_LOWEST_PERCENT = 60
_POINTS = 400


def draw(outcomes: Sequence[Outcome], *, departures: bool = False) -> Figure:
    """All outcomes in one figure; `Figure.savefig` writes it."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    allocation, fragmentation, refused = figure.subplots(1, 3)
    for outcome in outcomes:
        load = outcome.at if departures else _percent(outcome, outcome.arrived_milli)
        shown = np.unique(np.linspace(0, len(load) - 1, _POINTS).astype(int))
        allocation.plot(load[shown], _percent(outcome, outcome.allocated_milli)[shown], label=outcome.policy)
        loads = sorted(outcome.fragments_milli)
        milli = np.array([outcome.fragments_milli[one] for one in loads])
        fragmentation.plot(loads, _percent(outcome, milli), label=outcome.policy)
    allocation.set(xlabel="mean lifetimes" if departures else "arrived, % of GPUs", ylabel="allocated, % of GPUs")
    if not departures:
        allocation.set(xlim=(_LOWEST_PERCENT, None), ylim=(_LOWEST_PERCENT, 100))
    fragmentation.set(xlabel="arrived, % of GPUs", ylabel="fragments, % of GPUs", ylim=(0, None))
    _bars(refused, outcomes)
    for axes in (allocation, fragmentation, refused):
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def _bars(axes: Any, outcomes: Sequence[Outcome]) -> None:
    kinds = sorted({kind for outcome in outcomes for kind in outcome.refused})
    width = 0.8 / max(1, len(outcomes))
    for number, outcome in enumerate(outcomes):
        places = np.arange(len(kinds)) + number * width
        axes.bar(places, [outcome.refused.get(kind, 0) for kind in kinds], width, label=outcome.policy)
    axes.set_xticks(np.arange(len(kinds)) + 0.4 - width / 2, kinds)
    axes.set(ylabel="refused pods", yscale="symlog")


def _percent(outcome: Outcome, milli: Floats) -> Floats:
    percent: Floats = 100 * milli / outcome.capacity_milli
    return percent
