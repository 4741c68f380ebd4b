"""The price of one pod of headroom by class, in GPUs: scarcity, and rare large shapes.

The second term is the newsvendor's: the loss if the demand until the cluster turns over reaches the stock, times the
probability that it does.

Where CPU runs out before the GPUs do, both are lower. A stock that lacks only CPU needs no guard, and each pod takes
CPU with which others would have used idle GPUs: the first term is less by what its CPU costs.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import Columns, Floats, Ints
from dovetail.fragmentation.workload_mix import Mix

# Up to this count the Poisson tail is summed term by term; above it is approximated.
_SUMMED: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """The weights of both terms.

    - `scarcity`, `exponent`: of the first term
    - `newsvendor`: of the second term
    - `horizon`: h, 0.5 while a cluster only fills, 2 when pods also leave
    - `without_device`: weight of the classes without GPUs
    - `short_of_cpu`: how much faster than idle GPUs the idle CPU must run out until it counts as the only shortage: at
      2, once it lasts for half the arrivals
    - `cpu_cost`: what CPU costs then, as a part of the GPUs that the mix requests with as much CPU
    """

    scarcity: float = 0.15
    exponent: float = 0.8
    newsvendor: float = 0.3
    horizon: float = 0.5
    without_device: float = 0.25
    short_of_cpu: float = 2.0
    cpu_cost: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class PHSettings:
    """The weights of the terms, and how long prices stay.

    - `gradient`, `residual`: weights of the change of fragmentation and of the worth of residuals
    - `bid`: weight of what a pod takes at bid prices
    - `prices`: weights of the prices of headroom
    - `refresh_placements`: number of placements between two computations of prices
    - `refresh_bids`: part of the cluster's CPU or devices that may become idle or busy before bid prices are computed
      again
    """

    gradient: float = 1.5
    residual: float = 10.0
    bid: float = 1.0
    prices: PriceSettings = field(default_factory=PriceSettings)
    refresh_placements: int = 16
    refresh_bids: float = 0.08


class Prices:
    """The prices for a cluster and a mix."""

    def __init__(self, columns: Columns, *, mix: Mix, settings: PriceSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._gpus: Floats = mix.field("gpus") * mix.field("share_milli") / 1000.0
        self._probability = mix.probability
        self._mean_milli = float(self._probability @ (mix.field("gpus") * mix.field("share_milli")))
        self._mean_cpu_milli = float(self._probability @ mix.field("cpu_milli"))
        self._cpu_in_gpus = self._price_of_cpu(mix.field("cpu_milli"))

    def at(self, headroom: Floats) -> Floats:
        """The price by class, [M], in GPUs, for the headroom of the cluster by class, [M]."""
        settings, columns = self._settings, self._columns
        left = self._arrivals(milli=columns.idle_milli, cpu_milli=columns.idle_cpu_milli)
        # Nodes are added and removed: use the current capacity.
        capacity = self._arrivals(milli=columns.capacity_milli, cpu_milli=columns.capacity_cpu_milli)
        weight = np.where(self._gpus > 0, 1.0, settings.without_device)
        expected = weight * self._probability * left
        price: Floats = settings.scarcity * (expected / (headroom + 0.1)) ** settings.exponent
        shortage = self._cpu_shortage()
        price *= np.maximum(0.0, 1.0 - shortage * self._cpu_in_gpus)
        guarded = (self._gpus > 0) & (headroom > 0)
        demand = self._probability * max(left, settings.horizon * capacity)
        guard = (1.0 - shortage) * settings.newsvendor
        price[guarded] += guard * self._gpus[guarded] * reach(demand[guarded], count=headroom[guarded])
        return price

    def follow(self, columns: Columns) -> None:
        """Switch to the columns that the present ones are a copy of."""
        self._columns = columns

    def _cpu_shortage(self) -> float:
        """0 where the idle GPUs run out first, up to 1 where only CPU is short."""
        columns = self._columns
        if not columns.idle_milli or not self._mean_milli or not self._mean_cpu_milli:
            return 0.0
        by_cpu, by_gpus = columns.idle_cpu_milli / self._mean_cpu_milli, columns.idle_milli / self._mean_milli
        return min(1.0, self._settings.short_of_cpu * max(0.0, 1.0 - by_cpu / by_gpus))

    def _price_of_cpu(self, cpu_milli: Ints) -> Floats:
        """By class, [M], what the CPU of one of its GPUs costs in GPUs; 1 for a class without GPUs."""
        each = cpu_milli * (self._settings.cpu_cost * self._mean_milli / 1000.0) / max(1.0, self._mean_cpu_milli)
        cost: Floats = np.divide(each, self._gpus, out=np.ones(len(each)), where=self._gpus > 0)
        return cost

    def _arrivals(self, *, milli: int, cpu_milli: int) -> float:
        """K: the number of arrivals that use up that many milli or that much CPU."""
        limits = [
            amount / mean for amount, mean in ((milli, self._mean_milli), (cpu_milli, self._mean_cpu_milli)) if mean > 0
        ]
        return max(0.0, min(limits, default=0.0))


def reach(mean: Floats, *, count: Floats) -> Floats:
    """P(Poisson(mean) >= count), [M], for whole counts of at least 1.

    Exact up to 32. Above, the cube root of a gamma variable is nearly normal (Wilson and Hilferty, 1931), which is
    within 1e-3.
    """
    mean = np.maximum(mean, 1e-300)
    terms = np.arange(_SUMMED, dtype=np.float64)
    log_factorials = np.cumsum(np.log(np.maximum(terms, 1.0)))
    pmf = np.exp(terms * np.log(mean)[:, None] - mean[:, None] - log_factorials)
    below = np.where(terms < count[:, None], pmf, 0.0).sum(axis=1)
    spread = 1.0 / (9.0 * count)
    deviation = (np.cbrt(mean / count) - (1.0 - spread)) / np.sqrt(2.0 * spread)
    many = np.array([0.5 * math.erfc(-value) for value in deviation.tolist()])
    return np.where(count <= _SUMMED, np.maximum(1.0 - below, 0.0), many)
