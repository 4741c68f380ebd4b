"""A move through the whole operator: killed after each write, and as a state machine."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, rule

from dovetail.jobs.moves import Mode, MoveRules
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves.plan import MovePlan, NoPlan
from dovetail.queue.moves.proof import expected_starts
from dovetail_operator.queue.move_search import plans_for
from tests.world import rebuilt
from tests.world.moving import MachineOfMoves, Watch, request
from tests.world.rules import Rules
from tests.world.world import World

# Two nodes of four GPUs, each with one job on it: the next job of four GPUs waits for a move of one of them.
SPREAD: Final = ("a", "b")
KEYS: Final = ("team/x", "lab/x")
BIG: Final = "team/big"


def spread(world: World, **spec: Any) -> None:
    """A job of one GPU on each node, and one of four GPUs that waits."""
    for name in SPREAD:
        world.add_node(name, gpus=4)
    world.pass_time(1.0)
    world.submit("x", namespace="team", **spec)
    world.settle()
    world.submit("fills", namespace="team", gpu="3")
    world.settle()
    world.submit("x", namespace="lab", **spec)
    world.settle()
    world.server.delete("gpujobs", "team/fills")
    world.settle()
    world.submit("big", namespace="team", gpu="4")
    world.settle()
    assert world.jobs()[BIG].status.phase == "Queued"
    assert {world.jobs()[key].status.nodes[0] for key in KEYS} == set(SPREAD)


def test_a_request_moves_one_job_and_starts_the_other() -> None:
    world = World()
    watch, laws = Watch(world), Rules(world)
    try:
        spread(world, moves="Restart")
        numbers = {key: job.status.number for key, job in world.jobs().items()}
        request(world, BIG)
        world.settle()
        world.settle()
        jobs = world.jobs()
        assert {key: job.status.phase for key, job in jobs.items()} == dict.fromkeys((*KEYS, BIG), "Running")
        assert len({jobs[key].status.nodes[0] for key in KEYS}) == 1
        moved = [job for job in jobs.values() if job.status.move is not None]
        assert [(each.status.move and each.status.move.count, each.status.plans) for each in moved] == [(1, 2)]
        assert watch.moved == {moved[0].metadata.uid: 1}
        assert {key: job.status.number for key, job in jobs.items()} == numbers
        rebuilt.check(world)
        laws.check_ends()
    finally:
        world.close()


@pytest.mark.parametrize("writes", range(1, 16))
def test_an_operator_that_is_killed_after_any_write_of_a_move_goes_on_with_it(writes: int) -> None:
    world = World()
    watch, laws = Watch(world), Rules(world)
    try:
        spread(world, moves="Restart")
        request(world, BIG)
        world.kill_after(writes)
        world.settle()
        world.settle()
        assert world.kills == 1
        jobs = world.jobs()
        assert {key: job.status.phase for key, job in jobs.items()} == dict.fromkeys((*KEYS, BIG), "Running")
        assert sum(watch.moved.values()) == 1
        rebuilt.check(world)
        laws.check_ends()
    finally:
        world.close()


def test_a_job_that_does_not_allow_it_stays_and_the_answer_says_so() -> None:
    world = World()
    try:
        spread(world)
        request(world, BIG)
        world.settle()
        world.pass_time(40.0)
        jobs = world.jobs()
        assert "; no moves start it: no set of jobs that may move makes room for it" in jobs[BIG].status.message
        assert [job.status.plans for key, job in jobs.items() if key in KEYS] == [1, 1]
    finally:
        world.close()


@pytest.mark.parametrize("mode", ["Off", "Plan", "Apply"])
def test_on_need_the_operator_does_what_the_mode_says(mode: Mode) -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, moves="Restart")
        world.operator.state.moves = MoveRules(mode=mode, after_seconds=5.0, rest_seconds=0.0)
        world.pass_time(60.0)
        jobs, moves = world.jobs(), sum(watch.moved.values())
        says = "would start within" in jobs[BIG].status.message
        assert (moves, says) == {"Off": (0, False), "Plan": (0, True), "Apply": (1, False)}[mode]
        assert (jobs[BIG].status.phase == "Running") is (mode == "Apply")
    finally:
        world.close()


def test_a_budget_of_moves_that_is_used_up_moves_nobody() -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, moves="Restart")
        world.operator.state.moves = MoveRules(per_hour=0)
        request(world, BIG)
        world.pass_time(60.0)
        assert watch.moved == {}
        message = world.jobs()[BIG].status.message
        assert "; no moves start it: moves.per_hour allows no further move within this hour" in message
    finally:
        world.close()


def test_what_all_plans_of_a_moment_share_takes_no_time_of_their_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """On thousands of nodes it takes longer than the search may."""
    world, spent = World(), [0.0]
    watch = Watch(world)

    def starts(*args: Any, **options: Any) -> dict[str, float]:
        spent[0] += 2.0
        return expected_starts(*args, **options)

    monkeypatch.setattr("dovetail_operator.queue.move_search.expected_starts", starts)
    monkeypatch.setattr("tests.world.operator._Slices.busy_seconds", property(lambda _slices: spent[0]))
    try:
        spread(world, moves="Restart")
        request(world, BIG)
        world.settle()
        world.settle()
        assert spent[0] > 0
        assert world.jobs()[BIG].status.phase == "Running"
        assert sum(watch.moved.values()) == 1
    finally:
        world.close()


def test_on_need_no_moves_are_sought_for_a_job_that_a_limit_keeps_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world, sought = World(), set[str]()

    def plans(wanted: Sequence[Candidate], **options: Any) -> dict[str, MovePlan | NoPlan]:
        sought.update(each.name for each in wanted)
        return plans_for(wanted, **options)

    monkeypatch.setattr("dovetail_operator.queue.move_search.plans_for", plans)
    try:
        spread(world)
        world.set_quota("q", namespaces=["lab"], limit={"gpus": 1})
        world.submit("large", namespace="lab", gpu="4")
        world.settle()
        assert world.jobs()["lab/large"].status.reason == "Quota"
        world.operator.state.moves = MoveRules(mode="Plan", after_seconds=5.0, rest_seconds=0.0)
        world.pass_time(60.0)
        assert sought == {BIG}
    finally:
        world.close()


def test_a_job_that_moved_and_was_deleted_counts_against_the_budget_of_the_hour() -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, moves="Restart")
        world.operator.state.moves = MoveRules(per_hour=1, rest_seconds=0.0)
        request(world, BIG)
        world.settle()
        (moved,) = watch.moved
        (key,) = (key for key, job in world.jobs().items() if job.metadata.uid == moved)
        world.server.delete("gpujobs", key)
        world.settle()
        jobs = world.operator.state.store.jobs.values()
        assert world.operator.state.moves.left(jobs, now=world.now()) == 1
        deleted = world.operator.state.moves_of_deleted.times(now=world.now())
        assert list(deleted) == [moved]
        assert world.operator.state.moves.left(jobs, now=world.now(), of_deleted=len(deleted)) == 0
    finally:
        world.close()


@pytest.mark.parametrize(("patience", "moves"), [({}, 0), ({0: 5.0}, 1), ({50: 5.0}, 0)])
def test_on_need_jobs_move_after_the_patience_of_the_class_of_priority(
    patience: Mapping[int, float], moves: int
) -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, moves="Restart")
        world.operator.state.moves = MoveRules(mode="Apply", after_seconds=3000.0, patience_seconds=patience)
        world.pass_time(60.0)
        assert sum(watch.moved.values()) == moves
    finally:
        world.close()


def test_a_disruption_budget_that_lets_no_pod_end_is_kept() -> None:
    world = World()
    watch = Watch(world)
    try:
        spread(world, moves="Restart")
        for namespace in ("team", "lab"):
            meta = {"name": "all", "namespace": namespace}
            budget = {
                "metadata": meta,
                "spec": {"selector": {}},
                "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
            }
            world.server.create("poddisruptionbudgets", budget)
        request(world, BIG)
        world.pass_time(60.0)
        assert watch.moved == {}
        world.server.change(
            "poddisruptionbudgets", "team/all", lambda each: each["status"].update(disruptionsAllowed=1)
        )
        world.settle()
        world.settle()
        assert sum(watch.moved.values()) == 1
    finally:
        world.close()


class MovesMachine(MachineOfMoves):
    """Each rule is one change, or some time."""

    nodes = SPREAD

    @initialize(seed=st.sampled_from([None, 1, 2, 3]), slow=st.booleans(), allowed=st.booleans())
    def begin(self, *, seed: int | None, slow: bool, allowed: bool) -> None:
        self.begin_in(partial(World, seed=seed, slow_cycles=slow))
        spread(self.world, **({"moves": "Restart"} if allowed else {}))

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 6.0]))
    def request(self, seconds: float) -> None:
        if BIG in self.world.jobs():
            request(self.world, BIG)
        self.world.pass_time(seconds)

    @rule(key=st.sampled_from([*KEYS, BIG]), edit=st.sampled_from(["Restart", "Never", "hold", "release", "delete"]))
    def change(self, key: str, edit: str) -> None:
        if key not in self.world.jobs():
            namespace, _, name = key.partition("/")
            self.world.submit(name, namespace=namespace, gpu="4" if key == BIG else "1", moves="Restart")
        elif edit == "delete":
            self.world.server.delete("gpujobs", key)
        elif edit in {"hold", "release"}:
            self.world.edit(key, suspend=edit == "hold")
        elif (self.world.jobs()[key].status.move or None) is None:
            # Whether a job may move is decided before its move begins.
            self.world.edit(key, moves=edit)
        self.world.pass_time(0.3)


TestMoves = MovesMachine.TestCase
TestMoves.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
