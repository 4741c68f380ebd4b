"""What is left of a device to its tenants, computed again from who uses what: promises, measured use, strangers."""

from random import Random

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.node_state import card_memory
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Seen
from tests.agent.builders import NOON, make_node

OURS, OTHER = "GPU-0", "GPU-1"
DEVICE = DeviceInfo(uuid=OURS, index=0, vendor="nvidia", model="V100", memory_mib=32768, reserved_mib=768)


def drawn(random: Random, *, number: int) -> NodeTenant:
    """A tenant of one of two devices, or of parts of both; some may move to the host, at different guards."""
    where = random.choice([(OURS,), (OURS,), (OURS, OTHER), (OTHER,)])
    held = [
        AllocatedDevice(uuid=uuid, index=0, share_milli=300, memory_mib=random.choice([4096, 16384])) for uuid in where
    ]
    return NodeTenant(
        uid=f"uid-{number}", namespace="team", name=f"p{number}", devices=held,
        movable=random.random() < 0.6, guard_fraction=random.choice([1.0, 0.95, 0.8, 0.5]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_strangers_and_the_strictest_guard_take_from_what_the_tenants_of_a_device_have(seed: int) -> None:
    random = Random(seed)
    tenants = [drawn(random, number=number) for number in range(random.randint(0, 4))]
    used = {tenant.uid: random.choice([0, 1000, 6000, 20000]) for tenant in tenants if random.random() < 0.7}
    strangers = random.choice([0, 0, 3000])
    is_known = random.random() < 0.8
    here = [tenant for tenant in tenants if any(device.uuid == OURS for device in tenant.devices)]
    ours = {tenant.uid: used.get(tenant.uid, 0) for tenant in here}
    sample = DeviceSample(
        used_mib=random.choice([None, sum(ours.values()) + strangers]),
        used_by_tenant_mib={uid: mib for uid, mib in ours.items() if mib} if is_known else None,
    )
    found = card_memory(DEVICE, sample=sample, seen=Seen(node=make_node(), now=NOON, tenants=tuple(tenants)))
    promised = {
        tenant.uid: sum(device.memory_mib for device in tenant.devices if device.uuid == OURS) for tenant in here
    }
    measured = sample.used_by_tenant_mib or {}
    total = DEVICE.memory_mib - DEVICE.reserved_mib
    guarded = int(total * min((tenant.guard_fraction for tenant in here if tenant.movable), default=1.0))
    of_others = strangers if sample.used_mib is not None and measured else 0
    assert found.wanted_mib == {uid: max(mib, measured.get(uid, 0)) for uid, mib in promised.items()}
    assert found.usable_mib == (guarded if sum(promised.values()) > guarded else total) - of_others
    assert found.fits == (sum(found.wanted_mib.values()) <= found.usable_mib)
