"""A plan of moves takes a while: what has become of its jobs meanwhile decides whether it is carried out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.devices import AllocatedDevice
from dovetail.api.reasons import moves as says
from dovetail.engine.model.claims import Claim
from dovetail.queue.inputs.candidates import destination_key
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.moves.plan import Movable, Move, MovePlan, NoPlan
from dovetail.queue.moves.search import Queue
from dovetail.queue.verdicts import Admitted
from dovetail_operator.job.observation import Notice
from dovetail_operator.metrics import make_counters
from dovetail_operator.queue import move_search
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.queue.move_planner import Moves
from dovetail_operator.queue.time_slices import TimeSlices
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NOW, at, make_child, make_job, make_state
from tests.operator_.queue.test_preemption_candidates import with_boss

CLAIM: Final = Claim(
    key="uid-low/0", node="b", devices=(AllocatedDevice(uuid="b-0", index=0, share_milli=1000, memory_mib=1),)
)
RUNNING: Final = {"phase": "Running", "startTime": at(-600)}


def moving() -> State:
    """Moves are requested for the boss, which waits for the devices that the other job has."""
    state = with_boss()
    boss(state, version="20", moveRequestTime=at(0))
    return state


def plan_of(waiting: Sequence[Candidate]) -> dict[str, MovePlan]:
    mover = Movable(
        job=Candidate(key="uid-low", ask=make_ask("2"), name="team/low"), claims=("pod-low",), run_seconds=600.0
    )
    move = Move(mover=mover, held=(), claims=(CLAIM,), lost_device_seconds=0.0, away_seconds=5.0)
    figures = {"otherwise_seconds": None, "lost_device_seconds": 0.0, "gained_device_seconds": 1.0, "compared": 0}
    return {
        each.key: MovePlan(starts=each, claims=(), in_seconds=60.0, moves=(move,), **figures)  # type: ignore[arg-type]
        for each in waiting
    }


def planner(state: State, *, changed: Callable[[str], None] = lambda _key: None) -> Moves:
    return Moves(
        state, caches=caches_for(state), counters=make_counters(CollectorRegistry()), changed=changed,
        wake_up=WakeUp(), now=lambda: NOW,
    )  # fmt: skip


async def begun(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[State], object]) -> tuple[State, list[str]]:
    """The state after a round of plans, and which jobs it marked as changed."""
    state, changed = moving(), list[str]()

    def plans(waiting: Sequence[Candidate], *, state: State, **_more: object) -> Mapping[str, MovePlan]:
        found = plan_of(waiting)
        meanwhile(state)
        return found

    monkeypatch.setattr(move_search, "plans_for", plans)
    await planner(state, changed=changed.append)._round(TimeSlices())
    return state, changed


def low(state: State, **spec: Any) -> None:
    meta = {"resourceVersion": "30"}
    state.store.job_changed(make_job("low", gpu=2, priority=10, meta=meta, **({"status": RUNNING} | spec)))


def boss(state: State, *, version: str = "30", **spec: Any) -> None:
    state.store.job_changed(make_job("boss", gpu=2, priority=50, meta={"resourceVersion": version}, **spec))


def suspend_child(state: State) -> None:
    child = make_child(make_job("low", gpu=2), uid="child", suspend=True)
    metadata = msgspec.structs.replace(child.metadata, resource_version="30")
    state.store.child_changed(msgspec.structs.replace(child, metadata=metadata))


def again(state: State, name: str, status: Mapping[str, Any]) -> None:
    """It was deleted, and another one was made under its name."""
    state.store.job_deleted(f"team/{name}", uid=f"uid-{name}")
    meta = {"uid": f"another-{name}"}
    state.store.job_changed(make_job(name, gpu=2, meta=meta, status=dict(status)))


async def test_a_plan_whose_jobs_are_as_they_were_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    state, changed = await begun(monkeypatch, lambda _state: None)
    (move,) = state.decisions.moves.values()
    assert (list(state.decisions.moves), move.by, changed) == (["uid-low"], "uid-boss", ["team/low"])
    assert move.reserved is not None
    assert (move.reserved.time, [node.name for node in move.reserved.nodes]) == ("2026-01-01T12:01:05Z", ["b"])


MEANWHILE: Final[Mapping[str, Callable[[State], object]]] = {
    "the job got its notice of preemption": lambda state: state.decisions.set_notices(
        {"uid-low": Notice(by="uid-other", message="m", grace_seconds=30.0)}
    ),
    "it is held": lambda state: low(state, suspend=True),
    "it is cancelled": lambda state: low(state, cancel=True),
    "it ended": lambda state: low(state, status=RUNNING | {"phase": "Succeeded"}),
    "it is deleted": lambda state: state.store.job_deleted("team/low", uid="uid-low"),
    "it is another one": lambda state: again(state, "low", RUNNING),
    "its batch Job is suspended": suspend_child,
    "the boss is held": lambda state: boss(state, suspend=True),
    "the boss is cancelled": lambda state: boss(state, cancel=True),
    "the boss is deleted": lambda state: state.store.job_deleted("team/boss", uid="uid-boss"),
    "the boss is another one": lambda state: again(state, "boss", {}),
    "the boss starts": lambda state: state.decisions.set_verdict("uid-boss", verdict=Admitted(key="uid-boss")),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_a_plan_one_of_whose_jobs_has_changed_is_not_carried_out(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    state, changed = await begun(monkeypatch, MEANWHILE[meanwhile])
    assert (dict(state.decisions.moves), changed) == ({}, [])


async def test_a_job_for_which_a_round_has_no_time_is_the_first_one_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, sought = moving(), list[list[str]]()
    state.store.job_changed(make_job("late", gpu=2, priority=40, moveRequestTime=at(0)))
    state.decisions.set_number("uid-late", number=3)

    def plans(waiting: Sequence[Candidate], **_more: object) -> Mapping[str, NoPlan]:
        sought.append([each.key for each in waiting])
        return {waiting[0].key: NoPlan(why=says.NO_JOBS())}

    monkeypatch.setattr(move_search, "plans_for", plans)
    moves = planner(state)
    for _ in range(3):
        await moves._round(TimeSlices())
    assert sought == [["uid-boss", "uid-late"], ["uid-late", "uid-boss"], ["uid-boss", "uid-late"]]
    clauses = [state.decisions.move_clause(uid).message for uid in ("uid-boss", "uid-late")]
    assert all("no moves start it" in each for each in clauses), "what was said of the others stays"


WAITING: Final = ("uid-low", "uid-boss", "uid-late")


def ended_for_its_move(*, room: bool) -> State:
    """A job ended for the boss: its room on another node is there, or a GPU of it is gone. Another one wants moves."""
    state = make_state(a=2, b=2 if room else 1)
    boss(state, version="20")
    state.store.job_changed(make_job("late", gpu=2, moveRequestTime=at(0)))
    reserved = {"time": at(60), "nodes": [{"name": "b", "workers": 1}], "kept": [{"name": "b", "keeps": ["2"]}]}
    status = {"phase": "Preempted", "move": {"by": "uid-boss", "count": 1, "lastTime": at(-5), "reserved": reserved}}
    job = make_job("low", gpu=2, priority=10, status=RUNNING | status)
    state.store.job_changed(job)
    for number, uid in enumerate(WAITING, start=1):
        state.decisions.set_number(uid, number=number)
    state.store.child_changed(make_child(job, uid="child", suspend=True))
    return state


@pytest.mark.parametrize("room", [True, False])
async def test_a_proof_counts_each_waiting_job_once_in_its_room_or_in_its_queue(
    monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    state, sought = ended_for_its_move(room=room), list[Queue]()

    def together(_wanted: Sequence[Candidate], *, queue: Queue, **_more: object) -> dict[str, MovePlan | NoPlan]:
        sought.append(queue)
        return {}

    monkeypatch.setattr(move_search, "plan_together", together)
    await planner(state)._round(TimeSlices())
    (queue,) = sought
    claimed = {claim.key for claim in queue.ledger.claims()}
    has_room = {uid for uid in WAITING if f"{destination_key(uid)}/0" in claimed}
    waits = [each.key for each in queue.waiting]
    assert sorted([*waits, *has_room]) == sorted(WAITING)
    assert has_room == ({"uid-low"} if room else set())
