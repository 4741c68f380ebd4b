"""Turns at work: looks, a freezer on a tree of plain files, a watchdog's sign of life, and real turns of some ms."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.devices.model import DeviceSample, Inventory, Process, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.turns.cgroup_freezer import FreezerV1, Freezing, freezer_at
from dovetail_agent.turns.feature import TurnsFeature, at_rest, contenders
from dovetail_agent.turns.freezer import Freezer
from dovetail_agent.turns.state_files import Marks
from dovetail_agent.turns.suspender import Refusal, Suspender
from dovetail_agent.turns.watchdog import AGENT, WATCHDOG
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.fake_cgroups import OTHER, UID, FakeKernel

NODE = make_node()
FIRST, SECOND = (
    with_fields(make_tenant(allocated(0), uid=uid), mode="TimeShared", namespace="ml", name=name)
    for uid, name in ((UID, "first"), (OTHER, "second"))
)


def seen(*tenants: NodeTenant, used: dict[str, int] | None = None) -> Seen:
    inventory: Inventory = SimulatedProvider().inventory(NODE)
    devices = tuple(DeviceSample(used_by_tenant_mib=used) for _ in inventory.devices)
    return Seen(node=NODE, now=NOON, tenants=tenants, inventory=inventory, sample=Sample(devices=devices))


def wanting(*tenants: NodeTenant, used: dict[str, int] | None = None) -> list[str]:
    return [contender.uid for contender, _ in contenders(seen(*tenants, used=used))]


def test_tenants_that_run_on_a_device_want_turns() -> None:
    assert wanting(FIRST, SECOND) == [UID, OTHER]


@pytest.mark.parametrize(
    "tenant",
    [
        pytest.param(with_fields(FIRST, mode="Fractional"), id="of another mode"),
        pytest.param(with_fields(FIRST, running=False), id="that has not started yet"),
        pytest.param(with_fields(FIRST, leaving=True), id="that was told to end"),
        pytest.param(with_fields(FIRST, devices=[]), id="without a device"),
    ],
)
def test_no_turns_are_dealt_to_a_tenant(tenant: NodeTenant) -> None:
    assert wanting(tenant, SECOND) == [OTHER]


def test_a_tenant_without_a_process_on_its_device_gives_its_turns_away() -> None:
    assert wanting(FIRST, SECOND, used={UID: 0, OTHER: 900}) == [OTHER]


def test_a_tenant_that_works_on_one_of_its_two_devices_wants_turns() -> None:
    both = with_fields(FIRST, devices=[allocated(0), allocated(1)])
    look = seen(both, used={UID: 900})
    assert look.sample
    idle = replace(look.sample.devices[1], used_by_tenant_mib={})
    look = replace(look, sample=replace(look.sample, devices=(look.sample.devices[0], idle)))
    assert [contender.devices for contender, _ in contenders(look)] == [{each.uuid for each in both.devices}]


def computing(**by_name: float | None) -> Seen:
    """A look at processes that compute so much."""
    uids = {"first": UID, "second": OTHER}
    processes = tuple(
        Process(pid=at, used_mib=900, pod_uid=uids[name], utilization=ratio)
        for at, (name, ratio) in enumerate(by_name.items())
    )
    look = seen(FIRST, SECOND, used=dict.fromkeys(uids.values(), 900))
    assert look.sample
    return replace(look, sample=Sample(devices=(replace(look.sample.devices[0], processes=processes), DeviceSample())))


@pytest.mark.parametrize(
    ("look", "judged", "expected"),
    [
        pytest.param(computing(first=0.0, second=0.9), {UID, OTHER}, {UID}, id="computed nothing"),
        pytest.param(computing(first=0.0, second=0.9), {OTHER}, set(), id="had no turn to compute in"),
        pytest.param(computing(first=None, second=0.9), {UID, OTHER}, set(), id="is not told apart"),
        pytest.param(computing(second=0.9), {UID, OTHER}, set(), id="has no process"),
    ],
)
def test_a_tenant_rests_that(look: Seen, judged: set[str], expected: set[str]) -> None:
    assert at_rest(look, judged=judged) == expected
    assert {UID, OTHER} - {contender.uid for contender, _ in contenders(look, resting=expected)} == expected


def test_the_weight_is_the_priority_and_at_least_one() -> None:
    low, high = with_fields(FIRST, priority=0), with_fields(SECOND, priority=30)
    assert [contender.weight for contender, _ in contenders(seen(low, high))] == [1, 30]


def test_while_nothing_can_be_read_the_tenants_go_on_taking_turns() -> None:
    blind = Seen(node=NODE, now=NOON, tenants=(FIRST, SECOND), problem="the driver hangs")
    assert len(list(contenders(blind))) == 2


class Probed(FreezerV1):
    """The probe's own group is a plain folder: it has no freezer's files before they are written."""

    def freeze(self, group: Path) -> None:
        (group / "freezer.state").write_text("FROZEN\n")

    def thaw(self, group: Path) -> None:
        if group.name == "dovetail-probe":
            (group / "freezer.state").unlink()
        else:
            super().thaw(group)


class Recording:
    """A freezer that notes what it was asked, and refuses what it is told to."""

    name = "recording"

    def __init__(self, freezer: Freezer) -> None:
        self.freezer = freezer
        self.said: list[tuple[str, str]] = []
        self.refuses: dict[str, Refusal] = {}

    def suspend(self, tenant: NodeTenant) -> Refusal | None:
        self.said.append(("suspend", tenant.name))
        return self.refuses.get("suspend") or self.freezer.suspend(tenant)

    def resume(self, tenant: NodeTenant) -> Refusal | None:
        self.said.append(("resume", tenant.name))
        return self.refuses.get("resume") or self.freezer.resume(tenant)


class World:
    """Two pods of one device, and turns that are being dealt."""

    def __init__(self, folder: Path) -> None:
        self.kernel = FakeKernel(folder / "cgroup", version=1)
        self.groups = [self.kernel.add(f"kubepods/pod{uid}") for uid in (UID, OTHER)]
        self.marks = Marks(folder / "marks", clock=time.monotonic)
        self.marks.prepare()
        self.marks.beat(WATCHDOG)
        self.suspender: Recording | None = None
        self.woken = asyncio.Event()
        self.feature = TurnsFeature(self.freezing, marks=self.marks, turn_seconds=0.02, around=self.around)
        self.task: asyncio.Task[None] | None = None

    def freezing(self) -> Freezing:
        return Probed(freezer_at(self.kernel.mount).root)

    def around(self, freezer: Freezer) -> Suspender:
        self.suspender = Recording(freezer)
        return self.suspender

    def look(self, *tenants: NodeTenant) -> bool:
        enforcement = self.feature.amend(GPUNodeStatus(), seen=seen(*tenants)).enforcement
        assert enforcement.turns is ("turns" not in enforcement.reasons)
        return enforcement.turns

    async def start(self, *tenants: NodeTenant) -> None:
        self.look(*tenants)
        self.task = asyncio.create_task(self.feature.run(self.woken.set))
        await asyncio.wait_for(self.woken.wait(), 60)
        self.woken.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 - a thread writes files
                await asyncio.sleep(0)

    async def end(self) -> None:
        if self.task:
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=10)
            assert self.task.done()

    @property
    def standing(self) -> list[bool]:
        return [self.kernel.stands(group) for group in self.groups]

    def value(self, name: str, **labels: str) -> float:
        for family in self.feature.metrics():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.end()


async def test_turns_are_claimed_once_a_cgroup_was_frozen_and_a_watchdog_is_there(world: World) -> None:
    assert not world.look(FIRST, SECOND)
    await world.start(FIRST, SECOND)
    assert world.look(FIRST, SECOND)


async def test_two_tenants_stand_still_in_turns_and_never_run_together(world: World) -> None:
    await world.start(FIRST, SECOND)
    assert world.suspender
    said = world.suspender.said
    await world.until(lambda: said.count(("resume", "first")) > 1 and said.count(("resume", "second")) > 1)
    assert said[0] == ("suspend", "second")
    # The one stops before the other goes on.
    assert all(said[at - 1][0] == "suspend" for at, each in enumerate(said) if each[0] == "resume")
    assert world.value("dovetail_turns_live") == 1


async def test_an_agent_that_ends_leaves_nobody_standing(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: any(world.standing))
    await world.end()
    assert (world.standing, world.marks.all(), world.marks.alive(AGENT)) == ([False, False], [], False)


async def test_who_leaves_and_who_stays_alone_both_go_on(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: any(world.standing))
    world.look(with_fields(FIRST, leaving=True), SECOND)
    await world.until(lambda: world.standing == [False, False])
    assert world.look(SECOND)


async def test_without_a_watchdog_nobody_stands_still_and_turns_are_not_claimed(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: any(world.standing))
    world.marks.leave(WATCHDOG)
    await asyncio.wait_for(world.woken.wait(), 60)
    await world.until(lambda: world.standing == [False, False])
    assert not world.look(FIRST, SECOND)


async def test_what_an_agent_before_left_frozen_goes_on_when_the_next_one_starts(world: World) -> None:
    Freezer(world.freezing(), marks=world.marks).suspend(FIRST)
    assert world.standing == [True, False]
    await world.start(FIRST)
    assert world.standing == [False, False]


async def test_a_tenant_that_does_not_freeze_runs_and_keeps_nobody_from_running(world: World) -> None:
    await world.start()
    assert world.suspender
    world.suspender.refuses["suspend"] = Refusal(reason="FreezeTimedOut", message="it did not")
    world.look(FIRST, SECOND)
    await world.until(lambda: len(world.suspender.said if world.suspender else []) > 2)
    assert world.standing == [False, False]
    assert world.value("dovetail_turns_refusals_total", reason="FreezeTimedOut") >= 1


async def test_a_tenant_that_does_not_wake_is_tried_again(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: any(world.standing))
    assert world.suspender
    world.suspender.refuses["resume"] = Refusal(reason="ThawFailed", message="it did not")
    world.look()
    await world.until(lambda: world.value("dovetail_turns_refusals_total", reason="ThawFailed") >= 1)
    del world.suspender.refuses["resume"]
    await world.until(lambda: world.standing == [False, False])


async def test_a_tenant_that_is_lost_is_not_tried_again(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: any(world.standing))
    assert world.suspender
    world.suspender.refuses["resume"] = Refusal(reason="RestoreFailed", message="out of memory", lost=True)
    world.look()
    await world.until(lambda: world.value("dovetail_turns_waiting") == 0)


async def test_a_machine_without_a_freezer_says_so_and_claims_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.kernel.mount / "freezer" / "cgroup.procs").unlink()
    await world.start(FIRST, SECOND)
    assert not world.look(FIRST, SECOND)
    await world.end()


async def test_a_tenant_that_computes_nothing_in_its_turn_goes_on_and_keeps_nobody_waiting(world: World) -> None:
    await world.start(FIRST, SECOND)
    await world.until(lambda: bool(world.suspender and ("resume", "second") in world.suspender.said))
    await world.until(lambda: bool(world.suspender and ("resume", "first") in world.suspender.said))
    world.feature.amend(
        GPUNodeStatus(), seen=replace(computing(first=0.0, second=0.9), now=NOON + timedelta(seconds=15))
    )
    await world.until(lambda: world.standing == [False, False])
    world.feature.amend(
        GPUNodeStatus(), seen=replace(computing(first=0.5, second=0.9), now=NOON + timedelta(seconds=30))
    )
    await world.until(lambda: any(world.standing))
