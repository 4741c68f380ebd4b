"""Curves that are kept between questions are those that are read anew, whatever was sampled meanwhile."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from dovetail_gateway.samples.columns import DEVICE
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import STEP_SECONDS, Rings, grid
from dovetail_gateway.samples.sources import Group, RingCurves

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

    def place(self, at: int, *, model: str = "V100") -> Place:
        return Place(node=f"n-{at % 2}", index=at, model=model, gpus=1.0, memory_mib=32768)

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
        elif act < 0.55:
            at = random.randrange(len(UUIDS))
            sampled.places[UUIDS[at]] = sampled.place(at, model=random.choice(["V100", "A100"]))
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
