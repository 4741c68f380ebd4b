"""Plans that newer facts contradict, and what follows for their jobs."""

from datetime import UTC, datetime

from dovetail_operator.job.plan_doubts import Doubt
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.overtaken_plans import OvertakenPlans
from dovetail_operator.queue.wake_up import WakeUp
from tests.operator_.builders import make_state

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
