"""Strangers on several devices and nodes, from look to look: who is reported, posted, counted and forgotten."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta, find_condition
from dovetail.config.keys.devices import StrangerPolicy
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Process, Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.strangers_feature import GRACE, MOST, StrangersFeature
from dovetail_agent.report.node_status import readable
from tests.agent.builders import NOON, allocated, make_node
from tests.agent.guards.test_strangers import OTHER, OWNER
from tests.agent.recorded import Recorded
from tests.virtual_time import run

CARDS = tuple(
    DeviceInfo(index=index, uuid=allocated(index).uuid, vendor="nvidia", model="V100", memory_mib=32768)
    for index in (0, 1)
)


def process(pid: int, uid: str = "") -> Process:
    return Process(pid=pid, used_mib=100, pod_uid=uid)


def look(
    first: Sequence[Process] | None = (),
    second: Sequence[Process] | None = (),
    *,
    after: timedelta = timedelta(0),
    reported: GPUNodeStatus | None = None,
    answers: int | None = None,
    node: str = "v100-0",
) -> Seen:
    """A look at two devices with these processes; None where they cannot be listed."""
    samples = tuple(
        DeviceSample(
            used_mib=100,
            used_by_tenant_mib=None if each is None else {one.pod_uid: 100 for one in each if one.pod_uid},
            processes=None if each is None else tuple(each),
        )
        for each in (first, second)
    )
    return Seen(
        node=make_node(node),
        now=NOON + after,
        gpunode=None if reported is None else GPUNode(metadata=ObjectMeta(name=node), status=reported),
        tenants=(OWNER, OTHER),
        inventory=Inventory(devices=CARDS),
        sample=Sample(devices=samples),
        answers=answers,
    )


class Watch:
    """The feature, with what it told; a look's answer is the report."""

    def __init__(self, proc: Path, *, policy: StrangerPolicy = "Taint") -> None:
        self.recorded = Recorded()
        self.feature = StrangersFeature(self.recorded, policy=policy, proc=proc)

    def look(self, seen: Seen) -> GPUNodeStatus:
        assert seen.inventory is not None
        assert seen.sample is not None
        plain = readable(
            seen.inventory,
            sample=seen.sample,
            provider="nvml",
            tenants=seen.tenants,
            previous=seen.previous,
            now=seen.now,
        )
        return self.feature.amend(plain, seen=seen)

    def counted(self) -> Mapping[tuple[str, ...], float]:
        samples = [sample for family in self.feature.metrics() for sample in family.samples]
        return {
            (sample.name.removeprefix("dovetail_device_"), *sample.labels.values()): sample.value for sample in samples
        }


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def pids(status: GPUNodeStatus) -> list[list[int]]:
    return [[each.pid for each in device.strangers] for device in status.devices]


def taints(status: GPUNodeStatus) -> list[str]:
    return [device.taint for device in status.devices]


def test_a_stranger_taints_its_own_device_and_no_other(watch: Watch) -> None:
    watch.look(look([process(7)], [process(8, "other")]))
    found = watch.look(look([process(7)], [process(8, "other")], after=GRACE))
    assert (pids(found), taints(found)) == ([[7], []], ["Strangers", ""])


def test_a_process_that_moves_to_another_device_is_first_seen_there(watch: Watch) -> None:
    watch.look(look([process(7)]))
    assert pids(watch.look(look([], [process(7)], after=GRACE))) == [[], []]
    assert pids(watch.look(look([], [process(7)], after=2 * GRACE))) == [[], [7]]


def test_another_process_or_pod_begins_its_own_grace(watch: Watch) -> None:
    watch.look(look([process(7), process(9, "gone")]))
    found = watch.look(look([process(7), process(8), process(9, "later")], after=GRACE))
    assert pids(found) == [[7], []]


def test_a_process_that_was_away_for_a_look_begins_its_grace_again(watch: Watch) -> None:
    watch.look(look([process(7)]))
    watch.look(look(after=GRACE / 2))
    assert pids(watch.look(look([process(7)], after=GRACE))) == [[], []]


def test_of_a_node_that_is_gone_nothing_is_kept(watch: Watch) -> None:
    watch.look(look([process(7)], node="v100-1"))
    watch.look(look([process(7)]))
    watch.feature.forget("v100-0")
    assert {key[0] for key in watch.feature._first} == {"v100-1"}
    assert {labels[1] for labels in watch.counted()} == {"v100-1"}
    assert pids(watch.look(look([process(7)], after=GRACE))) == [[], []], "it is another node of that name"


def test_a_look_at_another_node_forgets_no_first_sight_and_brings_none(watch: Watch) -> None:
    watch.look(look([process(7)]))
    watch.look(look([process(8)], node="v100-1", after=GRACE / 2))
    assert pids(watch.look(look([process(7), process(8)], after=GRACE))) == [[7], []]


@pytest.mark.parametrize(("after", "found"), [(GRACE - timedelta(seconds=1), []), (GRACE, [7])])
def test_the_grace_is_over_to_the_second(watch: Watch, after: timedelta, found: list[int]) -> None:
    watch.look(look([process(7)]))
    assert pids(watch.look(look([process(7)], after=after)))[0] == found


def test_a_report_shows_the_lowest_numbers_of_many_strangers(watch: Watch) -> None:
    many = [process(pid) for pid in range(100, 100 - MOST - 2, -1)]
    watch.look(look(many))
    (shown, _) = pids(watch.look(look(many, after=GRACE)))
    assert shown == sorted(each.pid for each in many)[:MOST]
    assert len(shown) == 16


def test_a_device_whose_processes_cannot_be_listed_hides_those_of_no_other(watch: Watch) -> None:
    watch.look(look(None, [process(7)]))
    found = watch.look(look(None, [process(7)], after=GRACE))
    assert pids(found) == [[], [7]]
    seen = find_condition(found.conditions, type="ProcessesSeen")
    assert seen is not None
    assert (seen.status, seen.reason) == ("True", "Processes")


def test_where_no_device_lists_processes_the_condition_says_so_and_keeps_its_time(watch: Watch) -> None:
    first = watch.look(look(None, None))
    again = watch.look(look(None, None, after=GRACE, reported=first))
    seen = find_condition(again.conditions, type="ProcessesSeen")
    assert seen is not None
    assert (seen.status, seen.reason) == ("False", "NoProcesses")
    assert seen.last_transition_time == "2026-11-21T12:00:00Z"


@pytest.mark.parametrize("missing", ["inventory", "sample"])
def test_a_node_that_could_not_be_read_keeps_its_status_as_it_is(watch: Watch, missing: str) -> None:
    status = watch.look(look())
    blind = replace(look([process(7)]), **{missing: None})  # type: ignore[arg-type]  # one of two fields
    assert watch.feature.amend(status, seen=blind) is status


def test_a_node_without_devices_says_nothing_of_processes(watch: Watch) -> None:
    empty = replace(look(), inventory=Inventory(devices=()), sample=Sample(devices=()))
    assert find_condition(watch.look(empty).conditions, type="ProcessesSeen") is None


def test_the_command_of_a_process_is_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text("python\n")
    watch = Watch(tmp_path)
    watch.look(look([process(7), process(8)]))
    found = watch.look(look([process(7), process(8)], after=GRACE)).devices[0].strangers
    assert [(each.pid, each.command) for each in found] == [(7, "python"), (8, "")]


def test_strangers_and_taints_are_counted_for_each_device_of_each_node(watch: Watch) -> None:
    for node in ("v100-0", "v100-1"):
        for after in (timedelta(0), GRACE):
            watch.look(look([process(7), process(8)] if node == "v100-0" else [], [process(9)], node=node, after=after))
    first, second = (card.uuid for card in CARDS)
    assert watch.counted() == {
        ("strangers", "v100-0", "0", first, "V100"): 2,
        ("strangers", "v100-0", "1", second, "V100"): 1,
        ("strangers", "v100-1", "0", first, "V100"): 0,
        ("strangers", "v100-1", "1", second, "V100"): 1,
        ("tainted", "v100-0", "0", first, "V100"): 1,
        ("tainted", "v100-0", "1", second, "V100"): 1,
        ("tainted", "v100-1", "0", first, "V100"): 0,
        ("tainted", "v100-1", "1", second, "V100"): 1,
    }


async def test_only_news_is_posted_whatever_the_order_of_strangers_and_devices(watch: Watch) -> None:
    watch.look(look([process(7)]))
    known = watch.look(look([process(7)], after=GRACE))
    both = [process(7), process(8)]
    watch.look(look(both, [process(7)], after=2 * GRACE, reported=known))
    seen = look(both, [process(7)], after=3 * GRACE, reported=known)
    await watch.feature.act(seen, status=watch.look(seen))
    posted = [each.message.split(";")[0] for each in watch.recorded.events]
    assert posted == [
        f"process 8 of no pod uses GPU 0 ({CARDS[0].uuid}) of v100-0",
        f"process 7 of no pod uses GPU 1 ({CARDS[1].uuid}) of v100-0",
    ]
    assert watch.recorded.about("Pod") == []


async def test_where_strangers_are_only_reported_the_event_promises_no_taint(tmp_path: Path) -> None:
    watch = Watch(tmp_path, policy="Report")
    watch.look(look([process(7)]))
    seen = look([process(7)], after=GRACE)
    await watch.feature.act(seen, status=watch.look(seen))
    assert [each.message for each in watch.recorded.events] == [
        f"process 7 of no pod uses GPU 0 ({CARDS[0].uuid}) of v100-0"
    ]


def test_a_process_that_the_operator_has_not_answered_for_keeps_the_question_open(watch: Watch) -> None:
    first = watch.look(look([process(7)], answers=3))
    second = watch.look(look([process(7)], after=2 * GRACE, reported=first, answers=3))
    assert (first.tenants_asked, second.tenants_asked, pids(second)[0]) == (4, 4, [])
    third = watch.look(look([process(7)], after=3 * GRACE, reported=second, answers=4))
    assert (third.tenants_asked, pids(third)[0]) == (4, [7])


def test_a_question_is_above_every_earlier_question_of_any_node(watch: Watch) -> None:
    assert watch.look(look([process(7)], answers=8, node="v100-1")).tenants_asked == 9
    assert watch.look(look([process(7)], answers=2)).tenants_asked == 10


def test_a_new_process_is_looked_at_again_once_its_grace_is_over(watch: Watch) -> None:
    async def scenario() -> list[float]:
        loop, woken = asyncio.get_running_loop(), list[float]()
        start = loop.time()
        task = asyncio.create_task(watch.feature.run(lambda: woken.append(loop.time() - start)))
        watch.look(look([process(7)]))
        await asyncio.sleep(100)
        watch.look(look([process(7)], after=GRACE))
        await asyncio.sleep(100)
        watch.look(look([process(7), process(8)], after=2 * GRACE))
        await asyncio.sleep(100)
        task.cancel()
        return woken

    assert run(scenario()) == [GRACE.total_seconds(), 200 + GRACE.total_seconds()]
