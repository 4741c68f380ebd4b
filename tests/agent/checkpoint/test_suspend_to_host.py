"""Tenants go to the host and come back, whatever the driver refuses: on our stand-in for CUDA's library."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.gpunodetenants import NodeTenant
from dovetail_agent.checkpoint.calls import LibraryCalls, ProcessState
from dovetail_agent.checkpoint.suspend_to_host import Goal, Step, next_step
from dovetail_agent.devices.cuda import ILLEGAL_STATE, NOT_READY, CudaError, Driver, LibraryMissing
from dovetail_agent.turns.suspender import Refusal
from tests.agent.cuda_stub import CudaStub
from tests.agent.suspension import Rig

RUNNING, LOCKED, CHECKPOINTED, FAILED = ProcessState
LARGE = 60_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(folder=tmp_path / "marks")


def two(rig: Rig) -> tuple[NodeTenant, NodeTenant]:
    """Two tenants that do not fit together: the first has gone to the host before the second began."""
    rig.mib["2"] = LARGE
    first = rig.tenant(1, mib=LARGE)
    assert rig.suspender.suspend(first) is None
    return first, rig.tenant(2, mib=LARGE)


def reason(refusal: Refusal | None) -> str:
    assert refusal is not None
    return refusal.reason


EVERYTHING = list(product(("Out", "Back"), ProcessState, (True, False), (True, False)))


@pytest.mark.parametrize(("goal", "state", "frozen", "room"), EVERYTHING)
def test_no_step_is_a_call_to_a_frozen_process_nor_a_restore_without_room(
    goal: Goal, state: ProcessState, frozen: bool, room: bool
) -> None:
    step = next_step(goal, state=state, frozen=frozen, room=room)
    assert not (frozen and step in {Step.LOCK, Step.CHECKPOINT, Step.RESTORE, Step.UNLOCK})
    assert room or step is not Step.RESTORE
    assert (step is Step.LOST) == (state is FAILED)


@pytest.mark.parametrize(("goal", "ends"), [("Out", (CHECKPOINTED, True)), ("Back", (RUNNING, False))])
def test_from_wherever_the_steps_lead_to_the_goal(goal: Goal, ends: tuple[ProcessState, bool]) -> None:
    after = {Step.LOCK: LOCKED, Step.CHECKPOINT: CHECKPOINTED, Step.RESTORE: LOCKED, Step.UNLOCK: RUNNING}
    for begin, frozen in product((RUNNING, LOCKED, CHECKPOINTED), (True, False)):
        state, still = begin, frozen
        for _ in range(5):
            step = next_step(goal, state=state, frozen=still, room=True)
            still = {Step.FREEZE: True, Step.THAW: False}.get(step, still)
            state = after.get(step, state)
        assert (state, still, step) == (*ends, Step.DONE)


def test_who_fits_beside_the_others_is_frozen_where_it_is(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=1000)
    assert rig.suspender.suspend(tenant) is None
    assert (rig.state(1), rig.freezer.frozen) == (RUNNING, {"1"})
    assert rig.suspender.resume(tenant) is None
    assert rig.freezer.frozen == set()


def test_who_does_not_fit_goes_to_the_host_and_comes_back_when_there_is_room(rig: Rig) -> None:
    first, second = two(rig)
    assert (rig.state(1), rig.freezer.frozen, rig.suspender.away) == (CHECKPOINTED, {"1"}, {"1"})
    assert rig.suspender.suspend(second) is None
    assert rig.suspender.resume(first) is None
    assert (rig.state(1), rig.state(2)) == (RUNNING, CHECKPOINTED)
    assert (rig.freezer.frozen, rig.suspender.away) == ({"2"}, {"2"})
    assert rig.suspender.troubles == {}


def test_without_room_it_stands_still_and_nothing_is_tried_on_the_card(rig: Rig) -> None:
    first, _second = two(rig)
    refusal = rig.suspender.resume(first)
    assert refusal is not None
    assert (refusal.reason, refusal.lost) == ("NoRoom", False)
    assert "need 60512 MiB" in refusal.message
    assert "only 21559 MiB available" in refusal.message
    assert (rig.state(1), rig.freezer.frozen) == (CHECKPOINTED, {"1"})


def test_a_card_whose_free_memory_cannot_be_read_has_no_room(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(rig)
    rig.suspender.suspend(second)
    monkeypatch.setattr(rig, "free_mib", dict)
    assert reason(rig.suspender.resume(first)) == "NoRoom"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"in_mig": True}, "MIG"),
        ({"under_mps": True}, "MPSClient"),
        ({"host_free_mib": 60_000}, "HostMemoryShort"),
        ({"host_free_mib": None}, "HostMemoryUnknown"),
    ],
)
def test_who_cannot_be_moved_is_frozen_where_it_is_and_the_reason_told(
    rig: Rig, said: dict[str, object], why: str
) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.candidates["1"] = replace(rig.candidate(tenant), **said)  # type: ignore[arg-type]  # fields by name
    assert rig.suspender.suspend(tenant) is None
    assert (rig.state(1), rig.freezer.frozen) == (RUNNING, {"1"})
    assert rig.suspender.troubles["1"].reason == why


def test_a_tenant_of_several_processes_is_not_moved(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    usual = rig.candidate(tenant)
    rig.candidates["1"] = replace(usual, processes=[*usual.processes, replace(usual.processes[0], pid=9)])
    rig.suspender.suspend(tenant)
    assert rig.suspender.troubles["1"].message.startswith("ml/job-1 has 2 processes on its cards")
    assert rig.state(1) == RUNNING


def test_a_tenant_that_is_on_no_card_is_merely_frozen(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.candidates["1"] = replace(rig.candidate(tenant), processes=[])
    rig.suspender.suspend(tenant)
    assert (rig.state(1), rig.suspender.troubles) == (RUNNING, {})


@pytest.mark.parametrize(("call", "why"), [("Lock", "LockFailed"), ("Checkpoint", "CheckpointFailed")])
def test_a_call_that_is_refused_on_the_way_out_leaves_it_frozen_where_it_is(rig: Rig, call: str, why: str) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.stub.add(f"answer cuCheckpointProcess{call} {NOT_READY} 1")
    assert rig.suspender.suspend(tenant) is None
    assert (rig.state(1), rig.freezer.frozen, rig.suspender.away) == (RUNNING, {"1"}, set())
    assert rig.suspender.troubles["1"].reason == why
    assert rig.suspender.resume(tenant) is None
    assert rig.freezer.frozen == set()


def test_a_process_that_cannot_be_frozen_at_the_host_is_brought_back_and_runs(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    real, calls = rig.freezer.suspend, []

    def refuse(asked: NodeTenant) -> Refusal | None:
        calls.append(asked.uid)
        rig.freezer.refuses.add("suspend")
        return real(asked)

    rig.freezer.suspend = refuse  # type: ignore[method-assign]  # it refuses every time
    assert reason(rig.suspender.suspend(tenant)) == "FreezeTimedOut"
    assert (rig.state(1), rig.freezer.frozen, rig.suspender.away) == (RUNNING, set(), set())
    assert len(calls) == 2


def test_a_restore_that_is_refused_leaves_it_at_the_host_to_be_tried_again(rig: Rig) -> None:
    first, second = two(rig)
    rig.suspender.suspend(second)
    rig.stub.add(f"answer cuCheckpointProcessRestore {ILLEGAL_STATE} 1")
    assert reason(rig.suspender.resume(first)) == "RestoreFailed"
    assert (rig.state(1), rig.freezer.frozen) == (CHECKPOINTED, {"1", "2"})
    assert rig.suspender.resume(first) is None
    assert rig.state(1) == RUNNING


def test_an_unlock_that_is_refused_leaves_it_locked_to_be_tried_again(rig: Rig) -> None:
    first, second = two(rig)
    rig.suspender.suspend(second)
    rig.stub.add(f"answer cuCheckpointProcessUnlock {ILLEGAL_STATE} 1")
    assert reason(rig.suspender.resume(first)) == "UnlockFailed"
    assert (rig.state(1), "1" in rig.freezer.frozen) == (LOCKED, True)
    assert rig.suspender.resume(first) is None
    assert (rig.state(1), rig.suspender.away) == (RUNNING, {"2"})


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
def test_a_process_that_breaks_on_the_way_out_is_lost_and_told(rig: Rig, call: str) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.stub.add(f"after cuCheckpointProcess{call} 999")
    refusal = rig.suspender.suspend(tenant)
    assert refusal is not None
    assert refusal.lost
    assert "ml/job-1 for good" in refusal.message
    assert rig.suspender.troubles["1"] == refusal


def test_a_process_that_breaks_on_the_way_back_is_lost_and_told_and_not_frozen(rig: Rig) -> None:
    first, second = two(rig)
    rig.suspender.suspend(second)
    rig.stub.add("after cuCheckpointProcessRestore 2")
    refusal = rig.suspender.resume(first)
    assert refusal is not None
    assert refusal.lost
    assert "1" not in rig.freezer.frozen, "it is to see its error and end"
    again = rig.agent()
    again.recover()
    assert again.troubles["1"].lost, "the next agent knows of it"


def test_a_process_that_has_ended_is_no_trouble(rig: Rig) -> None:
    first, _ = two(rig)
    rig.gone.add(1)
    assert rig.suspender.resume(first) is None
    assert rig.suspender.away == set()


def test_a_state_that_cannot_be_read_leaves_it_standing(rig: Rig) -> None:
    first, second = two(rig)
    rig.suspender.suspend(second)
    rig.stub.add("answer cuCheckpointProcessGetState 999 1")
    assert reason(rig.suspender.resume(first)) == "StateUnreadable"
    assert rig.state(1) == CHECKPOINTED
    assert rig.suspender.resume(first) is None


@pytest.mark.parametrize("left", [LOCKED, CHECKPOINTED])
def test_the_next_agent_brings_back_whom_the_last_one_left(rig: Rig, left: ProcessState) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.suspender.suspend(tenant)
    if left is LOCKED:
        rig.stub.library.cuCheckpointProcessRestore(1, None)
    rig.freezer.frozen.clear()  # its watchdog has thawed everybody
    agent = rig.agent()
    agent.recover()
    assert (rig.state(1), agent.away) == (RUNNING, set())


def test_the_next_agent_waits_for_room(rig: Rig) -> None:
    two(rig)
    rig.freezer.frozen.clear()
    agent = rig.agent()
    agent.recover()
    assert (rig.state(1), agent.away, agent.troubles["1"].reason) == (CHECKPOINTED, {"1"}, "NoRoom")
    agent.suspend(rig.known(2))
    agent.recover()
    assert (rig.state(1), agent.away) == (RUNNING, {"2"})


def test_a_later_process_of_the_same_number_is_left_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    two(rig)
    rig.freezer.frozen.clear()
    monkeypatch.setattr(rig, "started", lambda _: 777)
    agent = rig.agent()
    agent.recover()
    assert (rig.state(1), agent.away) == (CHECKPOINTED, set())


def test_a_process_whose_number_another_pod_has_by_now_is_not_moved(rig: Rig) -> None:
    _, second = two(rig)
    rig.replaced.add(2)
    rig.suspender.suspend(second)
    assert (rig.state(2), rig.suspender.away) == (RUNNING, {"1"})
    rig.replaced.clear()
    rig.suspender.suspend(second)
    assert (rig.state(2), rig.suspender.away) == (CHECKPOINTED, {"1", "2"})


def test_nobody_is_moved_who_could_not_be_marked(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.folder.rmdir()
    assert rig.suspender.suspend(tenant) is None
    assert (rig.state(1), rig.suspender.troubles["1"].reason) == (RUNNING, "NotWritten")


def test_who_is_gone_is_forgotten(rig: Rig) -> None:
    tenant = rig.tenant(1, mib=LARGE)
    rig.mib["2"] = LARGE
    rig.host_free_mib = 0
    rig.suspender.suspend(tenant)
    rig.suspender.forget(frozenset({"2"}))
    assert rig.suspender.troubles == {}


def test_a_driver_without_the_calls_says_which_it_lacks() -> None:
    with pytest.raises(CudaError, match="no checkpoint of processes: it has no cuCheckpointProcessLock"):
        LibraryCalls(Driver(CudaStub(old_driver=True).path))


def test_a_driver_that_cannot_begin_is_told_in_its_words() -> None:
    stub = CudaStub("answer cuInit 100")
    with pytest.raises(CudaError, match=r"cuInit: no device \(100\)"):
        LibraryCalls(Driver(stub.path))


def test_a_missing_library_is_one_sentence() -> None:
    with pytest.raises(LibraryMissing, match="driver library is not there"):
        Driver("libcuda-that-is-not-there.so.1")


class Noted:
    """Stands in for the driver, and notes the arguments of each call as numbers."""

    def __init__(self) -> None:
        self.called: list[tuple[str, int, list[int]]] = []

    def has(self, _call: str) -> bool:
        return True

    def init(self) -> None:
        return

    def call(self, name: str, pid: Any, argument: Any) -> None:
        self.called.append((name.removeprefix("cuCheckpointProcess"), pid.value, list(argument)))


def test_the_arguments_of_a_call_are_64_bytes_and_begin_with_the_timeout_in_milliseconds() -> None:
    driver: Any = Noted()
    calls = LibraryCalls(driver)
    calls.lock(7, timeout_ms=1500)
    calls.checkpoint(7)
    calls.restore(8)
    calls.unlock(8)
    nothing = [0] * 16
    assert driver.called == [
        ("Lock", 7, [1500, *nothing[1:]]), ("Checkpoint", 7, nothing), ("Restore", 8, nothing), ("Unlock", 8, nothing),
    ]  # fmt: skip
