"""Bid prices: what the idle CPU and the idle devices of each model are worth to the pods to come.

A linear program allots what is idle to the expected demand, so that as many devices as possible are in use: the CPU
and the devices of each model's nodes limit what goes there, and a class goes only where it fits. The dual values of
these limits are the prices. They are 0 where demand leaves some over: only a model, or the CPU of its nodes, that is
short has a price.

K. Talluri, G. van Ryzin, "An Analysis of Bid-Price Controls for Network Revenue Management", Management Science, 1998.
HiGHS solves the program in about a millisecond.
"""

from copy import copy
from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import CPU, FREE_DEVICES, Bools, Columns, Floats, Ints
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.workload_mix import Mix

# In what the idle CPU and the idle devices of a model are counted: hundredths.
HUNDREDTH_MILLI: Final = 10
SUPPLIES: Final = (
    Shape(cpu_milli=HUNDREDTH_MILLI, memory_mib=0),
    Shape(cpu_milli=0, memory_mib=0, gpus=1, share_milli=HUNDREDTH_MILLI),
)
_HUNDREDTHS: Final = 100
# What a CPU of a pod without devices is worth, as a part of the devices that the mix requests with a CPU.
_WITHOUT_DEVICE: Final = 0.5
# How much of the idle devices the demand requests: less than all, so that what just suffices has no price.
_REQUESTED: Final = 0.99
# Classes that fit the same models, and whose CPU for each device differs by less than this factor, are one demand.
_ALIKE: Final = 1.25


class BidPrices:
    """The prices for a cluster with T models and a mix.

    They are computed again once `tolerated_change` of the cluster's CPU or devices has become idle or busy, or each
    node has changed once on average.
    """

    def __init__(self, columns: Columns, *, mix: Mix, tolerated_change: float) -> None:
        self._columns = columns
        self._tolerated_change = tolerated_change
        # Idle CPU milli, idle milli of devices and changes of the columns when the prices were computed.
        self._priced: tuple[int, int, int] | None = None
        self._prices: Floats = np.zeros(0)
        self._allowed: Bools = mix.allowed(columns).T
        self._needs: Ints = np.stack([mix.field("cpu_milli"), mix.field("gpus")], axis=1)
        milli = np.stack([mix.field("cpu_milli"), mix.field("gpus") * mix.field("share_milli")])
        # CPUs and devices that one arrival requests on average, by class, and what they are worth.
        self._cpus: Floats = mix.probability * milli[0] / WHOLE_MILLI
        self._gpus: Floats = mix.probability * milli[1] / WHOLE_MILLI
        instead = _WITHOUT_DEVICE * self._cpus * self._gpus.sum() / max(1e-9, self._cpus.sum())
        self._worth: Floats = np.where(milli[1] > 0, self._gpus, instead)
        ratio = np.log(np.maximum(1, milli[0]) / np.maximum(1, milli[1])) / np.log(_ALIKE)
        self._kind: Ints = np.column_stack([milli[1] > 0, np.rint(ratio)]).astype(np.int64)

    def at(self, idle: Floats) -> Floats:
        """The price of each of `SUPPLIES` for each model, in GPUs, [2T], for what is `idle` of them, [2T]."""
        if self._priced is None or self._has_changed(since=self._priced):
            columns = self._columns
            self._priced = columns.idle_cpu_milli, columns.idle_milli, columns.changes
            self._prices = self._computed(idle)
        return self._prices

    def _has_changed(self, *, since: tuple[int, int, int]) -> bool:
        # Called every few placements: sums that the columns have, and not one for each model.
        most, columns = self._tolerated_change, self._columns
        idle_cpu_milli, idle_milli, changes = since
        return (
            abs(columns.idle_cpu_milli - idle_cpu_milli) > most * columns.capacity_cpu_milli
            or abs(columns.idle_milli - idle_milli) > most * columns.capacity_milli
            or columns.changes - changes > len(columns)
        )

    def _computed(self, idle: Floats) -> Floats:
        columns, idle = self._columns, idle / _HUNDREDTHS
        models, idle_gpus = np.split(np.arange(len(idle)), 2)[0], idle[len(idle) // 2 :].sum()
        if not idle_gpus or not self._gpus.any():
            return np.zeros(len(idle))
        largest = np.zeros((len(models), 2), dtype=np.int64)
        np.maximum.at(largest, columns.model, columns.capacity[:, [CPU, FREE_DEVICES]])
        fits = self._allowed & (self._needs[:, np.newaxis] <= largest).all(axis=2)
        kinds, kind = np.unique(np.column_stack([fits, self._kind]), axis=0, return_inverse=True)
        arrivals = _REQUESTED * idle_gpus / self._gpus.sum()
        worth, cpus, gpus = (
            arrivals * np.bincount(kind.ravel(), weights=each) for each in (self._worth, self._cpus, self._gpus)
        )
        return _dual_values(kinds[:, models] > 0, idle=idle, worth=worth, cpus=cpus, gpus=gpus) / _HUNDREDTHS

    def follow(self, columns: Columns) -> None:
        """Switch to the columns that the present ones are a copy of."""
        self._columns = columns

    def over(self, columns: Columns) -> "BidPrices":
        """The same for `columns` that are a copy of the present ones, computed when they are first asked for."""
        other: BidPrices = copy(self)
        other._columns, other._priced = columns, None
        return other


def _dual_values(fits: Bools, *, idle: Floats, worth: Floats, cpus: Floats, gpus: Floats) -> Floats:
    """The price of what is `idle`, both [2T].

    Demands have their `worth`, `cpus` and `gpus`, all [D]; parts of each go to the models that it `fits`, [D, T].
    """
    import highspy  # noqa: PLC0415 - an optional dependency: without it there are still best fit and FGD

    at, model = fits.nonzero()
    count, models, demands = len(at), fits.shape[1], len(fits)
    if not count:
        return np.zeros(len(idle))
    rows = np.stack([model, models + model, 2 * models + at], axis=1)
    amounts = np.stack([cpus[at], gpus[at], np.ones(count)], axis=1)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, len(idle) + demands
    program.col_cost_ = -worth[at]
    program.col_lower_, program.col_upper_ = np.zeros(count), np.ones(count)
    program.row_lower_ = np.full(len(idle) + demands, -highspy.kHighsInf)
    program.row_upper_ = np.concatenate([np.maximum(0.0, idle), np.ones(demands)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(count + 1, dtype=np.int32) * rows.shape[1]
    program.a_matrix_.index_, program.a_matrix_.value_ = rows.ravel().astype(np.int32), amounts.ravel()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    # Takes longer than it saves: the program has a few hundred parts of demands.
    solver.setOptionValue("presolve", "off")
    solver.passModel(program)
    solver.run()
    prices: Floats = np.maximum(0.0, -np.array(solver.getSolution().row_dual[: len(idle)]))
    return prices
