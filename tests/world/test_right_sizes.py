"""A right size through the whole operator: accepted while the job runs, it counts from the next start on."""

from typing import Final

import pytest

from dovetail.api.gpujob import GPUJob
from tests.world import rebuilt
from tests.world.rules import Rules
from tests.world.world import World

KEY: Final = "team/x"


def sizes(job: GPUJob) -> tuple[str, str, list[int]]:
    """What the status and the plan of a running job say that each worker requests, and the shares that it has."""
    status = job.status
    assert status.placement is not None
    return status.request, status.placement.worker.request, [device.share_milli for device in status.devices]


def restart(world: World) -> None:
    """Hold the job until its pods have ended, and release it."""
    for suspend in (True, False):
        world.edit(KEY, suspend=suspend)
        world.settle()
        world.settle()
    assert world.jobs()[KEY].status.phase == "Running"


@pytest.mark.parametrize("writes", [None, 1, 2, 3, 5, 8])
def test_an_accepted_size_counts_from_the_next_start_on_and_a_withdrawn_one_no_longer(writes: int | None) -> None:
    world = World()
    laws = Rules(world)
    try:
        world.add_node("a", gpus=2)
        world.pass_time(1.0)
        world.submit("x", gpu="1")
        world.settle()
        if writes is not None:
            world.kill_after(writes)
        world.edit(KEY, rightSize="6G,0.3")
        world.settle()
        assert sizes(world.jobs()[KEY]) == ("1", "1", [1000])
        restart(world)
        assert sizes(world.jobs()[KEY]) == ("6G,0.3", "6G,0.3", [300])
        world.edit(KEY, rightSize=None)
        world.settle()
        assert sizes(world.jobs()[KEY]) == ("6G,0.3", "6G,0.3", [300])
        restart(world)
        assert sizes(world.jobs()[KEY]) == ("1", "1", [1000])
        rebuilt.check(world)
        laws.check_ends()
    finally:
        world.close()


def test_the_room_that_a_smaller_run_leaves_is_for_others() -> None:
    world = World()
    try:
        world.add_node("a", gpus=1)
        world.pass_time(1.0)
        world.submit("x", gpu="1")
        world.settle()
        world.submit("other", gpu="0.5")
        world.settle()
        assert world.jobs()["team/other"].status.phase == "Queued"
        world.edit(KEY, rightSize="6G,0.3", suspend=True)
        world.settle()
        world.edit(KEY, suspend=False)
        world.settle()
        world.settle()
        assert {job.status.phase for job in world.jobs().values()} == {"Running"}
        assert sizes(world.jobs()[KEY])[2] == [300]
    finally:
        world.close()
