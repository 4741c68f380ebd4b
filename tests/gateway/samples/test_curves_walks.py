"""Curves of jobs over days: two gateways with one database, and jobs that come again under their names.

Each job holds another number of GPUs, so that a point which is not its own shows. Gateways restart and are away, and
their writes fail for a while and are made up for later.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail_gateway.samples.batches import Batch, KeptCurve, SamplesError
from dovetail_gateway.samples.columns import DEVICE, HELD
from dovetail_gateway.samples.curves import Curve
from dovetail_gateway.samples.readings import Holding, Reading
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.store import SampleStore
from tests.gateway.builders import make_job
from tests.gateway.samples.week import BEGIN

NAMES: Final = [f"{namespace}/{name}" for namespace in ("red", "blue") for name in ("train", "sweep")]
KEPT_DAYS: Final = 90


class Store(SampleStore):
    """A database to which writes fail at times."""

    fails = False

    def write(self, batch: Batch) -> None:
        if self.fails:
            raise SamplesError("s.db", problem="database is locked")
        super().write(batch)


@dataclass
class Job:
    """A job and the GPUs that it holds."""

    uid: str
    key: str
    gpus: int
    phase: str = "Running"
    is_there: bool = True
    was_sampled: bool = False

    def typed(self) -> GPUJob:
        namespace, name = self.key.split("/")
        values = make_job(name, namespace=namespace, status={"phase": self.phase, "startTime": "2026-11-01T00:00:00Z"})
        values["metadata"] |= {"uid": self.uid, "resourceVersion": f"{self.uid}-{self.phase}"}
        return decode(msgspec.json.encode(values), as_type=GPUJob)


@dataclass
class World:
    """Jobs by name, all that ever were, and gateways that sample them."""

    file: Path | None
    rng: Random
    now: datetime = BEGIN
    jobs: dict[str, Job] = field(default_factory=dict)
    ever: list[Job] = field(default_factory=list)
    gateways: list[Sampler] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=dict)

    def clock(self) -> datetime:
        return self.now

    def begin(self) -> None:
        """Start a gateway, which takes what the database has."""
        store = None if self.file is None else Store(f"sqlite:///{self.file}")
        cache: Any = None
        sampler = Sampler(cache, store=store, keep_days=KEPT_DAYS, now=self.clock)
        if store is not None:
            self.stores.append(store)
            sampler.take_over(store, there=[each.uid for each in self.jobs.values() if each.phase == "Running"])
        self.gateways.append(sampler)

    def end(self) -> None:
        """Stop the gateway that has run longest; it writes what it has."""
        if self.stores:
            self.stores.pop(0).fails = False
        self.gateways.pop(0).close()

    def step(self) -> None:
        """Change a job."""
        key = self.rng.choice(NAMES)
        job = self.jobs.get(key)
        if job is None:
            job = Job(uid=f"uid-{len(self.ever)}", key=key, gpus=len(self.ever) + 1)
            self.jobs[key] = job
            self.ever.append(job)
        elif job.phase == "Running" and self.rng.random() < 0.5:
            job.phase = "Succeeded"
        else:
            job.is_there = False
            del self.jobs[key]

    async def sample(self, *, away: float = 0.1) -> None:
        """One sample of each gateway that is not away, with this probability."""
        for sampler in self.gateways:
            if self.rng.random() < away:
                continue
            sampler._pending.append(await sampler.take(self.reading(), now=self.now))
            await sampler._write()
        self.now += timedelta(seconds=self.rng.choice([30, 30, 30, 300, 7200, 86_400]))

    def reading(self) -> Reading:
        held = [each for each in self.jobs.values() if each.phase == "Running"]
        for each in held:
            each.was_sampled = True
        return Reading(
            uuids=(),
            devices=np.empty((0, len(DEVICE)), np.float32),
            places={},
            holdings=[_holding(each) for each in held],
            waiting={},
            running={},
            jobs={each.uid: each.typed() for each in self.jobs.values()},
        )

    async def compare(self) -> None:
        """Each gateway shows each job its own curve, and of a job that is gone that of the last one of its name."""
        for sampler in self.gateways:
            for key in NAMES:
                await self.compare_one(sampler, key=key)
        for store in self.stores[:1]:
            for kept in store.curves([each.uid for each in self.ever]):
                assert kept.until >= self.reached.get(kept.uid, 0), f"the curve of {kept.uid} has become shorter"
                self.reached[kept.uid] = kept.until

    async def compare_one(self, sampler: Sampler, *, key: str) -> None:
        job, (namespace, name) = self.jobs.get(key), key.split("/")
        found = await sampler.curve(namespace, name=name, uid=None if job is None else job.uid)
        if found is None:
            return
        of = next(each for each in self.ever if each.uid == found.uid)
        assert of.key == key
        assert job is None or of is job, f"{job and job.uid} has the curve of {of.uid}"
        promised = found.curve.samples().values["promised"][:, 0]
        assert set(promised[~np.isnan(promised)].tolist()) <= {of.gpus}


def _holding(job: Job) -> Holding:
    return Holding(
        namespace=job.key.split("/")[0],
        pod=f"{job.uid}-0",
        job=job.uid,
        project="",
        user="",
        model="H100",
        promised=job.gpus,
        utilization=None,
        memory_used_mib=None,
        memory_promised_mib=0,
        power_watts=None,
        temperature=None,
        since=None,
    )


async def walk(world: World, *, restarts: bool) -> None:
    world.begin()
    for _ in range(60):
        if world.rng.random() < 0.4:
            world.step()
        if restarts and world.rng.random() < 0.2:
            # For a while there are two, as while a Deployment is rolled out.
            world.end() if len(world.gateways) > 1 else world.begin()
        for store in world.stores:
            store.fails = world.rng.random() < 0.3
        await world.sample()
        await world.compare()


@pytest.mark.parametrize("seed", range(8))
def test_of_two_gateways_none_makes_a_curve_shorter_and_each_job_has_its_own(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path / "s.db", Random(seed))

    async def run() -> None:
        await walk(world, restarts=True)
        for store in world.stores:
            store.fails = False
        await world.sample(away=0)
        await settle(world, sampled=world.gateways[0])

    asyncio.run(run())
    for sampler in world.gateways:
        sampler.close()


@pytest.mark.parametrize("seed", range(4))
def test_without_a_database_a_job_that_comes_again_does_not_get_the_curve_of_the_one_before(seed: int) -> None:
    world = World(None, Random(seed))
    asyncio.run(walk(world, restarts=False))
    assert len(world.ever) > len(NAMES)


async def settle(world: World, *, sampled: Sampler) -> None:
    """In the end, the last job of each name that was sampled has its curve, whether or not it is there."""
    for key in NAMES:
        namespace, name = key.split("/")
        jobs = [each for each in world.ever if each.key == key and each.was_sampled]
        if key not in world.jobs and jobs:
            found = await sampled.curve(namespace, name=name, uid=None)
            assert found is not None
            assert found.uid == jobs[-1].uid


def test_the_last_step_of_a_long_job_does_not_hide_its_successor(tmp_path: Path) -> None:
    """It may reach hours beyond the job's end, and so beyond all of a short job of the same name."""
    store, start = SampleStore(f"sqlite:///{tmp_path / 's.db'}"), int(BEGIN.timestamp())
    store.open()
    long, short = Curve(start, step=4 * 3600), Curve(start + 24 * 3600 + 60)
    for curve in (long, short):
        curve.add(start + 24 * 3600 + 60, values=np.ones(len(HELD), np.float32))
    assert long.end > short.end
    kept = [
        KeptCurve(uid=uid, namespace="red", name="train", until=curve.end, data=curve.encode())
        for uid, curve in (("long", long), ("short", short))
    ]
    store.write(Batch(curves=kept))
    found = [store.curve("red", name="train", uid=uid) for uid in (None, "long", "short", "gone")]
    store.close()
    assert [each and each.uid for each in found] == ["short", "long", "short", None]
