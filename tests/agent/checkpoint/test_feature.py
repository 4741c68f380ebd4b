"""Suspend to host as the agent reports it, and the node as it sees it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import find_condition
from dovetail_agent.checkpoint.feature import CheckpointFeature
from dovetail_agent.checkpoint.node_state import SeenWorld, pod_free_mib
from dovetail_agent.checkpoint.state_files import CheckpointMarks
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Process, Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.mps.devices import MpsDevice
from dovetail_agent.mps.probe import Verdict
from dovetail_agent.turns.feature import contenders
from dovetail_agent.turns.suspender import Refusal
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.mps_machine import FakeCards
from tests.agent.recorded import Recorded
from tests.agent.suspension import FakeFreezer, Rig

UID, OTHER = "11111111-2222-4333-8444-555555555555", "66666666-2222-4333-8444-555555555555"
CARD = allocated(0).uuid
LIVE = Verdict(live=True, reason="Probed", message="a process of ours was moved to the host and back")
ABSENT = Verdict(reason="ProbeFailed", message="the driver offers no checkpoint of processes")


def tenant(uid: str = UID, *, mib: int = 20_000) -> NodeTenant:
    shared = make_tenant(allocated(0, memory_mib=mib), uid=uid)
    return with_fields(shared, mode="TimeShared", namespace="ml", name=f"job-{uid[0]}")


def seen(*tenants: NodeTenant, used: dict[str, int], mig: str = "", more_processes: tuple[Process, ...] = ()) -> Seen:
    info = DeviceInfo(
        index=0, uuid=CARD, vendor="nvidia", model="V100", memory_mib=33_000, reserved_mib=1000, mig_profile=mig
    )
    processes = tuple(
        Process(pid=at, used_mib=mib, pod_uid=uid) for at, (uid, mib) in enumerate(used.items(), start=40)
    )
    sample = DeviceSample(used_mib=sum(used.values()), used_by_tenant_mib=used, processes=(*processes, *more_processes))
    inventory = Inventory(devices=(info,))
    return Seen(node=make_node(), now=NOON, tenants=tenants, inventory=inventory, sample=Sample(devices=(sample,)))


@pytest.fixture
def world(tmp_path: Path) -> SeenWorld:
    cards = FakeCards(cards={CARD: MpsDevice(free_mib=5000, exclusive=False)})
    made = SeenWorld(cards=cards, cgroups=tmp_path, proc=tmp_path, mps_clients=lambda: {OTHER})
    made.live = True
    return made


def test_tenants_that_fit_together_crowd_nobody(world: SeenWorld) -> None:
    world.seen = seen(tenant(mib=16_000), tenant(OTHER, mib=16_000), used={UID: 15_000, OTHER: 15_000})
    assert not world.crowded(tenant())


def test_promises_that_do_not_fit_together_crowd_though_little_is_used_yet(world: SeenWorld) -> None:
    world.seen = seen(tenant(), tenant(OTHER), used={UID: 1000})
    assert world.crowded(tenant())


@pytest.mark.parametrize(("mib", "crowded"), [(12_800, False), (12_801, True)])
def test_tenants_that_were_let_in_to_overlap_leave_each_other_what_their_guard_does(
    world: SeenWorld, mib: int, crowded: bool
) -> None:
    both = [with_fields(tenant(uid, mib=mib), movable=True, guard_fraction=0.8) for uid in (UID, OTHER)]
    world.seen = seen(*both, used={UID: 13_500, OTHER: 13_500})
    assert world.crowded(both[0]) is crowded


def test_one_that_uses_more_than_it_was_promised_crowds(world: SeenWorld) -> None:
    world.seen = seen(tenant(mib=1000), tenant(OTHER, mib=1000), used={UID: 32_000, OTHER: 500})
    assert world.crowded(tenant())


def test_memory_of_strangers_is_not_there_for_tenants(world: SeenWorld) -> None:
    world.seen = seen(tenant(mib=16_000), tenant(OTHER, mib=14_000), used={"somebody": 3000, UID: 1000, OTHER: 1000})
    assert world.crowded(tenant())


def test_before_it_was_proven_nobody_is_to_be_moved(world: SeenWorld) -> None:
    world.seen, world.live = seen(tenant(), tenant(OTHER), used={}), False
    assert not world.crowded(tenant())


def test_a_candidate_has_its_own_processes_and_no_others(world: SeenWorld) -> None:
    world.seen = seen(tenant(), tenant(OTHER), used={UID: 700, OTHER: 900})
    candidate = world.candidate(tenant())
    assert ([each.pid for each in candidate.processes], candidate.needs_mib) == ([40], {CARD: 700})
    assert (candidate.under_mps, world.candidate(tenant(OTHER)).under_mps) == (False, True)


def test_a_candidate_on_a_mig_device_is_known(world: SeenWorld) -> None:
    world.seen = seen(tenant(), used={UID: 700}, mig="1g.10gb")
    assert world.candidate(tenant()).in_mig


def test_what_the_driver_does_not_say_of_a_process_is_what_it_was_promised(world: SeenWorld) -> None:
    untold = Process(pid=9, used_mib=None, pod_uid=UID)
    world.seen = seen(tenant(), used={}, more_processes=(untold,))
    assert world.candidate(tenant()).needs_mib == {CARD: 20_000}


def test_cards_that_cannot_be_read_have_no_room(world: SeenWorld) -> None:
    assert world.free_mib() == {CARD: 5000}
    world._cards = FakeCards(problem="NVML: GPU is lost")
    assert world.free_mib() == {}


V2, V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "limit", "used", "left"),
    [
        (V2, str(2 * GIB), GIB, 1024),
        (V2, "max", 5, 8192),
        (V1, str(3 * GIB), GIB, 2048),
        (V1, "9223372036854771712", 1, 8192),
        (V2, "1", GIB, 0),
        (V2, "never heard of it", 1, None),
    ],
    ids=["v2", "v2 without a limit", "v1", "v1 without a limit", "above its limit", "unreadable"],
)
def test_what_a_pod_may_still_use_of_the_host_is_read_from_its_cgroup(
    tmp_path: Path, version: tuple[str, str], limit: str, used: int, left: int | None
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable: 8388608 kB\n")
    group = tmp_path / ("memory" if version is V1 else "") / f"kubepods/pod{UID}"
    group.mkdir(parents=True)
    if version is V2:
        (tmp_path / "cgroup.controllers").touch()
    for name, text in zip(version, (limit, str(used)), strict=True):
        (group / name).write_text(text)
    assert pod_free_mib(UID, mount=tmp_path, proc=tmp_path) == left
    assert pod_free_mib(OTHER, mount=tmp_path, proc=tmp_path) is None


def test_who_is_at_the_host_still_wants_its_turn() -> None:
    look = seen(tenant(), tenant(OTHER), used={OTHER: 900})
    assert [each.uid for each, _ in contenders(look)] == [OTHER]
    assert {each.uid for each, _ in contenders(look, away={UID})} == {UID, OTHER}


def feature(folder: Path, world: SeenWorld, verdict: Verdict, *, recorded: Recorded | None = None) -> CheckpointFeature:
    made = CheckpointFeature(
        calls=Rig(folder=folder / "rig").suspender._calls,
        marks=CheckpointMarks(folder / "marks", proc=folder),
        world=world,
        probe=lambda: verdict,
        events=recorded or Recorded(),
        turn_seconds=30.0,
    )
    made._verdict = verdict
    return made


def reported(made: CheckpointFeature, look: Seen) -> tuple[bool, str, Any]:
    status = made.amend(GPUNodeStatus(), seen=look)
    condition = find_condition(status.conditions, type="SuspendToHost")
    assert condition is not None
    return status.enforcement.checkpoint, status.enforcement.reasons.get("checkpoint", ""), condition


def test_where_it_is_absent_the_node_says_so(tmp_path: Path, world: SeenWorld) -> None:
    made = feature(tmp_path, world, ABSENT)
    made.around(FakeFreezer())
    holds, why, condition = reported(made, seen(used={}))
    assert (holds, why) == (False, ABSENT.message)
    assert (condition.status, condition.reason, condition.message) == ("False", "ProbeFailed", ABSENT.message)


def test_it_is_claimed_when_proven_and_turns_are_there_to_use_it(tmp_path: Path, world: SeenWorld) -> None:
    made = feature(tmp_path, world, LIVE)
    assert reported(made, seen(used={}))[:2] == (False, "there are no turns here, by which tenants are moved")
    made.around(FakeFreezer())
    holds, why, condition = reported(made, seen(used={}))
    assert (holds, why, condition.status) == (True, "", "True")


def test_a_tenant_that_is_lost_is_told_by_the_node_and_by_an_event(tmp_path: Path, world: SeenWorld) -> None:
    recorded = Recorded()
    made = feature(tmp_path, world, LIVE, recorded=recorded)
    made.around(FakeFreezer())
    assert made._suspender is not None
    made._suspender._troubles = {
        UID: Refusal(reason="Lost", message="ml/job-1 is lost", lost=True),
        OTHER: Refusal(reason="HostMemoryShort", message="too little"),
    }
    look = seen(tenant(), tenant(OTHER), used={})
    asyncio.run(made.act(look, status=GPUNodeStatus()))
    told = [(each.uid, each.reason) for each in recorded.events]
    assert told == [(UID, "SuspendedMemoryLost"), (OTHER, "NotMovedToHost")]
    _, _, condition = reported(made, look)
    assert (condition.status, condition.reason, condition.message) == ("False", "TenantLost", "ml/job-1 is lost")


def test_turns_are_longer_while_somebody_is_at_the_host(tmp_path: Path, world: SeenWorld) -> None:
    made = feature(tmp_path, world, LIVE)
    assert (made.away(), made.shortest_turn()) == (frozenset(), 0.0)
    made.around(FakeFreezer())
    assert made._suspender is not None
    made._suspender._away = frozenset({UID})
    assert made.shortest_turn() == 30.0


def test_it_is_proven_once_and_left_tenants_are_seen_to(tmp_path: Path, world: SeenWorld) -> None:
    made = feature(tmp_path, world, LIVE)
    made._verdict, world.live = ABSENT, False

    async def briefly() -> None:
        woken = asyncio.Event()
        task = asyncio.create_task(made.run(woken.set))
        await asyncio.wait_for(woken.wait(), 60)
        task.cancel()

    asyncio.run(briefly())
    assert world.live
