"""The operator's state beside one that is built from the objects alone: what one has kept, the other has to find."""

from collections.abc import Container, Iterator
from dataclasses import fields
from typing import Any, Final

from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.state.state import Requests, State
from tests.world.api import ApiServer
from tests.world.operator import PREEMPTION, make_empty_state
from tests.world.tables import tables
from tests.world.world import World

# Tables of the store that one built from the objects does not have. Each is asked for its answers instead, or learns.
NOT_FROM_OBJECTS: Final = {
    "RunTimesUsed._of_group": "learned from jobs, and kept when they are deleted",
    "RunTimesUsed._reckoned": "learned from jobs, and kept when they are deleted",
    "_Latest._by_age": "learned from jobs, and kept when they are deleted",
    "_Latest._sorted": "learned from jobs, and kept when they are deleted",
    "Misses._came": "learned from estimates, and stored in a ConfigMap",
    "Misses._longer": "learned from estimates, and stored in a ConfigMap",
    "Misses._held": "learned from estimates, and stored in a ConfigMap",
    "Misses._noted": "estimates that were made",
    "Arrivals._latest": "learned from submissions, and kept when jobs are deleted",
    "Expectations._came": "the cycles note submissions",
    "Utilization._jobs": "integrals over reports",
    "_Job.holds": "integrals over reports",
    "Quotas._departed": "what deleted jobs used, until a quota's status has it",
    "Quotas._known_terms": "the terms of the last cycle's jobs: the limits of each start are counted again",
    "Quotas._levels": "of the last computation, at its time",
    "Quotas._recent": "of the last computation, at its time",
    "Quotas._cards": "the cycles note the cards",
    "Quotas.kept": "the cycles place windows",
    "Quotas._in_force": "of the last cycle, at its time",
    "JobPods._listed": "computed when asked: every job's pods are compared",
    "TaskIndex._names": "computed when asked: every job's tasks are compared",
    "TaskIndex._waiting": "computed when asked: every job's tasks are compared",
    "Dependencies._circles": "computed when asked: every job's obstacle is compared",
    "Dependencies._unmade": "computed when asked: every job's obstacle is compared",
    "Dependencies._news": "computed when asked: every job's obstacle is compared",
    "Requests._readings": "computed when asked: every job's request is compared",
    "Requests._of_specs": "computed when asked: every job's request is compared",
    "Store._followers": "who follows, not what",
    "MovesOfDeleted._times": "moves of deleted jobs, and stored in a ConfigMap",
}
# Tables that are not empty when every object is deleted.
NOT_EMPTY: Final = {
    "MovesOfDeleted._times": "a move counts until its hour is over",
    "Quotas._cards": "the cards of the last cycle in which a quota counted memory",
    "NegativeCache._asked": "the last 64 questions, whoever asked them",
    "Burst._latest": "the latest times, up to a bound",
    "Numbers._given": "a number is never given again",
    "Numbers._reserved": "as stored in a ConfigMap",
    "Learner._weights": "the mix of jobs is learned",
    "RecentKeys._newer": "the mix counts a job once",
    "RecentKeys._older": "the mix counts a job once",
    "CapacityMirror._rooms": "a row of the ledger is kept for ever",
    "Kinds._states": "a row of the ledger is kept for ever",
    "Kinds._numbers": "a row of the ledger is kept for ever",
    "Kinds._members": "a row of the ledger is kept for ever",
    "Kinds._unused": "a row of the ledger is kept for ever",
    "RunTimesUsed._of_group": "learned from jobs, and kept when they are deleted",
    "_Latest._by_age": "learned from jobs, and kept when they are deleted",
    "_Latest._sorted": "learned from jobs, and kept when they are deleted",
    "Misses._came": "learned from estimates, and stored in a ConfigMap",
    "Misses._longer": "learned from estimates, and stored in a ConfigMap",
    "Misses._held": "learned from estimates, and stored in a ConfigMap",
    "Arrivals._latest": "learned from submissions, and kept when jobs are deleted",
    "Requests._of_specs": "of the last specs, whoever had them",
    "Candidacies._like": "of the last specs, whoever had them",
    "Store._followers": "who follows, not what",
    "KindWatches._watches": "who follows, not what",
    "Gangs._watches": "who follows, not what",
    "Controller._refusals": "who follows, not what",
    "Reflector._selectors": "what a watch selects",
    "Ledger.content": "has its own check",
    "DeviceSums._steps": "computed for a number of devices, whatever there is",
}
# What an observation has of time and of measurements.
_OF_TIME: Final = frozenset({"measured", "memory", "now"})


def rebuilt(server: ApiServer, *, beside: State) -> State:
    """A state from the objects alone, with the decisions of the other."""
    fresh = make_empty_state()
    store = fresh.store
    for node in server.typed("nodes"):
        store.view.node_changed(node)
    for gpunode in server.typed("gpunodes"):
        store.gpunode_changed(gpunode)
    for quota in server.typed("gpuquotas"):
        store.quotas.update(quota)
    for budget in server.typed("poddisruptionbudgets"):
        store.budget_event("ADDED", budget)
    for job in server.typed("gpujobs"):
        store.job_changed(job)
    for child in server.typed("jobs"):
        store.child_changed(child)
    for pod in server.typed("pods"):
        store.pod_event("ADDED", pod)
    state = State(
        store,
        decisions=beside.decisions,
        requests=Requests(store, decisions=beside.decisions, rankings=beside.requests._rankings),
        preemption=PREEMPTION,
        drain=beside.drain,
        moves=beside.moves,
    )
    # Fair shares are of the last computation.
    store.quotas._levels, store.quotas._recent = beside.store.quotas._levels, beside.store.quotas._recent
    return state


def check_tables(live: State, fresh: State, *, besides: Container[str] = ()) -> None:
    """Every table of the store is that of a store built from the objects; `besides` names others that are not."""
    ours, theirs = tables(live.store), tables(fresh.store)
    for path in sorted(ours.keys() | theirs.keys()):
        name = (ours.get(path) or theirs[path]).name
        if name in NOT_FROM_OBJECTS or name in besides or "_followers" in path:
            continue
        have, want = (side[path].content if path in side else None for side in (ours, theirs))
        have, want = _plain(have), _plain(want)
        assert have == want, f"{path} has {_beside(have, want)}, and the objects say {_beside(want, have)}"


def _plain(content: Any) -> Any:
    """The content without an order of arrival; objects of ours have tables of their own in it."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    return content if not type(content).__module__.startswith("dovetail") or _is_value(content) else type(content)


def _beside(one: Any, other: Any) -> Any:
    """The part in which they differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    return {key: _beside(value, other.get(key)) for key, value in one.items() if other.get(key) != value}


def _is_value(content: Any) -> bool:
    return type(content).__eq__ is not object.__eq__


def check_observations(live: State, fresh: State, *, world: World) -> None:
    """Each job looks the same to both."""
    for key in fresh.store.jobs:
        ours, theirs = (state.observe(key, now=world.now()) for state in (live, fresh))
        for field in fields(theirs) if theirs is not None else ():  # type: ignore[arg-type]
            if field.name not in _OF_TIME:
                have, want = getattr(ours, field.name), getattr(theirs, field.name)
                if field.name in {"pods", "tasks"}:
                    have, want = ({each.metadata.uid: each for each in objects} for objects in (have, want))
                assert have == want, f"{key}: {field.name} is {have}, and the objects say {want}"


def check_cycles(live: State, fresh: State, *, world: World) -> None:
    """A cycle with all its caches decides on what one without any decides on, and says the same."""
    caches = world.operator.controller.changes._scheduling._caches
    ours, theirs = survey(live, now=world.now(), caches=caches), survey(fresh, now=world.now())
    for name in ("waiting", "on_the_way", "leaving"):
        have, want = ({each.key: each for each in getattr(cycle, name)} for cycle in (ours, theirs))
        assert have == want, f"the cycle's {name} are {have}, and those of the objects {want}"
    assert (ours.keys, ours.going) == (theirs.keys, theirs.going)
    known, position = live.decisions.verdicts, 0
    for verdict in decide(fresh, cycle=theirs):
        before = known.get(verdict.key)
        assert before is not None, f"{theirs.keys[verdict.key]} waits, and no cycle has seen it"
        assert _kind(before) == _kind(verdict), (
            f"{theirs.keys[verdict.key]}: {before}, and a new operator says {verdict}"
        )
        if isinstance(verdict, Waits) and verdict.queue is not None:
            position += 1
            assert verdict.queue.position == position
    assert set(theirs.orders) == {uid for uid, notice in live.decisions.notices.items() if notice.by != "drain"}


def _kind(verdict: Verdict) -> object:
    return isinstance(verdict, Admitted) or verdict.reason


def check_nothing_is_due(fresh: State, *, world: World) -> None:
    """An operator that begins now has nothing to do: no event was missed."""
    for key, job in fresh.store.jobs.items():
        seen = fresh.observe(key, now=world.now())
        if seen is None or seen.number is None:
            assert job.spec.managed_by is not None or job.metadata.deletion_timestamp, f"{key} has no number"
            continue
        outcome = reconcile(seen)
        assert not outcome.actions, f"{key}: {outcome.actions} are due"
        assert not outcome.notify, f"{key}: {outcome.notify} are due"
        status = outcome.status
        have, want = ((each.phase, each.placement, each.dependencies) for each in (job.status, status))
        assert have == want, f"{key} says {have}, and should say {want}: {status.message}"
        if status.phase != "Preempted":
            # That of a job whose pods end may wait.
            assert job.status.reason == status.reason, f"{key} says {job.status.reason}, and should say {status.reason}"


def check_empty(world: World) -> None:
    """Nothing is kept of objects that are deleted."""
    for path, table in tables(world.operator.controller).items():
        if table.name not in NOT_EMPTY:
            assert not table.content, f"{path} still has {table.content}"
    ledger = world.operator.state.store.view.ledger
    assert not ledger.claims()
    assert not ledger.nodes()


def unknown_names(world: World) -> Iterator[str]:
    """Names in the lists above that no table has."""
    there = {table.name for table in tables(world.operator.controller).values()}
    yield from sorted({*NOT_FROM_OBJECTS, *NOT_EMPTY} - there)


def check(world: World) -> None:
    """Everything above, of a world that has settled."""
    live = world.operator.state
    fresh = rebuilt(world.server, beside=live)
    check_tables(live, fresh)
    check_observations(live, fresh, world=world)
    check_nothing_is_due(fresh, world=world)
    check_cycles(live, fresh, world=world)
