"""The policies by name.

A new one is a file here or in `dovetail.fragmentation`, and a line below.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.fragmentation.arrivals import Online
from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.fgd import fgd
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.priced_headroom import PH, ph_online
from dovetail.fragmentation.prices import PHSettings, PriceSettings
from dovetail.fragmentation.workload_mix import Mix
from dovetail.simulator.policies.baselines import RandomFit, bestfit, gpupacking, spread

# h of the prices: how much of the cluster turns over while a price counts.
HORIZON_FILLING: Final = 0.5
HORIZON_WITH_DEPARTURES: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a policy may know: the cluster, the mix of the pods to come, and whether pods leave."""

    columns: Columns
    mix: Mix
    departures: bool = False
    seed: int = 0

    def ph(self) -> PHSettings:
        """PH for this setting."""
        horizon = HORIZON_WITH_DEPARTURES if self.departures else HORIZON_FILLING
        return PHSettings(prices=PriceSettings(horizon=horizon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy: how to create it, and its description in one line."""

    make: Callable[[Setting], Policy]
    help: str


def _online(setting: Setting) -> Policy:
    return ph_online(setting.columns, settings=setting.ph())


def _fgd_online(setting: Setting) -> Policy:
    return Online(setting.columns, make=lambda columns, mix: fgd(columns, mix=mix))


def _live(setting: Setting) -> PHSettings:
    # On a live cluster pods leave, so prices there assume it, whatever this run does.
    return replace(setting, departures=True).ph()


def _pack(setting: Setting) -> Policy:
    return ph_online(setting.columns, settings=_live(setting))


POLICIES: Final[dict[str, Entry]] = {
    "ph": Entry(
        make=lambda setting: PH(setting.columns, mix=setting.mix, settings=setting.ph()),
        help="priced headroom, with the mix of the pods known",
    ),
    "ph-online": Entry(make=_online, help="priced headroom, with the mix learned from arrivals"),
    "fgd": Entry(
        make=lambda setting: fgd(setting.columns, mix=setting.mix), help="fragmentation gradient descent, as published"
    ),
    "fgd-online": Entry(make=_fgd_online, help="fgd, with the mix learned from arrivals"),
    "bestfit": Entry(make=lambda setting: bestfit(setting.columns), help="least CPU and GPU left over"),
    "gpupacking": Entry(make=lambda setting: gpupacking(setting.columns), help="used devices first, then used nodes"),
    "pack": Entry(make=_pack, help="PACK, as jobs say it: ph-online with the prices of a live cluster"),
    "balanced": Entry(make=_pack, help="BALANCED, as jobs say it: pack where no load is measured"),
    "spread": Entry(make=lambda setting: spread(setting.columns), help="SPREAD, as jobs say it: the idlest node"),
    "random": Entry(
        make=lambda setting: RandomFit(setting.columns, random=np.random.default_rng(setting.seed)),
        help="any node where it fits",
    ),
}
