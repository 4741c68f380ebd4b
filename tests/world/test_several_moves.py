"""Several plans of moves at once, through the whole operator: killed after each write, and as a state machine.

Four nodes of four GPUs have one job of one GPU each, and two jobs wait for four GPUs: two plans, each of which empties
a node. What `tests.world.moving` says of a move holds for each.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, rule

from dovetail.jobs.moves import MoveRules
from tests.world import rebuilt
from tests.world.api import Values
from tests.world.cluster import healthy_pods
from tests.world.moving import MachineOfMoves, Watch, request
from tests.world.rules import Rules
from tests.world.world import World

NODES: Final = ("a", "b", "c", "d")
SMALL: Final = tuple(f"team/x{node}" for node in NODES)
BIGS: Final = ("team/big1", "team/big2")


class Together:
    """How many plans were under way at the same time, by the statuses; and how many pods of the budget were down."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.most = 0
        self.fewest: int | None = None
        world.server.watches.append(self._look)

    def _look(self, plural: str, type_: str, values: Values) -> None:
        if plural == "gpujobs":
            moves = [(job.get("status") or {}).get("move") or {} for job in self._world.server.all("gpujobs")]
            self.most = max(self.most, len({move["by"] for move in moves if move.get("by")}))
        elif plural == "pods" and type_ == "MODIFIED" and "deletionTimestamp" in values["metadata"]:
            for budget in self._world.server.all("poddisruptionbudgets"):
                left = len(healthy_pods(self._world.server, budget=budget))
                self.fewest = left if self.fewest is None else min(self.fewest, left)


def spread(world: World, *, remain: int = 0) -> None:
    """A job of one GPU on each node, and two of four GPUs that wait. So many small ones are to remain by a budget."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": remain}
    meta = {"name": "web", "namespace": "team"}
    world.server.create("poddisruptionbudgets", {"metadata": meta, "spec": spec, "status": {}})
    for name in NODES:
        world.add_node(name, gpus=4)
    world.pass_time(1.0)
    for number, key in enumerate(SMALL):
        world.submit(key.partition("/")[2], namespace="team", moves="Restart", template=_covered())
        world.settle()
        world.submit(f"fills{number}", namespace="team", gpu="3")
        world.settle()
    for number in range(len(SMALL)):
        world.server.delete("gpujobs", f"team/fills{number}")
    world.settle()
    for key in BIGS:
        world.submit(key.partition("/")[2], namespace="team", gpu="4")
    world.settle()
    assert {world.jobs()[key].status.phase for key in BIGS} == {"Queued"}
    assert {world.jobs()[key].status.nodes[0] for key in SMALL} == set(NODES)


def _covered() -> Values:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


def all_run(world: World) -> bool:
    return {job.status.phase for job in world.jobs().values()} == {"Running"}


def test_two_requests_are_carried_out_at_once() -> None:
    world = World()
    watch, laws = Watch(world), Rules(world)
    try:
        spread(world)
        together = Together(world)
        for key in BIGS:
            request(world, key)
        seconds = _pass_until(world, lambda: all_run(world))
        assert together.most == 2
        assert sorted(watch.moved.values()) == [1, 1]
        assert seconds < 60
        rebuilt.check(world)
        laws.check_ends()
    finally:
        world.close()


def _pass_until(world: World, holds: Callable[[], bool]) -> float:
    """How many seconds pass until this holds."""
    began = world.now()
    while not holds():
        world.pass_time(0.5)
        assert (world.now() - began).total_seconds() < 600, world.jobs()
    return (world.now() - began).total_seconds()


@pytest.mark.parametrize("writes", range(1, 26, 2))
def test_an_operator_that_is_killed_while_two_plans_are_under_way_goes_on_with_both(writes: int) -> None:
    world = World()
    watch, laws = Watch(world), Rules(world)
    try:
        spread(world)
        for key in BIGS:
            request(world, key)
        world.kill_after(writes)
        world.settle()
        world.settle()
        assert world.kills == 1
        assert all_run(world)
        assert sorted(watch.moved.values()) == [1, 1]
        rebuilt.check(world)
        laws.check_ends()
    finally:
        world.close()


def test_plans_whose_pods_share_a_budget_come_one_after_the_other() -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, remain=len(SMALL) - 1)
        together = Together(world)
        for key in BIGS:
            request(world, key)
        _pass_until(world, lambda: all_run(world))
        assert (together.most, together.fewest) == (1, len(SMALL) - 1)
        assert sorted(watch.moved.values()) == [1, 1]
    finally:
        world.close()


@pytest.mark.parametrize(("per_hour", "moves"), [(1, 1), (2, 2)])
def test_a_plan_is_made_beside_one_that_is_under_way_if_the_budget_of_the_hour_allows_it(
    per_hour: int, moves: int
) -> None:
    world = World()
    watch, laws = Watch(world), Rules(world)
    try:
        spread(world)
        world.operator.state.moves = MoveRules(per_hour=per_hour, rest_seconds=0.0)
        together = Together(world)
        # A plan for the first one alone would delay the second one, by expected ends.
        world.edit(BIGS[1], suspend=True)
        world.pass_time(1.0)
        request(world, BIGS[0])
        _pass_until(world, lambda: together.most == 1)
        world.edit(BIGS[1], suspend=False)
        request(world, BIGS[1])
        _pass_until(world, lambda: sum(world.jobs()[key].status.phase == "Running" for key in BIGS) == moves)
        world.pass_time(60.0)
        assert together.most == moves
        assert sorted(watch.moved.values()) == [1] * moves
        laws.check_ends()
    finally:
        world.close()


class SeveralMovesMachine(MachineOfMoves):
    """Each rule is one change, or some time."""

    nodes = NODES

    @initialize(seed=st.sampled_from([None, 1, 2, 3]), slow=st.booleans(), remain=st.sampled_from([0, 2, 3]))
    def begin(self, *, seed: int | None, slow: bool, remain: int) -> None:
        self.begin_in(partial(World, seed=seed, slow_cycles=slow))
        self.remain = remain
        spread(self.world, remain=remain)
        self.together = Together(self.world)
        self.others_end = False

    @rule(key=st.sampled_from(BIGS), seconds=st.sampled_from([0.3, 1.0, 3.0, 6.0]))
    def request(self, key: str, seconds: float) -> None:
        if key in self.world.jobs():
            request(self.world, key)
        self.world.pass_time(seconds)

    @rule(seconds=st.sampled_from([0.3, 1.0, 6.0]))
    def request_all(self, seconds: float) -> None:
        for key in BIGS:
            if key in self.world.jobs():
                request(self.world, key)
        self.world.pass_time(seconds)

    @rule(key=st.sampled_from([*SMALL, *BIGS]), edit=st.sampled_from(["hold", "release", "delete"]))
    def change(self, key: str, edit: str) -> None:
        if key not in self.world.jobs():
            gpu, template = ("4", {}) if key in BIGS else ("1", {"template": _covered()})
            self.world.submit(key.partition("/")[2], namespace="team", gpu=gpu, moves="Restart", **template)
        elif edit == "delete":
            self.others_end = self.others_end or key in SMALL
            self.world.server.delete("gpujobs", key)
        else:
            self.others_end = self.others_end or key in SMALL
            self.world.edit(key, suspend=edit == "hold")
        self.world.pass_time(0.3)

    @invariant()
    def the_budget_is_kept(self) -> None:
        # Who deletes or holds jobs asks no budget.
        fewest = self.together.fewest
        assert self.others_end or fewest is None or fewest >= self.remain


TestSeveralMoves = SeveralMovesMachine.TestCase
TestSeveralMoves.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)
