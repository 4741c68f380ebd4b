"""The whole operator under PodDisruptionBudgets: nothing ends for another job or a drain beyond them."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.world import rebuilt
from tests.world.world import World

LOW: Final = "team/low"


def allow(world: World, pods: int) -> None:
    """The budget of all pods of the namespace lets so many end."""
    key = "team/all"
    if world.server.find("poddisruptionbudgets", key) is None:
        meta = {"name": "all", "namespace": "team"}
        world.server.create(
            "poddisruptionbudgets", {"metadata": meta, "spec": {"selector": {}}, "status": {"observedGeneration": 1}}
        )
    world.server.change("poddisruptionbudgets", key, lambda each: each["status"].update(disruptionsAllowed=pods))


def preempt(world: World) -> None:
    world.submit("boss", namespace="lab", gpu="4", priority=60)


def drain(world: World) -> None:
    world.add_node("b", gpus=4)
    world.cordon("a")


def guarantee(world: World) -> None:
    world.set_quota("lab", namespaces=["lab"], guaranteed={"gpus": 4})
    world.set_quota("team", namespaces=["team"], guaranteed={"gpus": 0})
    world.submit("boss", namespace="lab", gpu="4", priority=0)


@pytest.mark.parametrize("cause", [preempt, drain, guarantee])
def test_a_job_ends_once_its_budget_lets_it(cause: Callable[[World], None]) -> None:
    world = World()
    try:
        world.add_node("a", gpus=4)
        world.pass_time(1.0)
        allow(world, 0)
        world.submit("low", namespace="team", gpu="4", priority=0)
        world.settle()
        cause(world)
        world.settle()
        world.settle()
        low = world.jobs()[LOW].status
        assert (low.phase, low.plans, low.preemption) == ("Running", 1, None)
        rebuilt.check(world)

        allow(world, 1)
        world.settle()
        world.settle()
        low = world.jobs()[LOW].status
        assert low.preemption is not None
        assert low.preemption.count == 1
        rebuilt.check(world)
    finally:
        world.close()
