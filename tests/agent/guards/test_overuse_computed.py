"""Who is above a promise and has to end, over many looks, computed again from who uses what of each device."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace as with_fields
from prometheus_client.core import Metric

from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail_agent.devices.model import DeviceSample, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.memory import GuardRules
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.report.node_status import timestamp
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.recorded import Recorded

CARD_MIB = 16_384
GRACE = timedelta(seconds=60)
NODE = make_node(devices={"model": "V100", "count": 2, "memoryMiB": CARD_MIB})
PLAIN = SimulatedProvider().inventory(NODE)
# The driver keeps a part of each device for itself.
INVENTORY = replace(PLAIN, devices=tuple(replace(info, reserved_mib=768) for info in PLAIN.devices))
DEVICES = [info.uuid for info in INVENTORY.devices]


class Node:
    """Tenants of two devices, of which some have both, and what each has to be said of."""

    def __init__(self, random: Random, *, policy: Any) -> None:
        self.random, self.policy = random, policy
        self.now = NOON
        recorder: Any = Recorded()
        self.feature = MemoryGuardFeature(recorder, rules=GuardRules(policy=policy, grace=GRACE), kill=lambda _: "Gone")
        self.status = GPUNodeStatus()
        self.tenants = [self.tenant(number) for number in range(random.randint(2, 6))]
        self.used: dict[tuple[str, str], int] = {}
        self.since: dict[tuple[str, str], Any] = {}

    def tenant(self, number: int) -> NodeTenant:
        held = [
            allocated(index, share_milli=300, memory_mib=self.random.choice([1024, 4096, 6144]))
            for index in self.random.choice([[0], [0], [1], [0, 1]])
        ]
        mode = self.random.choice(["Fractional", "TimeShared", "Exclusive"])
        return with_fields(make_tenant(*held, uid=f"uid-{number}"), mode=mode, movable=self.random.random() < 0.4)

    def look(self) -> None:
        self.now += timedelta(seconds=self.random.choice([5, 10, 30, 70]))
        self.used = {
            (tenant.uid, device.uuid): self.random.choice([0, 1100, 1500, 4000, 4200, 5000, 6500])
            for tenant in self.tenants
            for device in tenant.devices
        }
        samples = []
        for uuid in DEVICES:
            by_tenant = {uid: mib for (uid, of), mib in self.used.items() if of == uuid}
            samples.append(DeviceSample(used_mib=sum(by_tenant.values()), used_by_tenant_mib=by_tenant))
        gpunode = GPUNode(metadata=ObjectMeta(name=NODE.metadata.name), status=self.status)
        seen = Seen(
            node=NODE, now=self.now, gpunode=gpunode, tenants=tuple(self.tenants), inventory=INVENTORY,
            sample=Sample(devices=tuple(samples)),
        )  # fmt: skip
        self.status = self.feature.amend(GPUNodeStatus(), seen=seen)
        self.check()

    # --- the same by hand ---------------------------------------------------------------------------------------

    def promised(self, uid: str, uuid: str) -> int:
        tenant = next(each for each in self.tenants if each.uid == uid)
        return sum(device.memory_mib for device in tenant.devices if device.uuid == uuid)

    def lacks(self, uuid: str) -> bool:
        """Whether less is free than those who keep to their promises may still take."""
        there = [tenant for tenant in self.tenants if (tenant.uid, uuid) in self.used]
        stay, turns = [each for each in there if not each.movable], [each for each in there if each.movable]
        wanted = sum(max(0, self.promised(each.uid, uuid) - self.used[each.uid, uuid]) for each in stay)
        room_for_one = max((self.promised(each.uid, uuid) for each in turns), default=0)
        wanted += max(0, room_for_one - sum(self.used[each.uid, uuid] for each in turns))
        info = next(info for info in INVENTORY.devices if info.uuid == uuid)
        return wanted > max(0, CARD_MIB - info.reserved_mib - sum(self.used[each.uid, uuid] for each in there))

    def check(self) -> None:
        modes = {tenant.uid: tenant.mode for tenant in self.tenants}
        above = {
            key: mib - self.promised(*key)
            for key, mib in self.used.items()
            if mib > self.promised(*key) and modes[key[0]] != "Exclusive"
        }
        self.since = {key: self.since.get(key, self.now) for key in above}
        found = {(each.uid, each.device): each for each in self.status.overuses}
        assert found.keys() == above.keys()
        for (uid, uuid), excess in above.items():
            told = found[uid, uuid]
            worst = excess == max(mib for (_, of), mib in above.items() if of == uuid)
            is_late = self.now - self.since[uid, uuid] >= GRACE
            assert (told.used_mib - told.promised_mib, told.since) == (excess, timestamp(self.since[uid, uuid]))
            if self.policy == "Warn":
                assert not told.ends
            elif worst and self.lacks(uuid) and not is_late:
                # Of several that are as far above, one is enough.
                rivals = [key for key, mib in above.items() if key[1] == uuid and mib == excess]
                assert any(found[key].ends for key in rivals)
            else:
                assert told.ends == is_late
            assert told.evict == (told.ends and self.policy == "Evict")


@pytest.mark.parametrize("policy", ["Warn", "Evict", "Kill"])
@pytest.mark.parametrize("seed", range(25))
def test_who_is_above_its_promise_too_long_or_takes_the_most_of_what_others_lack_ends(seed: int, policy: str) -> None:
    node = Node(Random(seed), policy=policy)
    for _ in range(12):
        node.look()


def above_promises(feature: MemoryGuardFeature) -> float:
    families: dict[str, Metric] = {family.name: family for family in feature.metrics()}
    return sum(sample.value for sample in families["dovetail_device_over_promise_bytes"].samples)


def test_of_a_node_that_is_gone_nothing_is_above_a_promise() -> None:
    node = Node(Random(3), policy="Warn")
    while not node.status.overuses:
        node.look()
    excess = sum(each.used_mib - each.promised_mib for each in node.status.overuses)
    assert above_promises(node.feature) == excess << 20
    node.feature.forget(NODE.metadata.name)
    assert above_promises(node.feature) == 0
