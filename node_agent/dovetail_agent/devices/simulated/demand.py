"""Simulated demand: a fixed amount of work for the pods of a namespace on one node, shared by those that run. Pure.

A service behaves so: with twice the replicas, each computes half as much.

A module of its own: it computes levels from pods and what they are promised, and knows no device's figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.api.gpunodetenants import NodeTenant

_MOST_DEVICES: Final = 1024
DEMAND_ALLOWED: Final = f'devices by namespace, 0 to {_MOST_DEVICES}, such as {{"web": 1.5}}'


def is_demand(value: Any) -> bool:
    """Whether this is a number of devices for each of some namespaces."""
    return isinstance(value, dict) and all(
        type(devices) in (int, float) and 0 <= devices <= _MOST_DEVICES for devices in value.values()
    )


def levels_of(running: Sequence[NodeTenant], *, demand: Mapping[str, float]) -> dict[str, float]:
    """Which ratio of its share (0 to 1) each pod with such work computes, by UID."""
    promised = {
        namespace: sum(
            each.share_milli for tenant in running if tenant.namespace == namespace for each in tenant.devices
        )
        for namespace in demand
    }
    return {
        tenant.uid: min(1.0, demand[tenant.namespace] * 1000 / promised[tenant.namespace])
        for tenant in running
        if promised.get(tenant.namespace)
    }
