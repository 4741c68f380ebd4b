"""The week before now of a sandbox, as the product's own sampler keeps it under a moved clock."""

import asyncio
import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail_gateway.app import Gateway, Options, gateway
from dovetail_gateway.samples import readings
from dovetail_gateway.samples.columns import DEVICE
from dovetail_gateway.samples.readings import Reading
from dovetail_gateway.samples.store import SampleStore
from tests.gateway.samples.week import Clock, week_of

_UTILIZATION: Final = [each.name for each in DEVICE].index("utilization")
_TEMPERATURE: Final = [each.name for each in DEVICE].index("temperature")
_POWER: Final = [each.name for each in DEVICE].index("power")
_PROMISED: Final = [each.name for each in DEVICE].index("promised")


async def sample_past(connection: Connection, *, file: Path) -> None:
    """Sample the cluster as it is through the week before now: busier by day than by night, less at the weekend."""
    clock, store = Clock(), SampleStore(f"sqlite:///{file}")
    async with gateway(connection, settings=Settings(), options=Options(), store=store, now=clock) as made:
        following = asyncio.ensure_future(made.cache.run())
        await made.cache.complete()
        await made.sampler._restore()
        seen = _seen(made)
        async for now in week_of(clock):
            made.sampler._pending.append(await made.sampler.take(_at(seen, now=now), now=now))
            await made.sampler._write()
        made.sampler.close()
        following.cancel()


def _seen(made: Gateway) -> Reading:
    nodes = [(use, list(made.cache.pods_on(use.name))) for use in made.cache.node_uses()]
    return readings.read(nodes, jobs=list(made.cache.jobs.values()))


def _at(seen: Reading, *, now: datetime) -> Reading:
    """What is seen now, as it would be at another time of the week."""
    by_day = 0.55 + 0.4 * math.sin((now.hour + now.minute / 60 - 8) / 24 * 2 * math.pi)
    busy = by_day * (0.6 if now.weekday() >= 5 else 1.0)
    devices = seen.devices.copy()
    devices[:, _UTILIZATION] *= busy
    devices[:, _TEMPERATURE] = 30 + (devices[:, _TEMPERATURE] - 30) * busy
    devices[:, _POWER] *= 0.3 + 0.7 * busy
    # Nodes fill from the first one on.
    there = {name for at, name in enumerate(sorted({each.node for each in seen.places.values()})) if at < 2 + 9 * busy}
    gone = [seen.places[uuid].node not in there for uuid in seen.uuids]
    devices[gone, _PROMISED] = 0
    holdings = [
        replace(each, since=None, utilization=None if each.utilization is None else each.utilization * busy)
        for at, each in enumerate(seen.holdings)
        if at < len(seen.holdings) * (0.4 + 0.6 * busy)
    ]
    waiting = {namespace: round(count * busy) for namespace, count in seen.waiting.items()}
    return replace(seen, devices=devices, holdings=holdings, waiting=waiting)
