"""The memory guard on several devices, nodes and looks: what it posts, counts and ends."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace as with_fields
from structlog.testing import capture_logs

from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Process, Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.memory import Policy, overuses
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.processes.identity import KillResult
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.guards.test_memory import rules
from tests.agent.recorded import Recorded

CARDS = tuple(
    DeviceInfo(
        index=index, uuid=allocated(index).uuid, vendor="nvidia", model="V100", memory_mib=32768, reserved_mib=768
    )
    for index in (0, 1)
)


def tenant(name: str, *promised: int) -> NodeTenant:
    """A tenant with a promise on device 0, and one on device 1 if two are given."""
    devices = [allocated(index, share_milli=300, memory_mib=mib) for index, mib in enumerate(promised)]
    return with_fields(make_tenant(*devices, uid=f"uid-{name}"), mode="Fractional", namespace="ml", name=name)


def look(
    *tenants: NodeTenant,
    first: dict[str, int],
    second: dict[str, int] | None = None,
    after: float = 0.0,
    reported: GPUNodeStatus | None = None,
    node: str = "v100-0",
    pids: dict[str, tuple[int, ...]] | None = None,
) -> Seen:
    """A look at two devices: what each tenant uses of them in MiB, and the processes of tenants on the first one."""
    used = [{f"uid-{name}": mib for name, mib in each.items()} for each in (first, second or {})]
    processes = tuple(Process(pid=pid, pod_uid=f"uid-{name}") for name, own in (pids or {}).items() for pid in own)
    samples = [DeviceSample(used_mib=sum(each.values()), used_by_tenant_mib=each) for each in used]
    gpunode = None if reported is None else GPUNode(metadata=ObjectMeta(name=node), status=reported)
    return Seen(
        node=make_node(node),
        now=NOON + timedelta(seconds=after),
        gpunode=gpunode,
        tenants=tenants,
        inventory=Inventory(devices=CARDS),
        sample=Sample(devices=(replace(samples[0], processes=processes), samples[1])),
    )


class Guard:
    """The feature with its policy; `kills` has the result for each process, and an error instead if one is given."""

    def __init__(
        self, policy: Policy, *, error: OSError | None = None, kills: dict[int, KillResult] | None = None
    ) -> None:
        self.recorded = Recorded()
        self.tried: list[int] = []
        self.error = error
        self._kills = kills or {}
        self.feature = MemoryGuardFeature(self.recorded, rules=rules(policy), kill=self._kill)

    def _kill(self, process: Process) -> KillResult:
        if self.error is not None:
            raise self.error
        self.tried.append(process.pid)
        return self._kills.get(process.pid, "Killed")

    async def look(self, seen: Seen) -> GPUNodeStatus:
        status = self.feature.amend(GPUNodeStatus(), seen=seen)
        await self.feature.act(seen, status=status)
        return status

    @property
    def messages(self) -> list[str]:
        """What pods were told, without the figures."""
        return [f"{each.name}{each.message.partition(' MiB;')[2]}" for each in self.recorded.events]

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        samples = [sample for family in self.feature.metrics() for sample in family.samples if sample.name == name]
        return {tuple(sample.labels.values()): sample.value for sample in samples}


A, B = tenant("a", 8000), tenant("b", 8000)
BOTH = tenant("a", 1000, 2000)
THREAT = "; it is ended unless that is over in 60 s"
GREEDY = {"a": 30000, "b": 0}


def test_an_overuse_of_a_second_device_has_its_own_promise_and_its_own_start() -> None:
    before = GPUNodeStatus(overuses=overuses(look(BOTH, first={"a": 1500}), rules=rules("Warn")))
    seen = look(BOTH, first={"a": 1600}, second={"a": 2500}, after=30, reported=before)
    found = overuses(seen, rules=rules("Warn"))
    assert [(each.index, each.promised_mib, each.used_mib, each.since) for each in found] == [
        (0, 1000, 1600, "2026-11-21T12:00:00Z"),
        (1, 2000, 2500, "2026-11-21T12:00:30Z"),
    ]
    assert [each.device for each in found] == [card.uuid for card in CARDS]


def test_another_tenant_of_the_device_begins_its_own_grace() -> None:
    before = GPUNodeStatus(overuses=overuses(look(A, B, first={"a": 9000, "b": 0}), rules=rules("Evict")))
    seen = look(A, B, first={"a": 9000, "b": 8100}, after=60, reported=before)
    assert [(each.name, each.ends) for each in overuses(seen, rules=rules("Evict"))] == [("a", True), ("b", False)]


def test_overuses_have_the_order_of_uids_whatever_the_order_of_tenants() -> None:
    seen = look(B, A, first={"a": 9000, "b": 9000})
    assert [each.name for each in overuses(seen, rules=rules("Warn"))] == ["a", "b"]


def test_what_the_driver_keeps_for_itself_is_not_free_for_a_neighbour() -> None:
    # 32768 MiB less 768 reserved and 24000 used leave b's 8000.
    assert [each.ends for each in overuses(look(A, B, first={"a": 24000}), rules=rules("Evict"))] == [False]
    assert [each.ends for each in overuses(look(A, B, first={"a": 24001}), rules=rules("Evict"))] == [True]


def test_a_device_that_reports_no_use_takes_nothing_from_a_neighbour() -> None:
    seen = look(A, B, first={"a": 24001})
    assert seen.sample is not None
    first, second = seen.sample.devices
    silent = replace(seen, sample=Sample(devices=(replace(first, used_mib=None), second)))
    assert [each.ends for each in overuses(silent, rules=rules("Evict"))] == [False]


def test_a_shortage_on_one_device_ends_no_tenant_of_another() -> None:
    other = with_fields(tenant("c"), devices=[allocated(1, share_milli=300, memory_mib=1000)])
    seen = look(A, B, other, first=GREEDY, second={"c": 1500})
    assert [(each.name, each.ends) for each in overuses(seen, rules=rules("Evict"))] == [("a", True), ("c", False)]


async def test_a_pod_is_told_of_each_device_once() -> None:
    guard = Guard("Warn")
    first = await guard.look(look(BOTH, first={"a": 1500}))
    second = await guard.look(look(BOTH, first={"a": 1600}, second={"a": 2500}, after=30, reported=first))
    await guard.look(look(BOTH, first={"a": 1700}, second={"a": 2600}, after=60, reported=second))
    assert [each.message.split(" of v100-0")[0].split("GPU ")[1][0] for each in guard.recorded.events] == ["0", "1"]


@pytest.mark.parametrize(("policy", "threat"), [("Warn", ""), ("Evict", THREAT), ("Kill", THREAT)])
async def test_the_first_message_says_how_long_the_pod_has(policy: str, threat: str) -> None:
    guard = Guard(policy)
    await guard.look(look(A, first={"a": 9000}))
    message = guard.recorded.events[0].message
    assert len(guard.recorded.events) == 1
    assert message == (
        f"It uses 9,000 MiB of GPU 0 ({CARDS[0].uuid}) of v100-0, but was promised 8,000 MiB{threat}"
    )  # fmt: skip


async def test_a_pod_that_the_report_names_and_that_has_gone_hides_no_other() -> None:
    guard = Guard("Warn")
    status = guard.feature.amend(GPUNodeStatus(), seen=look(A, B, first={"a": 9000, "b": 9000}))
    await guard.feature.act(look(B, first={"a": 9000, "b": 9000}), status=status)
    assert [each.name for each in guard.recorded.events] == ["b"]


async def test_an_eviction_is_requested_counted_and_told_once() -> None:
    guard = Guard("Evict")
    first = await guard.look(look(A, B, first=GREEDY))
    second = await guard.look(look(A, B, first=GREEDY, after=10, reported=first))
    assert [each.evict for each in (*first.overuses, *second.overuses)] == [True, True]
    assert guard.messages == ["a it is ended unless that is over in 60 s", "a it is to be evicted"]
    assert guard.counted("dovetail_memory_guard_ended_total") == {("evict",): 1, ("kill",): 0}
    assert guard.tried == []


async def test_a_pod_that_was_only_above_its_promise_is_evicted_when_its_grace_ends() -> None:
    guard = Guard("Evict")
    first = await guard.look(look(A, first={"a": 9000}))
    await guard.look(look(A, first={"a": 9000}, after=60, reported=first))
    assert guard.messages == ["a it is ended unless that is over in 60 s", "a it is to be evicted"]
    assert guard.counted("dovetail_memory_guard_ended_total") == {("evict",): 1, ("kill",): 0}


async def test_all_processes_of_the_pod_on_that_device_are_killed_and_counted_as_one_pod() -> None:
    guard = Guard("Kill", kills={8: "Gone"})
    await guard.look(look(A, B, first=GREEDY, pids={"b": (6,), "a": (7, 8, 9)}))
    assert guard.tried == [7, 8, 9]
    assert guard.messages[-1] == "a killed: process 7, 9"
    assert guard.counted("dovetail_memory_guard_ended_total") == {("evict",): 0, ("kill",): 1}


async def test_a_process_of_the_pod_on_another_device_lives_on() -> None:
    guard = Guard("Kill")
    other = with_fields(tenant("a"), devices=[allocated(1, share_milli=300, memory_mib=1000)])
    status = await guard.look(look(other, first={}, second={"a": 32000}, pids={"a": (7,)}))
    assert [each.evict for each in status.overuses] == [False]
    assert guard.tried == []
    again = await guard.look(look(other, first={}, second={"a": 32000}, after=60, reported=status, pids={"a": (7,)}))
    assert (guard.tried, [each.ends for each in again.overuses]) == ([], [True])


@pytest.mark.parametrize("result", ["Gone", "Replaced"])
async def test_where_nothing_was_killed_nothing_is_counted_or_told(result: KillResult) -> None:
    guard = Guard("Kill", kills={7: result})
    with capture_logs() as logs:
        await guard.look(look(A, B, first=GREEDY, pids={"a": (7,)}))
    assert guard.counted("dovetail_memory_guard_ended_total") == {("evict",): 0, ("kill",): 0}
    assert len(guard.messages) == 1
    skipped = [each["pids"] for each in logs if each["event"].startswith("not killed")]
    assert skipped == ([[7]] if result == "Replaced" else [])


async def test_what_cannot_be_killed_is_in_the_log_with_its_pod_and_processes() -> None:
    guard = Guard("Kill", error=PermissionError(1, "Operation not permitted"))
    with capture_logs() as logs:
        await guard.look(look(A, B, first=GREEDY, pids={"a": (7, 8)}))
    (found,) = [each for each in logs if each["event"] == "cannot kill"]
    assert (found["pod"], found["pids"]) == ("ml/a", [7, 8])
    assert [each["pod"] for each in logs if each["event"] == "memory over promise"] == ["ml/a"]


async def test_a_pod_that_went_below_its_promise_is_killed_again_the_next_time() -> None:
    guard = Guard("Kill", error=PermissionError(1, "Operation not permitted"))
    greedy = {"first": GREEDY, "pids": {"a": (7,)}}
    first = await guard.look(look(A, B, **greedy))  # type: ignore[arg-type]  # as the builder takes them
    second = await guard.look(look(A, B, after=10, reported=first, **greedy))  # type: ignore[arg-type]
    assert [each.evict for each in second.overuses] == [True]
    third = await guard.look(look(A, B, first={"a": 100, "b": 0}, after=20, reported=second))
    guard.error = None
    fourth = await guard.look(look(A, B, after=30, reported=third, **greedy))  # type: ignore[arg-type]
    assert ([each.evict for each in fourth.overuses], guard.tried) == ([False], [7])


async def test_a_look_at_another_node_forgets_no_pod_that_could_not_be_killed() -> None:
    guard = Guard("Kill", error=PermissionError(1, "Operation not permitted"))
    first = await guard.look(look(A, B, first=GREEDY, pids={"a": (7,)}))
    await guard.look(look(first={}, node="v100-1"))
    second = await guard.look(look(A, B, first=GREEDY, pids={"a": (7,)}, after=10, reported=first))
    assert [each.evict for each in second.overuses] == [True]


async def test_what_is_above_promises_is_summed_for_each_device_of_each_node() -> None:
    guard = Guard("Warn")
    other = with_fields(tenant("c"), devices=[allocated(1, share_milli=300, memory_mib=1000)])
    await guard.look(look(A, B, other, first={"a": 8003, "b": 8004}, second={"c": 1001}))
    await guard.look(look(A, first={"a": 8010}, node="v100-1"))
    assert guard.counted("dovetail_device_over_promise_bytes") == {
        ("v100-0", "0", CARDS[0].uuid): 7 << 20,
        ("v100-0", "1", CARDS[1].uuid): 1 << 20,
        ("v100-1", "0", CARDS[0].uuid): 10 << 20,
    }


async def test_while_the_devices_cannot_be_read_no_process_is_killed() -> None:
    guard = Guard("Kill")
    (known,) = overuses(look(A, first={"a": 9000}), rules=rules("Kill"))
    reported = GPUNodeStatus(overuses=[msgspec.structs.replace(known, ends=True)])
    await guard.look(replace(look(A, first={"a": 9000}, reported=reported, pids={"a": (7,)}), sample=None))
    assert guard.tried == []


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


async def test_the_agent_itself_signals_no_process_that_it_has_not_identified(child: "subprocess.Popen[bytes]") -> None:
    guard = MemoryGuardFeature(Recorded(), rules=rules("Kill"))
    seen = look(A, B, first=GREEDY, pids={"a": (child.pid,)})
    await guard.act(seen, status=guard.amend(GPUNodeStatus(), seen=seen))
    assert child.poll() is None


def test_memory_on_a_device_that_a_pod_was_not_given_is_a_stranger_s_and_no_overuse() -> None:
    assert overuses(look(A, B, first={}, second={"a": 9000}), rules=rules("Kill")) == []
