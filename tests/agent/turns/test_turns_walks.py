"""Turns over an hour of virtual time, with pods that compute, rest and compute again, measured every 15 s.

Pods that compute never run together on a device. No pod is stopped for one that has computed nothing for long.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Process, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.turns.cgroup_freezer import freezer_at
from dovetail_agent.turns.feature import TurnsFeature
from dovetail_agent.turns.state_files import Marks
from dovetail_agent.turns.suspender import Refusal
from dovetail_agent.turns.watchdog import AGENT, WATCHDOG
from tests import virtual_time
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.fake_cgroups import UID, FakeKernel
from tests.agent.turns.test_feature import Probed
from tests.background import running

NODE: Final = make_node()
INVENTORY: Final = SimulatedProvider().inventory(NODE)
MEASURED_EVERY, LOOKS, TURN_SECONDS = 15.0, 3, 2.0
# Less than this between two measurements does not show.
SHOWN_SECONDS: Final = 0.5
# How long a pod may be stopped for one that computes nothing, and two may run together: the longest wait for a turn,
# and then until the measurement after next.
KNOWN_SECONDS: Final = 100.0
# Until the loop has seen that there is a watchdog.
WATCHED_SECONDS: Final = 20.0
T = TypeVar("T")


async def inline(act: Callable[..., T], *args: Any) -> T:
    """In place of a thread, which knows no virtual time."""
    return act(*args)


@dataclass
class Pod:
    """What a pod does, and since when. `is_told`: the driver says whether it computes."""

    tenant: NodeTenant
    is_told: bool
    is_busy: bool
    since: float
    is_frozen: bool = False
    computed_seconds: float = 0.0

    @property
    def devices(self) -> frozenset[str]:
        return frozenset(each.uuid for each in self.tenant.devices)

    def may_want_turns(self, *, now: float) -> bool:
        return self.is_busy or not self.is_told or now - self.since < KNOWN_SECONDS


class World:
    """A node whose pods are stopped and woken. It is the feature's suspender."""

    name = "made up"

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.rng = Random(seed)
        kernel = FakeKernel(folder / "cgroup", version=1)
        kernel.add(f"kubepods/pod{UID}")
        self.marks = Marks(folder / "marks", clock=virtual_time.clock)
        self.marks.prepare()
        self.pods: dict[str, Pod] = {}
        self.stops = 0
        self._at = virtual_time.clock()
        self._measured: tuple[float, tuple[DeviceSample, ...]] | None = None
        self._watched_since: float | None = None
        self.feature = TurnsFeature(
            lambda: Probed(freezer_at(kernel.mount).root),
            marks=self.marks,
            turn_seconds=TURN_SECONDS,
            around=lambda _freezer: self,
            clock=virtual_time.clock,
        )
        for number, indexes in enumerate([(0,), (0,), (0, 1), (1,)][: self.rng.choice([2, 3, 4])]):
            tenant = make_tenant(*map(allocated, indexes), uid=f"pod-{number}")
            tenant = with_fields(tenant, mode="TimeShared", name=f"pod-{number}", priority=self.rng.choice([1, 10]))
            self.pods[tenant.uid] = Pod(
                tenant=tenant, is_told=self.rng.random() < 0.8, is_busy=self.rng.random() < 0.5, since=self._at
            )

    # --- the suspender ------------------------------------------------------------------------------------------

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        self.pass_time()
        pod = self.pods[tenant.uid]
        if not pod.is_frozen:
            self.stops += 1
            wanted = any(each.may_want_turns(now=self._at) for each in self._rivals(pod))
            assert wanted or not self._has_turns_for(KNOWN_SECONDS, now=self._at), (
                f"at {self._at:g} s, {tenant.name} is stopped, and no other computes"
            )
        pod.is_frozen = True
        return None

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        self.pass_time()
        self.pods[tenant.uid].is_frozen = False
        return None

    # --- what the pods do ---------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """Take account of what has been since the last change."""
        before, self._at = self._at, virtual_time.clock()
        if before == self._at:
            return
        computing = [each for each in self.pods.values() if each.is_busy and not each.is_frozen]
        for pod in computing:
            pod.computed_seconds += self._at - before
        if not self._has_turns_for(WATCHED_SECONDS, now=before):
            return
        known = [each for each in computing if before - each.since >= KNOWN_SECONDS]
        together = [
            (one.tenant.name, other.tenant.name) for one in known for other in self._rivals(one) if other in known
        ]
        assert not together, f"at {before:g} s, {together[0]} run together"

    def step(self) -> None:
        """Change what one pod does, or whether the watchdog is there."""
        self.pass_time()
        if self.rng.random() < 0.1:
            self._watched_since = None if self._watched_since is not None else self._at
            return
        pod = self.rng.choice(list(self.pods.values()))
        pod.is_busy, pod.since = not pod.is_busy, self._at

    def measure(self) -> None:
        self.pass_time()
        self._measured = self._at, tuple(self._sample(each.uuid) for each in INVENTORY.devices)
        for pod in self.pods.values():
            pod.computed_seconds = 0.0

    def look(self) -> None:
        """A look of the agent, at the last measurement."""
        self.pass_time()
        assert self._measured is not None
        measured_at = NOON + timedelta(seconds=self._measured[0])
        seen = Seen(
            node=NODE,
            now=NOON + timedelta(seconds=self._at),
            tenants=tuple(pod.tenant for pod in self.pods.values()),
            inventory=INVENTORY,
            sample=Sample(devices=self._measured[1], measured_at=measured_at),
        )
        self.feature.amend(GPUNodeStatus(), seen=seen)

    def _sample(self, uuid: str) -> DeviceSample:
        held = {uid: pod for uid, pod in self.pods.items() if uuid in pod.devices}
        processes = tuple(
            Process(
                pid=number,
                used_mib=900,
                pod_uid=uid,
                utilization=(0.7 if pod.computed_seconds >= SHOWN_SECONDS else 0.0) if pod.is_told else None,
            )
            for number, (uid, pod) in enumerate(held.items())
        )
        return DeviceSample(used_by_tenant_mib=dict.fromkeys(held, 900), processes=processes)

    def _rivals(self, pod: Pod) -> list[Pod]:
        return [each for each in self.pods.values() if each is not pod and each.devices & pod.devices]

    def _has_turns_for(self, seconds: float, *, now: float) -> bool:
        """Whether there has been a watchdog for so long; without one, all run and nobody is judged."""
        return self._watched_since is not None and now - self._watched_since >= seconds

    async def watch(self) -> None:
        """The watchdog's beats, while it is there."""
        while True:
            if self._watched_since is not None:
                self.marks.beat(WATCHDOG)
            await asyncio.sleep(2)

    async def agent(self) -> None:
        """The agent's looks: some right after a measurement, and some later."""
        late = self.rng.choice([0.0, 0.7, 3.0])
        while True:
            self.measure()
            await asyncio.sleep(late)
            for _ in range(LOOKS):
                self.look()
                await asyncio.sleep((MEASURED_EVERY - late) / LOOKS)


async def walk(folder: Path, *, seed: int) -> World:
    world = World(folder, seed=seed)
    async with running(world.watch()), running(world.agent()):
        async with running(world.feature.run(lambda: None)):
            world._watched_since = virtual_time.clock()
            for _ in range(16):
                await asyncio.sleep(world.rng.choice([3, 30, 200, 600]))
                world.step()
        world.pass_time()
        assert not any(pod.is_frozen for pod in world.pods.values())
        assert not world.marks.alive(AGENT)
    return world


def run(scenario: Coroutine[Any, Any, T]) -> T:
    with patch.object(asyncio, "to_thread", inline):
        return virtual_time.run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_those_that_compute_take_turns_and_none_is_stopped_for_one_that_rests(tmp_path: Path, seed: int) -> None:
    assert run(walk(tmp_path, seed=seed)).stops
