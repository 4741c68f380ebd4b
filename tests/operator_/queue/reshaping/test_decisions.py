"""Which GPUs the queue has partitioned again, when, and for which waiting job."""

from datetime import timedelta
from typing import Any

import msgspec

from dovetail.api.gpunode import GPUNode
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail.queue.verdicts import Waits
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.reshaping.decisions import Reshaping
from dovetail_operator.queue.verdict_updates import VerdictPacing
from dovetail_operator.queue.wake_up import WakeUp
from tests.core.queue.reshaping.cards import H100_SLOTS
from tests.operator_.builders import NOW, make_job, make_state

RULES = ReshapeRules(enabled=True, after_seconds=60, idle_seconds=120, cooldown_seconds=600)


def gpunode(*profiles: str, spec: dict[str, Any] | None = None, **card: Any) -> GPUNode:
    """Node a with one GPU in MIG mode and these instances."""
    slots = [msgspec.to_builtins(slot) for slot in H100_SLOTS]
    devices = [
        {
            "index": at, "uuid": f"MIG-{at}", "vendor": "nvidia", "model": f"H100 MIG {profile}", "memoryMiB": 9984,
            "migProfile": profile, "parent": "GPU-0",
        }
        for at, profile in enumerate(profiles, start=1)
    ]  # fmt: skip
    reshapable = {"uuid": "GPU-0", "index": 0, "model": "H100", "slots": slots} | card
    status = {"devices": devices, "reshapable": [reshapable]}
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec or {}, "status": status}, GPUNode)


class Rig:
    """The state of an operator with that node and one waiting job, and its decisions at times."""

    def __init__(self, *, rules: ReshapeRules = RULES, gpu: str = "3g.40gb") -> None:
        self.state = make_state(a=1)
        self.state.reshape = rules
        self.state.store.gpunode_changed(gpunode(*["1g.10gb"] * 7))
        self.state.store.job_changed(make_job(gpu=gpu))
        self.state.decisions.set_number("uid-x", number=1)
        self.wake_up, self.seconds = WakeUp(), 0.0
        self.reshaping = Reshaping(self.state, wake_up=self.wake_up, now=lambda: NOW + timedelta(seconds=self.seconds))

    def add(self, name: str, *, gpu: str) -> None:
        """One more waiting job, after those before it."""
        number = len(self.state.store.jobs) + 1
        self.state.store.job_changed(make_job(name, gpu=gpu))
        self.state.decisions.set_number(f"uid-{name}", number=number)

    def at(self, seconds: float) -> list[tuple[str, ...]]:
        """The partitions that a cycle at this time decides on."""
        self.seconds = seconds
        cycle = survey(self.state, now=NOW + timedelta(seconds=seconds))
        for verdict in decide(self.state, cycle=cycle):
            self.state.decisions.set_verdict(verdict.key, verdict=verdict)
        self.reshaping.update(cycle)
        return [change.profiles for change in self.state.decisions.reshapes]

    @property
    def message(self) -> str:
        verdict = self.state.decisions.verdicts["uid-x"]
        assert isinstance(verdict, Waits)
        return verdict.message


async def test_a_gpu_changes_once_the_job_has_waited_and_the_gpu_was_idle_for_long_enough() -> None:
    rig = Rig()
    assert [rig.at(seconds) for seconds in (0, 60, 119)] == [[], [], []]
    assert rig.wake_up._timer is not None
    assert rig.at(120) == [("3g.40gb", *["1g.10gb"] * 4)]


async def test_nothing_changes_unless_it_is_enabled() -> None:
    rig = Rig(rules=ReshapeRules())
    assert [rig.at(seconds) for seconds in (0, 10_000)] == [[], []]


async def test_a_job_that_a_gpu_serves_already_changes_none() -> None:
    rig = Rig(gpu="1g.10gb")
    assert [rig.at(seconds) for seconds in (0, 10_000)] == [[], []]


async def test_a_gpu_rests_after_a_change() -> None:
    rig = Rig()
    finished = {"answered": "2026-01-01T11:59:00Z", "finishedTime": "2026-01-01T11:59:00Z"}
    rig.state.store.gpunode_changed(gpunode(*["1g.10gb"] * 7, **finished))
    assert [rig.at(seconds) for seconds in (0, 500, 539)] == [[], [], []]
    assert rig.at(540) == [("3g.40gb", *["1g.10gb"] * 4)]


async def test_a_requested_change_is_not_decided_again_and_is_in_the_job_s_message() -> None:
    rig = Rig()
    rig.at(0)
    request = {"profiles": ["3g.40gb", "1g.10gb"], "requestedTime": "2026-01-01T12:02:00Z", "job": "uid-x"}
    rig.state.store.gpunode_changed(gpunode(*["1g.10gb"] * 7, spec={"reshape": {"GPU-0": request}}))
    assert rig.at(200) == []
    assert rig.message.endswith("; reshaping GPU 0 of node a into 3g.40gb + 1g.10gb")


async def test_a_failed_change_is_in_the_job_s_message() -> None:
    rig = Rig()
    rig.state.decisions.set_reshape_problem("uid-x", message="GPU 0 of node a could not be reshaped into 3g.40gb: no")
    rig.at(0)
    assert rig.message.endswith("; GPU 0 of node a could not be reshaped into 3g.40gb: no")


async def test_jobs_of_a_profile_that_no_gpu_can_have_delay_no_other_job() -> None:
    rig = Rig(gpu="1g.5gb")
    for at in range(20):
        rig.add(f"bad-{at:02}", gpu="1g.5gb")
    rig.add("good", gpu="3g.40gb")
    rig.at(0)
    assert rig.at(120) == [("3g.40gb", *["1g.10gb"] * 4)]


async def test_jobs_that_no_change_helps_have_their_turn_and_let_others_have_theirs() -> None:
    rig = Rig(gpu="99x3g.40gb")
    for at in range(19):
        rig.add(f"bad-{at:02}", gpu=f"{10 + at}x3g.40gb")
    rig.add("good", gpu="3g.40gb")
    rig.at(0)
    found = [rig.at(120 + cycle) for cycle in range(5)]
    assert found == [[], [], [], [], [("3g.40gb", "3g.40gb")]]
    assert rig.wake_up._timer is not None


async def test_once_all_jobs_had_their_turn_no_further_cycle_is_requested() -> None:
    rig = Rig(gpu="99x3g.40gb")
    for at in range(9):
        rig.add(f"bad-{at:02}", gpu=f"{10 + at}x3g.40gb")
    rig.at(0)
    requested = []
    for seconds in (1000, 1001, 1002):
        rig.wake_up = rig.reshaping._wake_up = WakeUp()
        assert rig.at(seconds) == []
        requested.append(rig.wake_up._timer is not None)
    assert requested == [True, False, True]


def test_the_news_of_a_change_is_written_at_once() -> None:
    pacing = VerdictPacing()
    before = Waits(key="x", reason="Resources", message="Need")
    assert not pacing.hold_back(before, before=None, rank=0, now=0.0)
    assert pacing.hold_back(msgspec.structs.replace(before, message="Needs"), before=before, rank=0, now=1.0)
    news = msgspec.structs.replace(before, message="Need; reshaping", reshaping="; reshaping")
    assert not pacing.hold_back(news, before=before, rank=0, now=1.0)
