"""Curves that are kept between questions are those that are read anew, whatever was sampled meanwhile."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail_gateway.samples import sampler as sampler_module
from dovetail_gateway.samples.columns import DEVICE
from dovetail_gateway.samples.readings import Holding, Place, Reading
from dovetail_gateway.samples.rings import STEP_SECONDS, Rings, grid
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.sources import Group, RingCurves
from tests.gateway.builders import make_job

BEGIN = 1_790_000_000
UUIDS = [f"gpu-{at}" for at in range(6)]


class Sampled:
    """Rings of devices, as a sampler has them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.devices = Rings(DEVICE)
        self.places = {uuid: self.place(at) for at, uuid in enumerate(UUIDS)}
        self.now = BEGIN
        self.read = 0

    def place(self, at: int, *, model: str = "V100", gpus: float = 1.0, memory_mib: int = 32768) -> Place:
        return Place(node=f"n-{at % 2}", index=at, model=model, gpus=gpus, memory_mib=memory_mib)

    async def in_thread(self, compute: Callable[[], Any]) -> Any:
        self.read += 1
        return compute()

    def sample(self, *, steps: int = 1) -> None:
        self.now += steps * STEP_SECONDS
        there = self.random.sample(UUIDS, self.random.randint(1, len(UUIDS)))
        values = np.array([[self.random.random() for _ in DEVICE] for _ in there], np.float32)
        self.devices.put(self.now, subjects=there, values=values)

    def restore(self) -> None:
        """What another gateway sampled before."""
        other = Rings(DEVICE)
        other.put(self.now - 600, subjects=UUIDS[:2], values=np.full((2, len(DEVICE)), 0.5, np.float32))
        self.devices.restore(other.row(0, at=(self.now - 600) // STEP_SECONDS * STEP_SECONDS))
        self.devices.restored()


@pytest.mark.parametrize("seed", range(6))
async def test_kept_curves_are_those_that_are_read_anew(seed: int) -> None:
    random = Random(seed)
    sampled = Sampled(random)
    kept = RingCurves(sampled)  # type: ignore[arg-type]
    groups: list[tuple[Group, str | None]] = [("Cluster", None), ("Model", None), ("Node", "n-0"), ("Device", "n-1")]
    # All devices have samples, so that every group is known.
    sampled.devices.put(sampled.now, subjects=UUIDS, values=np.zeros((len(UUIDS), len(DEVICE)), np.float32))
    for _ in range(120):
        act = random.random()
        if act < 0.45:
            sampled.sample(steps=random.choice([1, 1, 1, 2, 25, 300]))
        elif act < 0.5:
            sampled.restore()
        elif act < 0.6:
            at = random.randrange(len(UUIDS))
            sampled.places[UUIDS[at]] = sampled.place(
                at,
                model=random.choice(["V100", "A100"]),
                gpus=random.choice([1.0, 0.25]),
                memory_mib=random.choice([8192, 32768]),
            )
        since = sampled.now - random.choice([600, 3600, 80_000, 600_000, 2_000_000])
        until = random.choice([sampled.now + 1, sampled.now + 1, since + 300, since + 3600])
        times = grid(since=since, until=until, now=sampled.now)
        of, name = random.choice(groups)
        anew = RingCurves(sampled)  # type: ignore[arg-type]
        assert await kept.rows(of, name=name, times=times) == await anew.rows(of, name=name, times=times)


async def test_a_question_asked_again_after_a_sample_reads_the_last_step_alone() -> None:
    sampled = Sampled(Random(1))
    kept, lengths = RingCurves(sampled), list[int]()  # type: ignore[arg-type]
    read = sampled.devices.read

    def counted(times: Any, *, subjects: Any) -> Any:
        lengths.append(times.count)
        return read(times, subjects=subjects)

    sampled.devices.read = counted  # type: ignore[method-assign]
    sampled.devices.put(sampled.now, subjects=UUIDS, values=np.zeros((len(UUIDS), len(DEVICE)), np.float32))
    for _ in range(3):
        for _ in range(2):
            times = grid(since=sampled.now - 3000, until=sampled.now + 1, now=sampled.now)
            await kept.rows("Cluster", name=None, times=times)
        sampled.sample()
    assert lengths[0] > 90
    assert lengths[1:] == [2, 2]


def held_job(name: str, *, namespace: str, uid: str, phase: str = "Running") -> GPUJob:
    job = make_job(name, namespace=namespace, status={"phase": phase, "number": 1})
    job["metadata"]["uid"] = uid
    return decode(json.dumps(job), as_type=GPUJob)


@pytest.mark.parametrize("seed", range(3))
async def test_without_a_database_the_last_job_of_each_name_keeps_its_curve(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two tenants with equal names; jobs end, are deleted, and come again under their names."""
    rng, most = Random(seed), 3
    monkeypatch.setattr(sampler_module, "_MOST_ENDED", most)
    sampler = Sampler(None, store=None, keep_days=30, now=lambda: datetime.now(UTC))  # type: ignore[arg-type] # takes no sample itself
    now, count = BEGIN, 0
    running: dict[tuple[str, str], str] = {}
    # The UID of the job of each name that ended last, in the order of the ends of the first ones.
    ended: dict[tuple[str, str], str] = {}
    for _ in range(80):
        now += STEP_SECONDS
        there: dict[str, GPUJob] = {}
        holdings = []
        over: list[tuple[str, str]] = []
        for key in ((each, name) for each in ("red", "blue") for name in ("a", "b", "c")):
            namespace, name = key
            if key in running and rng.random() < 0.3:
                over.append(key)
                if rng.random() < 0.5:
                    uid = running[key]
                    there[uid] = held_job(name, namespace=namespace, uid=uid, phase="Succeeded")
            elif key in running or rng.random() < 0.3:
                if key not in running:
                    count += 1
                    running[key] = f"uid-{count}"
                uid = running[key]
                there[uid] = held_job(name, namespace=namespace, uid=uid)
                holdings.append(holding(namespace, job=uid))
        reading = Reading(
            uuids=[], devices=np.zeros((0, len(DEVICE)), np.float32), places={}, holdings=holdings, waiting={},
            running={}, jobs=there,
        )  # fmt: skip
        await sampler.take(reading, now=datetime.fromtimestamp(now, UTC))
        # As the sampler goes through its curves: in the order in which they began.
        for key in sorted(over, key=lambda key: int(running[key].removeprefix("uid-"))):
            ended[key] = running.pop(key)
            if len(ended) > most:
                del ended[next(iter(ended))]
        for namespace, name in ((each, name) for each in ("red", "blue") for name in ("a", "b", "c")):
            uid, last = running.get((namespace, name)), ended.get((namespace, name))
            for asked, wanted in [(None, uid or last), *((each, each) for each in (uid, last) if each)]:
                found = await sampler.curve(namespace, name=name, uid=asked)
                assert (None if found is None else found.uid) == wanted, (namespace, name, asked)
            assert await sampler.curve(namespace, name=name, uid="another") is None


def holding(namespace: str, *, job: str) -> Holding:
    return Holding(
        namespace=namespace, pod=f"pod-{job}", job=job, project="", user="", model="V100", promised=1.0,
        utilization=0.5, memory_used_mib=1.0, memory_promised_mib=2.0, power_watts=None, temperature=None, since=None,
    )  # fmt: skip
