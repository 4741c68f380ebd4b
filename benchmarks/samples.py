"""Measure what it costs to keep a cluster's past: a sample, its bytes, an answer, and the start of a gateway.

Nodes of 8 V100, with a job of one GPU on seven of them, in 50 namespaces. The objects are read as the gateway reads
them; between two samples, the figures of all devices change at random, which is the worst case for their compression.

    python benchmarks/samples.py [--nodes 1000] [--hours 6]
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.random import default_rng

sys.path.insert(0, str(Path(__file__).parents[1]))

from counts import count

from dovetail.answers.inventory import NodeUse, take
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.decoding import decode
from dovetail_gateway.samples import readings
from dovetail_gateway.samples.columns import DEVICE
from dovetail_gateway.samples.readings import Reading
from dovetail_gateway.samples.rings import STEP_SECONDS, TIERS, grid
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.series import of_devices
from dovetail_gateway.samples.store import SampleStore
from tests.extender.builders import make_gpunode
from tests.gateway.builders import make_bound_pod, make_job

DEVICES: Final = 8
HELD: Final = 7
NAMESPACES: Final = 50
BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)


def cluster(nodes: int) -> tuple[list[tuple[NodeUse, Sequence[Pod]]], list[GPUJob]]:
    """The nodes with the pods on them, and the jobs."""
    found, jobs = list[tuple[NodeUse, Sequence[Pod]]](), list[GPUJob]()
    for at in range(nodes):
        name, pods = f"node-{at}", list[Pod]()
        figures = {"utilization": 0.5, "usedMiB": 16_000, "powerWatts": 250, "temperatureCelsius": 60}
        gpunode = msgspec.convert(make_gpunode(name, **figures), GPUNode)
        for device in range(HELD):
            number = at * HELD + device + 1
            namespace, job = f"ns-{number % NAMESPACES}", f"job-{number}"
            status = {"phase": "Running", "number": number, "startTime": "2026-11-01T00:00:00Z", "nodes": [name]}
            text = msgspec.json.encode(make_job(job, namespace=namespace, number=number, status=status))
            jobs.append(decode(text, as_type=GPUJob))
            where = {"number": number, "device": f"x-{device}", "node": name}
            pod = make_bound_pod(f"{job}-0", namespace=namespace, job=job, **where)
            named = msgspec.json.encode(pod).decode().replace(f"x-{device}", f"{name}-{device}")
            pods.append(decode(named, as_type=Pod))
        (use,) = take([gpunode], pods=pods, scheduler="", namespace="").nodes.values()
        found.append((use, pods))
    return found, jobs


def size_of(file: Path) -> int:
    """The size of a file in bytes."""
    return file.stat().st_size


def shaken(reading: Reading, *, rng: Any) -> Reading:
    """The reading with other figures of its devices."""
    noise = rng.random(reading.devices.shape).astype(np.float32)
    spread = np.array([1, 1, 90, 1, 300], np.float32)
    assert len(spread) == len(DEVICE)
    return replace(reading, devices=noise * spread)


async def measure(nodes: int, *, hours: float, file: Path) -> None:
    """Print what was measured."""
    objects, jobs = cluster(nodes)
    began = time.process_time()
    reading = readings.read(objects, jobs=jobs)
    read = time.process_time() - began
    print(f"read {len(reading.uuids)} devices, {len(reading.holdings)} holdings: {read:.3f} s CPU")

    cache: Any = None
    store, now = SampleStore(f"sqlite:///{file}"), BEGIN
    store.open()
    sampler = Sampler(cache, store=store, keep_days=400, now=lambda: now)
    rng, steps = default_rng(1), int(hours * 3600 / STEP_SECONDS)
    taken, written, size = 0.0, 0.0, 0
    for _ in range(steps):
        other = shaken(reading, rng=rng)
        began = time.process_time()
        batch = await sampler.take(other, now=now)
        took = time.process_time()
        store.write(batch)
        written += time.process_time() - took
        taken += took - began
        size += sum(len(row.data) for rows in batch.rows.values() for row in rows)
        now += timedelta(seconds=STEP_SECONDS)
    devices = len(reading.uuids)
    print(f"keep a sample: {taken / steps:.3f} s CPU, write it: {written / steps:.3f} s CPU")
    per_day = size / hours * 24 / devices
    computed = sum(86_400 / tier.seconds for tier in TIERS) * sum(column.dtype.itemsize for column in DEVICE)
    print(f"bytes of a device a day, written: {per_day:,.0f} measured, {computed:,.0f} computed without namespaces")
    held = sum(tier.count for tier in TIERS) * sum(column.dtype.itemsize for column in DEVICE)
    print(f"memory of the rings: {sampler.devices.bytes / devices:,.0f} B a device, {held:,} computed")
    store.forget(now=now, keep_days=400)
    store.close()
    print(f"file after {hours:g} h: {size_of(file) / devices:,.0f} B a device")

    for name, span in (("hour", 3600), ("day", 86_400), ("month", 31 * 86_400)):
        at = int(now.timestamp())
        began = time.process_time()
        times = grid(since=at - span, until=at, now=at)
        samples = sampler.devices.read(times, subjects=reading.uuids)
        row = of_devices("", samples=samples, places=[reading.places[uuid] for uuid in reading.uuids])
        encoded = msgspec.json.encode(row)
        print(f"answer about the cluster, a {name}: {time.process_time() - began:.3f} s CPU, {len(encoded):,} B")
    began = time.process_time()
    again = Sampler(cache, store=SampleStore(f"sqlite:///{file}"), keep_days=400, now=lambda: now)
    again.take_over(SampleStore(f"sqlite:///{file}"), there=[])
    print(f"take over after a restart: {time.process_time() - began:.2f} s CPU")
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    """Parse the command line and measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", type=count, default=1000)
    options.add_argument("--hours", type=float, default=6)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(args.nodes, hours=args.hours, file=Path(folder) / "samples.db"))


if __name__ == "__main__":
    main()
