"""What is left of a device to its tenants, computed again from who uses what: promises, measured use, strangers."""

from pathlib import Path
from random import Random

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.gpu.memory import CARD_MARGIN_MIB, HOST_MARGIN_MIB
from dovetail_agent.checkpoint.admission import Candidate, OnDevice, refusal_of, room_for
from dovetail_agent.checkpoint.node_state import card_memory, pod_free_mib
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Seen
from tests.agent.builders import NOON, make_node
from tests.agent.fake_cgroups import UID
from tests.seeds import seeds

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


@seeds(150)
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


@pytest.mark.parametrize("seed", range(80))
def test_a_pod_may_use_what_its_limit_and_the_node_leave(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    version, by_systemd = random.choice([1, 2]), random.random() < 0.5
    limit_mib, used_mib, node_mib = random.choice([None, 1000, 4000]), random.choice([0, 800, 4200]), 3000
    root = tmp_path if version == 2 else tmp_path / "memory"
    group = root / "kubepods" / (f"kubepods-pod{UID.replace('-', '_')}.slice" if by_systemd else f"pod{UID}")
    group.mkdir(parents=True)
    if version == 2:
        (tmp_path / "cgroup.controllers").touch()
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    unlimited = "max" if version == 2 else str(0x7FFFFFFFFFFFF000)
    amounts = (unlimited if limit_mib is None else str(limit_mib << 20), str(used_mib << 20))
    for name, amount in zip(names, amounts, strict=True):
        (group / name).write_text(f"{amount}\n")
    (tmp_path / "meminfo").write_text(f"MemTotal: {8000 << 10} kB\nMemAvailable:  {node_mib << 10} kB\n")
    left = node_mib if limit_mib is None else min(node_mib, max(0, limit_mib - used_mib))
    assert pod_free_mib(UID, mount=tmp_path, proc=tmp_path) == left
    (tmp_path / "meminfo").unlink()
    assert pod_free_mib(UID, mount=tmp_path, proc=tmp_path) is None


@seeds(80)
def test_a_process_returns_where_each_of_its_devices_has_room_for_all_that_it_had_there(seed: int) -> None:
    random = Random(seed)
    promised = {OURS: 4000, OTHER: 6000}
    parts = [
        OnDevice(pid=7, uuid=random.choice([OURS, OTHER]), used_mib=random.choice([None, 500, 2500]))
        for _ in range(random.randint(1, 4))
    ]
    host = random.choice([None, 2000, 6000, 60000])
    candidate = Candidate(name="team/p", processes=parts, promised_mib=promised, host_free_mib=host)
    needs = {
        uuid: sum(promised[uuid] if each.used_mib is None else each.used_mib for each in parts if each.uuid == uuid)
        for uuid in {each.uuid for each in parts}
    }
    assert candidate.needs_mib == needs
    refused = refusal_of(candidate)
    fits = host is not None and host >= sum(needs.values()) + HOST_MARGIN_MIB
    assert (refused is None) == fits
    free = {uuid: needs[uuid] + CARD_MARGIN_MIB + random.choice([-1, 0, 1]) for uuid in needs if random.random() < 0.9}
    has_room = all(free.get(uuid, 0) >= mib + CARD_MARGIN_MIB for uuid, mib in needs.items())
    assert (room_for(needs, free_mib=free) == "") == has_room
