"""The checkpoint calls through the helper process, and the probe with its child: real processes on our stand-in for
CUDA's library, which hangs and refuses."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail_agent.checkpoint.calls import CheckpointFailed, ProcessState
from dovetail_agent.checkpoint.helper_process import HelperCalls
from dovetail_agent.checkpoint.probe import probed
from dovetail_agent.mps.devices import MpsDevice
from dovetail_agent.mps.probe import Verdict
from tests.agent.cuda_stub import built
from tests.agent.mps_machine import FakeCards

Helper = Callable[..., HelperCalls]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "state").mkdir()
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(built()),
        "CUDA_STUB_SCENARIO": str(tmp_path / "scenario"),
        "CUDA_STUB_STATE": str(tmp_path / "state"),
    }


@pytest.fixture
def helper(variables: dict[str, str]) -> Iterator[Helper]:
    """A helper on a driver that plays these lines."""
    made: list[HelperCalls] = []

    def make(*lines: str, seconds: float = 30.0, old_driver: bool = False) -> HelperCalls:
        Path(variables["CUDA_STUB_SCENARIO"]).write_text("\n".join(lines))
        if old_driver:
            variables["LD_LIBRARY_PATH"] = str(built(old_driver=True))
        made.append(HelperCalls(variables=variables, longest_seconds=seconds))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def tried(calls: HelperCalls, variables: dict[str, str], *, free_mib: int = 80_000) -> Verdict:
    cards = FakeCards(cards={"GPU-a": MpsDevice(free_mib=free_mib, exclusive=False)})
    return probed(calls, cards=cards, variables=variables)


def test_a_process_goes_to_the_host_and_back(helper: Helper) -> None:
    calls = helper("process 7 1000")
    calls.lock(7, timeout_ms=100)
    assert calls.state(7) is ProcessState.LOCKED
    calls.checkpoint(7)
    assert calls.state(7) is ProcessState.CHECKPOINTED
    calls.restore(7)
    calls.unlock(7)
    assert calls.state(7) is ProcessState.RUNNING


def test_a_refusal_comes_with_the_driver_s_number(helper: Helper) -> None:
    with pytest.raises(CheckpointFailed, match=r"cuCheckpointProcessCheckpoint: illegal state \(401\)") as refused:
        helper("process 7 1000").checkpoint(7)
    assert refused.value.code == 401


def test_a_call_that_hangs_is_given_up_and_the_next_one_has_a_new_helper(helper: Helper) -> None:
    calls = helper("process 7 1000", "delay cuCheckpointProcessLock 60000", seconds=5.0)
    with pytest.raises(CheckpointFailed, match="lock 7 100: the driver did not come back in 5 s") as hung:
        calls.lock(7, timeout_ms=100)
    assert hung.value.code is None
    assert calls.state(7) is ProcessState.RUNNING


def test_an_old_driver_says_what_it_lacks_at_each_call(helper: Helper) -> None:
    calls = helper(old_driver=True)
    for _ in range(2):
        with pytest.raises(CheckpointFailed, match="offers no checkpoint of processes"):
            calls.state(7)


def test_a_child_of_ours_that_was_moved_and_came_back_proves_it(helper: Helper, variables: dict[str, str]) -> None:
    verdict = tried(helper(), variables)
    assert verdict == Verdict(live=True, reason="Probed", message="a process of ours was moved to the host and back")


def test_a_driver_that_refuses_to_move_it_proves_nothing(helper: Helper, variables: dict[str, str]) -> None:
    verdict = tried(helper("answer cuCheckpointProcessCheckpoint 801"), variables)
    assert (verdict.live, verdict.reason) == (False, "ProbeFailed")
    assert "cuCheckpointProcessCheckpoint: not supported (801)" in verdict.message


def test_a_node_without_the_calls_says_so(helper: Helper, variables: dict[str, str]) -> None:
    verdict = tried(helper(old_driver=True), variables)
    assert not verdict.live
    assert "it has no cuCheckpointProcessLock" in verdict.message


def test_a_child_that_cannot_use_a_card_is_told_of(helper: Helper, variables: dict[str, str]) -> None:
    verdict = tried(helper("answer cuCtxCreate_v2 101"), variables)
    assert verdict.message == "a process of ours could not use a card: cuCtxCreate_v2: invalid device (101)"


def test_without_a_card_that_has_room_nothing_is_tried(helper: Helper, variables: dict[str, str]) -> None:
    verdict = tried(helper(), variables, free_mib=100)
    assert (verdict.live, verdict.reason) == (False, "NotTried")


def test_cards_that_cannot_be_read_are_told_of(helper: Helper, variables: dict[str, str]) -> None:
    verdict = probed(helper(), cards=FakeCards(problem="NVML: GPU is lost"), variables=variables)
    assert verdict.message == "NVML: GPU is lost"
