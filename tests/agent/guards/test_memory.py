"""Tenants above their promise: who is told, who is ended and when, and by whose hand."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNode, GPUNodeStatus, Overuse
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail_agent.devices.model import DeviceSample, Process, Sample
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.memory import GuardRules, Policy, overuses, sentence
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.processes.identity import KillResult, kill_same, started
from dovetail_agent.report.publishing import Pace, worth_publishing
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.recorded import Recorded

NODE = make_node(devices={"model": "V100", "count": 2, "memoryMiB": 32768})
GPU_0 = device_uuid("v100-0", index=0)
GRACE = timedelta(seconds=60)


def tenant(name: str, *, promised: int, mode: Any = "Fractional") -> NodeTenant:
    made = make_tenant(allocated(0, share_milli=300, memory_mib=promised), uid=f"uid-{name}")
    return with_fields(made, mode=mode, namespace="ml", name=name)


def seen(
    *tenants: NodeTenant,
    used: dict[str, int] | None,
    after: float = 0.0,
    before: Seen | None = None,
    pids: bool = False,
) -> Seen:
    """A look at the first device; `used` is by name, `before` the look that was reported last."""
    inventory = SimulatedProvider().inventory(NODE)
    by_uid = None if used is None else {f"uid-{name}": mib for name, mib in used.items()}
    processes = tuple(Process(pid=100 + at, pod_uid=uid) for at, uid in enumerate(by_uid or {})) if pids else None
    first = DeviceSample(used_mib=sum((used or {}).values()), used_by_tenant_mib=by_uid, processes=processes)
    reported = None
    if before is not None:
        status = GPUNodeStatus(overuses=overuses(before, rules=rules("Evict")))
        reported = GPUNode(metadata=ObjectMeta(name="v100-0"), status=status)
    return Seen(
        node=NODE,
        now=NOON + timedelta(seconds=after),
        gpunode=reported,
        tenants=tenants,
        inventory=inventory,
        sample=Sample(devices=(first, DeviceSample())),
    )


def rules(policy: Policy) -> GuardRules:
    return GuardRules(policy=policy, grace=GRACE)


def ended(look: Seen, *, policy: Policy = "Evict") -> list[str]:
    return [each.name for each in overuses(look, rules=rules(policy)) if each.ends]


A, B = tenant("a", promised=8192), tenant("b", promised=8192)


def test_who_keeps_to_its_promise_is_not_named() -> None:
    assert overuses(seen(A, B, used={"a": 8192, "b": 100}), rules=rules("Kill")) == []


def test_who_is_above_its_promise_is_named_with_numbers() -> None:
    (found,) = overuses(seen(A, B, used={"a": 9000, "b": 100}), rules=rules("Warn"))
    assert (found.name, found.promised_mib, found.used_mib, found.since, found.ends) == (
        "a", 8192, 9000, "2026-11-21T12:00:00Z", False,
    )  # fmt: skip
    assert sentence(found, node="v100-0") == (
        f"uses 9,000 MiB of GPU 0 ({GPU_0}) of v100-0, but was promised 8,192 MiB"
    )


@pytest.mark.parametrize("look", [
    pytest.param(seen(tenant("a", promised=8192, mode="Exclusive"), used={"a": 9000}), id="has the device alone"),
    pytest.param(seen(A, used=None), id="cannot be told apart"),
    pytest.param(replace(seen(A, used={"a": 9000}), sample=None), id="could not be read"),
])  # fmt: skip
def test_nobody_is_named_who(look: Seen) -> None:
    assert overuses(look, rules=rules("Kill")) == []


def test_while_nothing_can_be_read_what_was_reported_stays() -> None:
    first = seen(A, used={"a": 9000})
    blind = replace(seen(A, used={"a": 9000}, before=first, after=30), sample=None)
    assert [each.name for each in overuses(blind, rules=rules("Evict"))] == ["a"]


@pytest.mark.parametrize(("after", "expected"), [(0, []), (59, []), (60, ["a"])])
def test_there_is_a_grace_while_neighbours_have_their_memory(after: float, expected: list[str]) -> None:
    first = seen(A, B, used={"a": 9000, "b": 100})
    assert ended(seen(A, B, used={"a": 9500, "b": 100}, before=first, after=after)) == expected


def test_the_grace_begins_anew_for_who_was_below_in_between() -> None:
    below = seen(A, used={"a": 100})
    assert ended(seen(A, used={"a": 9000}, before=below, after=600)) == []


def test_who_takes_what_a_neighbour_was_promised_is_ended_at_once() -> None:
    # 8192 are promised to b, and 8000 are left.
    assert ended(seen(A, B, used={"a": 24768, "b": 0})) == ["a"]


def test_those_that_leave_by_turns_need_room_for_one_of_them() -> None:
    by_turns = [with_fields(tenant(name, promised=20480, mode="TimeShared"), movable=True) for name in "ab"]
    # 9 GiB are left beside a; b is at the host, and has the card to itself in its turn.
    assert ended(seen(*by_turns, used={"a": 23000, "b": 0})) == []
    stays = tenant("c", promised=10240, mode="TimeShared")
    assert ended(seen(*by_turns, stays, used={"a": 23000, "b": 0, "c": 0})) == ["a"]


def test_the_worst_goes_first_when_neighbours_lack_memory() -> None:
    c = tenant("c", promised=8192)
    assert ended(seen(A, B, c, used={"a": 10000, "b": 20000, "c": 0})) == ["b"]


def taken(free: int, *tenants: NodeTenant, **used: int) -> list[str]:
    """Who is ended at once where so much of the device is free beside what these tenants use."""
    look = seen(*tenants, used=used)
    assert look.sample is not None
    assert look.inventory is not None
    first, *others = look.sample.devices
    info = look.inventory.devices[0]
    sample = Sample(devices=(replace(first, used_mib=info.memory_mib - info.reserved_mib - free), *others))
    return ended(replace(look, sample=sample))


@pytest.mark.parametrize(("free", "expected"), [(8092, []), (8091, ["a"])])
def test_a_neighbour_lacks_memory_when_less_is_free_than_it_may_still_use(free: int, expected: list[str]) -> None:
    assert taken(free, A, B, a=9000, b=100) == expected


@pytest.mark.parametrize(("free", "expected"), [(0, []), (-5, [])])
def test_who_has_all_that_it_was_promised_lacks_nothing(free: int, expected: list[str]) -> None:
    assert taken(free, A, B, a=9000, b=8192) == expected


@pytest.mark.parametrize(("free", "expected"), [(2000, []), (1999, ["c"])])
def test_of_those_that_leave_by_turns_the_largest_counts_with_what_they_use(free: int, expected: list[str]) -> None:
    small = with_fields(tenant("a", promised=4000, mode="TimeShared"), movable=True)
    large = with_fields(tenant("b", promised=6000, mode="TimeShared"), movable=True)
    assert taken(free, small, large, tenant("c", promised=1000), a=3000, b=1000, c=1500) == expected


def test_where_those_that_leave_use_more_than_the_largest_others_are_still_counted() -> None:
    movers = [with_fields(tenant(name, promised=4000, mode="TimeShared"), movable=True) for name in "ab"]
    assert taken(1000, *movers, tenant("c", promised=1000), a=4000, b=4001, c=0) == []
    assert taken(999, *movers, tenant("c", promised=1000), a=4000, b=4001, c=0) == ["b"]


def test_a_device_that_cannot_be_read_keeps_what_was_reported_and_one_that_is_not_known_too() -> None:
    first = seen(A, used={"a": 9000})
    look = replace(seen(A, used={"a": 100}, before=first), inventory=None)
    assert [each.name for each in overuses(look, rules=rules("Evict"))] == ["a"]
    assert overuses(replace(seen(A, used={"a": 9000}), inventory=None), rules=rules("Evict")) == []


def test_warn_ends_nobody_ever() -> None:
    first = seen(A, B, used={"a": 30000, "b": 0})
    assert ended(seen(A, B, used={"a": 30000, "b": 0}, before=first, after=9999), policy="Warn") == []


class Guard:
    """The feature, with what it told and whom it killed."""

    def __init__(self, policy: Policy, *, error: Exception | None = None, result: KillResult = "Killed") -> None:
        self.recorded = Recorded()
        self.killed: list[int] = []
        self._error = error
        self._result = result
        self.feature = MemoryGuardFeature(self.recorded, rules=rules(policy), kill=self._kill)

    def _kill(self, process: Process) -> KillResult:
        if self._error:
            raise self._error
        self.killed.append(process.pid)
        return self._result

    async def look(self, look: Seen) -> list[Overuse]:
        status = self.feature.amend(GPUNodeStatus(), seen=look)
        await self.feature.act(look, status=status)
        return status.overuses

    def counted(self, name: str) -> dict[str, float]:
        samples = [sample for family in self.feature.metrics() for sample in family.samples if sample.name == name]
        return {sample.labels.get("how", sample.labels.get("index", "")): sample.value for sample in samples}


GREEDY = {"a": 30000, "b": 0}


async def test_its_pod_is_told_once_and_a_metric_says_how_much() -> None:
    guard, first = Guard("Warn"), seen(A, B, used=GREEDY)
    await guard.look(first)
    await guard.look(seen(A, B, used=GREEDY, before=first, after=30))
    (event,) = guard.recorded.events
    assert (event.kind, event.name, event.reason) == ("Pod", "a", "MemoryOverPromise")
    assert event.message.startswith("It uses 30,000 MiB of GPU 0")
    assert guard.counted("dovetail_device_over_promise_bytes") == {"0": (30000 - 8192) * 2**20}


async def test_evict_asks_the_operator_and_kills_nobody() -> None:
    guard = Guard("Evict")
    (found,) = await guard.look(seen(A, B, used=GREEDY, pids=True))
    assert (found.ends, found.evict, guard.killed) == (True, True, [])
    assert guard.recorded.events[-1].message.endswith("; it is to be evicted")
    assert guard.counted("dovetail_memory_guard_ended_total") == {"evict": 1, "kill": 0}


async def test_kill_ends_the_processes_of_that_pod_and_no_others() -> None:
    guard = Guard("Kill")
    (found,) = await guard.look(seen(A, B, used=GREEDY, pids=True))
    assert (found.evict, guard.killed) == (False, [100])
    assert guard.recorded.events[-1].message.endswith("; killed: process 100")


@pytest.mark.parametrize(("pids", "error"), [
    pytest.param(False, None, id="no process is seen"),
    pytest.param(True, PermissionError(1, "Operation not permitted"), id="the capability is missing"),
    pytest.param(True, OSError(38, "Function not implemented"), id="the kernel has no pidfd"),
])  # fmt: skip
async def test_where_nobody_can_be_killed_the_operator_is_asked(pids: bool, error: Exception | None) -> None:
    guard = Guard("Kill", error=error)
    first = seen(A, B, used=GREEDY, pids=pids)
    assert [each.evict for each in await guard.look(first)] == [False]
    assert [each.evict for each in await guard.look(seen(A, B, used=GREEDY, pids=pids, before=first))] == [True]


@pytest.mark.parametrize("result", ["Gone", "Replaced"])
async def test_a_process_that_has_ended_meanwhile_is_no_failure(result: KillResult) -> None:
    guard = Guard("Kill", result=result)
    first = seen(A, B, used=GREEDY, pids=True)
    await guard.look(first)
    assert [each.evict for each in await guard.look(seen(A, B, used=GREEDY, pids=True, before=first))] == [False]


def test_a_report_is_news_when_somebody_is_above_and_not_by_how_much() -> None:
    pace = Pace(threshold=0.05, heartbeat=timedelta(seconds=300))
    quiet = GPUNodeStatus(observed_at="2026-11-21T12:00:00Z")
    (found,) = overuses(seen(A, used={"a": 9000}), rules=rules("Warn"))
    above = msgspec.structs.replace(quiet, overuses=[found])
    more = msgspec.structs.replace(quiet, overuses=[msgspec.structs.replace(found, used_mib=9100)])
    assert worth_publishing(above, published=quiet, pace=pace) == "change"
    assert worth_publishing(more, published=above, pace=pace) is None


class Child:
    """A real process that a folder like `/proc` places in a pod."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.pid = self.process.pid
        (folder / str(self.pid)).mkdir()
        (folder / str(self.pid) / "stat").symlink_to(f"/proc/{self.pid}/stat")
        began = started(self.pid)
        assert began is not None
        self.began = began

    def in_pod(self, uid: str) -> None:
        cgroup = f"0::/kubepods/burstable/pod{uid}/{self.pid:064x}\n"
        (self.proc / str(self.pid) / "cgroup").write_text(cgroup, encoding="ascii")

    def kill(self, *, began: int | None) -> KillResult:
        return kill_same(self.pid, began=began, pod_uid=GREEDY_POD, proc=self.proc)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None


GREEDY_POD, NEIGHBOUR = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b", "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    child = Child(tmp_path)
    yield child
    child.process.kill()
    child.process.communicate()


def test_the_process_that_was_seen_is_killed(child: Child) -> None:
    child.in_pod(GREEDY_POD)
    assert child.kill(began=child.began) == "Killed"
    assert child.process.wait(timeout=10) == -9


@pytest.mark.parametrize(("pod", "later"), [
    pytest.param(NEIGHBOUR, 0, id="its number is another pod's"),
    pytest.param(GREEDY_POD, 1, id="its number is that of a later process of the same pod"),
    pytest.param(NEIGHBOUR, 1, id="its number is that of a later process of another pod"),
])  # fmt: skip
def test_a_process_with_a_reused_number_lives_on(child: Child, pod: str, later: int) -> None:
    child.in_pod(pod)
    assert child.kill(began=child.began - later) == "Replaced"
    assert child.lives


def test_a_process_that_was_never_identified_lives_on(child: Child) -> None:
    child.in_pod(GREEDY_POD)
    assert child.kill(began=None) == "Replaced"
    assert child.lives


def test_a_process_whose_cgroup_cannot_be_read_lives_on(child: Child) -> None:
    assert child.kill(began=child.began) == "Replaced"
    assert child.lives


def test_a_number_that_no_process_has_is_gone(child: Child) -> None:
    child.in_pod(GREEDY_POD)
    child.process.communicate()
    assert child.kill(began=child.began) == "Gone"


def test_the_number_that_changes_hands_during_the_check_is_not_signalled(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seen process ends after its pidfd was opened, and /proc shows it as it was: the handle is of no other."""
    child.in_pod(GREEDY_POD)
    (child.proc / str(child.pid) / "stat").unlink()
    (child.proc / str(child.pid) / "stat").write_bytes(Path(f"/proc/{child.pid}/stat").read_bytes())
    opened = os.pidfd_open(child.pid)
    child.process.communicate()
    monkeypatch.setattr(os, "pidfd_open", lambda _: opened)
    assert child.kill(began=child.began) == "Gone"
