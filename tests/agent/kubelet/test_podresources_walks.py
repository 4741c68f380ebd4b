"""Pods that come, end and come again under the same names while kubelet is asked, in virtual time.

kubelet says which devices a name has, and not which pod. Each device that is reported of a pod is one that kubelet gave
to that pod, and in the end all of them are reported.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import Assignment, GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.assignments import HeldDevice, Holder
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.kubelet import feature as module
from dovetail_agent.kubelet.feature import KubeletDevices, PodResourcesError
from tests import virtual_time
from tests.agent.builders import NOON, make_node
from tests.agent.devices.test_assignments import asking
from tests.background import running

NODE: Final = make_node(devices={"model": "V100", "count": 8, "memoryMiB": 32768})
CARDS: Final = [device_uuid("v100-0", index=index) for index in range(8)]
INVENTORY: Final = SimulatedProvider().inventory(NODE)
EVERY_SECONDS: Final = 60.0


@dataclass
class Cluster:
    """Pods by name, what kubelet has given to each, and an agent that looks."""

    rng: Random
    # The pod of each name by its UID, and the device that kubelet gave to it: those it has now, and all of them.
    pods: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    ever: dict[str, str] = field(default_factory=dict)
    is_away: bool = False
    made: int = 0
    reported: list[Assignment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feature = self.agent()

    @staticmethod
    def agent() -> KubeletDevices:
        return KubeletDevices(
            node="v100-0", socket=Path("/kubelet.sock"), every_seconds=EVERY_SECONDS, vendors=DEFAULT_VENDORS
        )

    async def holders(self, socket: Path) -> tuple[Holder, ...]:
        """What kubelet says: it is late, and what it says is from before."""
        found = tuple(
            Holder(namespace="ml", name=name, devices=(HeldDevice(asked_by="nvidia.com/gpu", id=self.given[uid]),))
            for name, uid in self.pods.items()
            if uid in self.given
        )
        is_away = self.is_away
        await asyncio.sleep(self.rng.choice([0.0, 0.2, 3.0]))
        if is_away:
            raise PodResourcesError(socket, problem="no answer")
        return found

    def step(self) -> None:
        """Change something."""
        name = self.rng.choice(["a", "b", "c"])
        uid = self.pods.get(name)
        if uid is None:
            self.make(name)
        elif uid not in self.given and self.rng.random() < 0.7:
            free = [card for card in CARDS if card not in self.given.values()]
            self.given[uid] = self.ever[uid] = self.rng.choice(free)
        elif self.rng.random() < 0.7:
            # kubelet has forgotten a pod before another one can have its name.
            del self.pods[name]
            self.given.pop(uid, None)
            if self.rng.random() < 0.5:
                self.make(name)
        else:
            self.is_away = not self.is_away

    def make(self, name: str) -> None:
        self.made += 1
        self.pods[name] = f"uid-{self.made}"

    def look(self) -> None:
        """A look of the agent: what it reports is true of the pods that it names."""
        tenants = tuple(with_fields(asking(1, uid=uid), name=name) for name, uid in self.pods.items())
        status = GPUNodeStatus(assignments=self.reported)
        gpunode = GPUNode(metadata=ObjectMeta(name="v100-0"), status=status)
        seen = Seen(node=NODE, now=NOON, inventory=INVENTORY, tenants=tenants, gpunode=gpunode)
        found = self.feature.assignments(seen)
        assert found is not None
        for each in found:
            assert self.pods[each.name] == each.uid
            assert each.devices == [self.ever.get(each.uid)], f"{each.uid} has {each.devices}"
        self.reported = found


@contextmanager
def asked(cluster: Cluster) -> Iterator[None]:
    with patch.object(module, "holders", cluster.holders):
        yield


async def walk(cluster: Cluster) -> None:
    for _ in range(4):
        async with running(cluster.feature.run(lambda: None)):
            for _ in range(25):
                cluster.step()
                await asyncio.sleep(cluster.rng.choice([0.0, 0.1, 0.5, 1.0, 5.0]))
                cluster.look()
            cluster.is_away = False
            await asyncio.sleep(2 * EVERY_SECONDS)
            cluster.look()
            await asyncio.sleep(2 * EVERY_SECONDS)
            cluster.look()
            there = {uid: card for uid, card in cluster.given.items() if uid in cluster.pods.values()}
            assert {each.uid: each.devices for each in cluster.reported} == {uid: [card] for uid, card in there.items()}
        # Another agent takes over from the report.
        cluster.feature = cluster.agent()


@pytest.mark.parametrize("seed", range(12))
def test_a_pod_is_reported_with_the_devices_that_kubelet_gave_to_it_and_no_others(seed: int) -> None:
    cluster = Cluster(Random(seed))
    with asked(cluster):
        virtual_time.run(walk(cluster))
    assert cluster.made > 10
