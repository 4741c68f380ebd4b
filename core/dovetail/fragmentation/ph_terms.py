"""The terms of PH for one mix, kept up to date: gradient, residuals, headroom, prices, bid prices."""

from copy import copy

import numpy as np

from dovetail.fragmentation.bid_prices import SUPPLIES, BidPrices
from dovetail.fragmentation.capacity import Columns, Floats
from dovetail.fragmentation.cutting_stock import residual_values, share_demand
from dovetail.fragmentation.gradient import Gradient
from dovetail.fragmentation.headroom import Counts, Headroom
from dovetail.fragmentation.placement_delta import Taking
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI
from dovetail.fragmentation.prices import PHSettings, Prices
from dovetail.fragmentation.workload_mix import Mix


class PHAppraisal:
    """PH: the gradient, the worth of residuals, and headroom at its price, in GPUs.

    Headroom and `price` [K] are of the M classes of the mix, and then of the idle CPU and the idle devices of T models.
    """

    def __init__(self, columns: Columns, *, mix: Mix, settings: PHSettings | None = None) -> None:
        self.settings = settings or PHSettings()
        self.gradient = Gradient(columns, mix=mix)
        self.headroom = Headroom(columns, mix=mix, by_model=SUPPLIES)
        self.worth: Floats = residual_values(share_demand(mix))
        self.price: Counts = np.zeros(len(self.headroom.total), dtype=np.float32)
        self.epoch = -1
        self._columns = columns
        self._prices = Prices(columns, mix=mix, settings=self.settings.prices)
        self._priced = -self.settings.refresh_placements
        self._classes = len(mix.classes)
        self._bid_prices = BidPrices(columns, mix=mix, tolerated_change=self.settings.refresh_bids)

    def refresh(self) -> None:
        """Recompute the touched nodes, and the prices once every `refresh_placements` placements."""
        self.sync()
        self.refresh_prices()

    def sync(self) -> None:
        """Recompute the nodes that were touched since the last call."""
        self.gradient.sync()
        self.headroom.sync()

    def refresh_prices(self) -> None:
        """Recompute the prices if they are due."""
        if self._columns.changes - self._priced >= self.settings.refresh_placements:
            self.headroom.sync()
            classes, supplies = np.split(self.headroom.total, [self._classes])
            prices = [self._prices.at(classes), self.settings.bid * self._bid_prices.at(supplies)]
            self.price = np.concatenate(prices).astype(np.float32)
            self._priced = self._columns.changes
            self.epoch += 1

    def static(self, taking: Taking) -> Floats:
        """The first two terms in GPUs, [n]."""
        value = self.gradient.change_by_taking(taking)
        value *= -self.settings.gradient / WHOLE_MILLI
        if not taking.whole:
            value += self.settings.residual * (self.worth[taking.after] - self.worth[taking.before]).sum(axis=1)
        return value

    def loss(self, taking: Taking) -> Counts:
        """The change of headroom by class, in pods, and of the supplies of each model, [n, K]."""
        return self.headroom.change_by_taking(taking)

    def follow(self, columns: Columns) -> None:
        """Switch to the columns that the present ones are a copy of."""
        self._columns = self.gradient.columns = self.headroom.columns = columns
        self._prices.follow(columns)
        self._bid_prices.follow(columns)

    def over(self, columns: Columns) -> "PHAppraisal":
        """An independent appraisal, for `columns` that are a copy of the present ones.

        Its next `refresh` computes prices, so that they follow from the capacity and the mix alone, and not from when
        the original computed its own.
        """
        other: PHAppraisal = copy(self)
        other._columns = columns
        other.gradient, other.headroom = self.gradient.over(columns), self.headroom.over(columns)
        other._prices, other._bid_prices = copy(self._prices), self._bid_prices.over(columns)
        other._prices.follow(columns)
        other._priced = columns.changes - self.settings.refresh_placements
        return other
