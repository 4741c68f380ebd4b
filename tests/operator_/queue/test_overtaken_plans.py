"""Plans that newer facts contradict, and what follows for their jobs."""

from datetime import UTC, datetime

import pytest

from dovetail_operator.job.plan_doubts import Doubt
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.loop import OvertakenPlans
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, make_job, make_state

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


async def test_a_plan_may_be_overtaken_of_a_job_that_has_just_gone() -> None:
    dirty: list[str] = []
    state, wake_up = make_state(), WakeUp()
    plans = OvertakenPlans(state, changed=dirty.append, wake_up=wake_up, now=lambda: NOON)
    refused = Doubt(why="refused", patience_seconds=0.0, rest_seconds=30.0, words="no node")
    plans.update(Cycle(now=NOON, caches=caches_for(state), doubts={"uid-x": refused}, planned={"uid-x": "team/x"}))
    assert dirty == ["team/x"]
    # So that it is looked at again, another timer runs.
    assert wake_up._timer is not None
    wake_up._timer.cancel()


class Plans:
    """Overtaken plans of one state; `seconds` until the next cycle are None without a timer."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or make_state()
        self.changed: list[str] = []
        self.wake_up = WakeUp()
        self.plans = OvertakenPlans(self.state, changed=self.changed.append, wake_up=self.wake_up, now=lambda: NOON)

    def update(self, doubt: Doubt | None, *, planned: bool = True, waits: bool = False) -> None:
        cycle = Cycle(
            now=NOON,
            caches=caches_for(self.state),
            doubts={} if doubt is None else {"uid-x": doubt},
            planned={"uid-x": "team/x"} if planned else {},
            keys={"uid-x": "team/x"} if waits else {},
        )
        self.plans.update(cycle)

    @property
    def is_timed(self) -> bool:
        return self.wake_up._timer is not None


LOST, RESTING = Doubt(why="node a is gone"), Doubt(why="refused", rest_seconds=30.0, words="no node")


async def test_a_job_whose_plan_is_overtaken_is_marked_once_until_its_plan_holds_again() -> None:
    rig = Plans()
    for doubt, overtaken in (
        (LOST, "node a is gone"),
        (LOST, "node a is gone"),
        (None, None),
        (LOST, "node a is gone"),
    ):
        rig.update(doubt)
        assert rig.state.decisions.overtaken.get("uid-x") == overtaken
    assert rig.changed == ["team/x", "team/x"]


async def test_a_plan_that_is_doubted_for_a_short_time_still_holds_and_is_checked_again() -> None:
    rig = Plans()
    rig.update(Doubt(why="taken", patience_seconds=60.0))
    assert (rig.changed, rig.state.decisions.overtaken, rig.is_timed) == ([], {}, True)
    undoubted = Plans()
    undoubted.update(None)
    assert not undoubted.is_timed


@pytest.mark.parametrize(
    ("uid", "doubt", "rests"), [("uid-x", RESTING, True), ("uid-x", LOST, False), ("uid-later", RESTING, False)]
)
async def test_only_the_job_of_the_plan_rests_and_only_where_the_doubt_asks_for_it(
    uid: str, doubt: Doubt, rests: bool
) -> None:
    rig = Plans()
    rig.state.store.job_changed(job := make_job(meta={"uid": uid}))
    rig.update(doubt)
    found = rig.state.decisions.refusal_of(job, now=NOON)
    assert (found is not None) is rests
    assert rig.changed == ["team/x"]


async def test_a_plan_without_a_batch_job_is_withdrawn_and_the_job_waits_again_at_once() -> None:
    rig = Plans()
    rig.state.decisions.set_verdict("uid-x", verdict=LET_GO)
    rig.update(LOST, planned=False, waits=True)
    assert (rig.state.decisions.verdicts, rig.changed) == ({}, [])
    assert rig.wake_up._urgent.is_set()
    running = Plans()
    running.update(LOST)
    assert not running.wake_up._urgent.is_set()
