"""What the queue makes of a job is kept as long as nothing has changed of which it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from dovetail_operator.queue.cycle import Cycle, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.state.candidate_cache import Candidacies
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import counted_jobs
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_state

# The caches of the queue over a state, from one cycle of a test to the next.
caches_of = lru_cache(maxsize=1)(caches_for)


def put(state: State, name: str = "train", *, version: int = 1, **spec: Any) -> GPUJob:
    job = make_job(name, status={"number": 1, "request": "1"}, meta={"resourceVersion": str(version)}, **spec)
    state.store.job_changed(job)
    return job


def look(state: State, job: GPUJob) -> Candidate:
    """The candidate as it is kept, which has to be as one that is made anew."""
    kept = caches_of(state).candidates.candidate(job, state=state, sites={}, workers=1)
    caches_of(state).candidates.forget_others()
    assert kept is not None
    assert kept == Candidacies().candidate(job, state=state, sites={}, workers=1)
    return kept


def quota(name: str = "q", **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def test_a_job_that_has_not_changed_is_the_same_candidate_and_its_nodes_are_named_each_time() -> None:
    state = make_state(a=2)
    job = put(state)
    first = look(state, job)
    sites: dict[str, list[str]] = {}
    assert caches_of(state).candidates.candidate(job, state=state, sites=sites, workers=1) is first
    assert sites == {first.site: ["a"]}


def test_other_workers_and_another_plan_make_another_candidate() -> None:
    state = make_state(a=2)
    job = put(state, workers=2)
    look(state, job)
    one = caches_of(state).candidates.candidate(job, state=state, sites={}, workers=2, nodes=("a", "a"))
    assert one is not None
    assert (one.workers, one.nodes) == (2, ("a", "a"))


def test_a_job_that_gets_the_first_number_is_another_candidate() -> None:
    state = make_state(a=2)
    job = make_job("train")
    state.store.job_changed(job)
    assert look(state, job).number == 0
    state.decisions.set_number(job.metadata.uid, number=1)
    assert look(state, job).number == 1


def test_an_edited_job_is_another_candidate() -> None:
    state = make_state(a=2)
    assert look(state, put(state)).priority == 10
    assert look(state, put(state, version=2, priority=7)).priority == 7


def test_the_way_in_which_a_job_was_let_go_is_its_own_and_no_other_is_left_once_it_is_at_work() -> None:
    state = make_state(a=2)
    job = put(state)
    asked = look(state, job).ask
    state.decisions.set_verdict(job.metadata.uid, verdict=Admitted(key=job.metadata.uid, ask=asked))
    look(state, job)
    state.store.child_changed(make_child(job))
    assert look(state, job).others == ()


def test_a_job_that_is_let_go_in_another_way_asks_in_that_way() -> None:
    state = make_state(a=2)
    job = put(state)
    first = look(state, job)
    (other,) = first.others
    state.decisions.set_verdict(job.metadata.uid, verdict=Admitted(key=job.metadata.uid, ask=other))
    let_go = look(state, job)
    assert (let_go.ask, let_go.others) == (other, (first.ask,))


def test_memory_that_was_learned_meanwhile_is_asked_for() -> None:
    state = make_state(a=2)
    shared: dict[str, Any] = {"gpu": "0.5", "memory": {"strategy": "Dynamic"}}
    job = make_job("train-2", meta={"generateName": "train-"}, **shared)
    state.store.job_changed(job)
    before = look(state, job).ask.gpu
    told = {"strategy": "Dynamic", "basis": "", "peakMiB": 5000}
    ended = {"phase": "Succeeded", "startTime": at(-900), "completionTime": at(-100), "memory": told}
    state.store.job_changed(make_job("train-1", status=ended, meta={"generateName": "train-"}, **shared))
    after = look(state, job).ask.gpu
    assert before is not None
    assert after is not None
    assert (before.memory_mib, after.memory_mib) == (None, 5500)


def teach(state: State, *numbers: int) -> None:
    """Jobs that took a quarter of their limit."""
    for number in numbers:
        ended = {"phase": "Succeeded", "request": "1", "startTime": at(0), "completionTime": at(250)}
        state.store.job_changed(make_job(f"old{number}", status=ended, gpu=1, activeDeadlineSeconds=1000))


def test_run_times_that_were_learned_meanwhile_are_expected() -> None:
    state = make_state(a=2)
    limited = put(state, activeDeadlineSeconds=2000)
    assert look(state, limited).likely_seconds is None
    teach(state, *range(10))
    assert look(state, limited).likely_seconds == 500


def test_what_is_learned_changes_nothing_of_a_job_without_a_limit() -> None:
    state = make_state(a=2)
    free = put(state)
    kept = look(state, free)
    teach(state, *range(10))
    assert look(state, free) is kept


def test_pools_that_are_allowed_meanwhile_are_where_it_may_go() -> None:
    state = make_state(a=2)
    job = put(state)
    anywhere = look(state, job).site
    state.store.quotas.update(quota(namespaces=["team"], pools=["fast"]))
    assert look(state, job).site != anywhere
    state.store.quotas.drop("q")
    assert look(state, job).site == anywhere


def test_the_share_that_was_used_is_as_it_was_last_reckoned() -> None:
    state = make_state(a=2)
    job = put(state)
    assert look(state, job).share == 1.0
    state.store.quotas.update(quota(namespaces=["team"], shares=1))
    assert look(state, job).share == state.store.quotas.level_of(job) != 1.0


def test_a_request_that_cannot_be_read_is_no_candidate_until_it_can() -> None:
    state = make_state(a=2)
    wrong = put(state, gpu="8X,0.5")
    assert caches_of(state).candidates.candidate(wrong, state=state, sites={}, workers=1) is None
    right = make_job("train", meta={"resourceVersion": "2", "generation": 2}, gpu=1)
    state.store.job_changed(right)
    assert look(state, right).gpus == 1


def test_nothing_is_kept_of_a_job_that_the_queue_does_not_look_at_any_more() -> None:
    state = make_state(a=2)
    job = put(state)
    first = look(state, job)
    caches_of(state).candidates.forget_others()
    again = caches_of(state).candidates.candidate(job, state=state, sites={}, workers=1)
    assert again == first
    assert again is not first


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to a job that waits, and what it is of which it is made then."""

    says: str
    happens: Callable[[State, GPUJob], object]
    waits: bool = True
    seconds: float = 0
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    numbered: bool = True


def edit(job: GPUJob, *, meta: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    """The job as it comes after an edit."""
    metadata = {"resourceVersion": "11", "generation": 2, **(meta or {})}
    return make_job(job.metadata.name, meta=metadata, **spec)


def reckon(state: State, _job: GPUJob) -> None:
    """Another job of its user has used what there was of late."""
    used = {"startTime": at(-3600), "completionTime": at(-60), "phase": "Succeeded"}
    state.store.job_changed(make_job("used", status=used))
    state.store.quotas.compute_statuses(counted_jobs(state, waiting=()), now=NOW)


def teach_memory(state: State, _job: GPUJob) -> None:
    told = {"strategy": "Dynamic", "basis": "", "peakMiB": 5000}
    ended = {"phase": "Succeeded", "startTime": at(-900), "completionTime": at(-100), "memory": told}
    shared: dict[str, Any] = {"gpu": "0.5", "memory": {"strategy": "Dynamic"}}
    state.store.job_changed(make_job("x-1", status=ended, meta={"generateName": "x"}, **shared))


BAD_END = {"number": 1, "startTime": at(-60), "endTime": at(-30), "reason": "Failed", "message": "", "counted": True}
CHANGES = (
    Change(says="it is edited", happens=lambda state, job: state.store.job_changed(edit(job, gpu=2))),
    Change(says="it is held", happens=lambda state, job: state.store.job_changed(edit(job, suspend=True)), waits=False),
    Change(
        says="it is over",
        happens=lambda state, job: state.store.job_changed(
            msgspec.structs.replace(edit(job), status=msgspec.structs.replace(job.status, phase="Cancelled"))
        ),
        waits=False,
    ),
    Change(
        says="it is another user's",
        happens=lambda state, job: (
            state.store.job_changed(edit(job, meta={"annotations": {"dovetail.dev/user": "ada"}})),
            state.store.quotas.update(quota(users=["ada"], pools=["fast"])),
        ),
    ),
    Change(
        says="a batch Job of its own is there",
        happens=lambda state, job: state.store.child_changed(make_child(job)),
        waits=False,
    ),
    Change(
        says="it is let go",
        happens=lambda state, job: state.decisions.set_verdict(job.metadata.uid, verdict=LET_GO),
        waits=False,
    ),
    Change(
        says="it is refused",
        happens=lambda state, job: state.decisions.refuse(job, obstacle=Obstacle(message="")),
        waits=False,
    ),
    Change(
        says="our own code fails on it",
        happens=lambda state, job: state.decisions.record_failure(job, error=ValueError()),
        waits=False,
    ),
    Change(
        says="it has another number",
        happens=lambda state, job: state.decisions.set_number(job.metadata.uid, number=9),
        numbered=False,
    ),
    Change(says="it has no number", happens=lambda state, job: state.decisions.drop(job), waits=False, numbered=False),
    Change(says="it is gone", happens=lambda state, job: state.store.job_deleted("team/x", uid="uid-x"), waits=False),
    Change(
        says="its newest version cannot be read",
        happens=lambda state, job: state.store.job_unreadable(job.metadata, message="odd"),
        waits=False,
    ),
    Change(
        says="a quota keeps it to a pool", happens=lambda state, _: state.store.quotas.update(quota(pools=["fast"]))
    ),
    Change(
        says="a quota lowers the highest priority",
        happens=lambda state, _: state.store.quotas.update(quota(maxPriority=5)),
    ),
    Change(
        says="a quota forbids preemption",
        happens=lambda state, _: state.store.quotas.update(quota(namespaces=["team"], preemptionPolicy="Never")),
    ),
    Change(
        says="a quota of its project keeps it to a pool once it is in the project",
        happens=lambda state, job: (
            state.store.quotas.update(quota(projects=["p"], pools=["fast"])),
            state.store.job_changed(edit(job, meta={"labels": {"dovetail.dev/project": "p"}})),
        ),
    ),
    Change(says="what others used is reckoned", happens=reckon),
    Change(
        says="more is known of run times",
        happens=lambda state, _: teach(state, *range(10)),
        spec={"activeDeadlineSeconds": 2000},
    ),
    Change(
        says="more is known of its memory",
        happens=teach_memory,
        spec={"gpu": "0.5", "memory": {"strategy": "Dynamic"}},
    ),
    Change(
        says="the job is gone that it has waited for",
        happens=lambda state, _: state.store.job_deleted("team/first", uid="uid-first"),
        waits=False,
        spec={"dependencies": [{"name": "first"}]},
    ),
    Change(
        says="the clock is set back before its time",
        happens=lambda *_: None,
        waits=False,
        seconds=-60,
        spec={"beginTime": at(-30)},
    ),
    Change(
        says="the clock is set back to its last attempt",
        happens=lambda *_: None,
        waits=False,
        seconds=-30,
        status={"attempt": 2, "retries": 1, "attempts": [BAD_END]},
    ),
)


def look_at_all(state: State, *, seconds: float = 0) -> Cycle:
    """A look of the queue, which has to be as one by an operator that has just begun."""
    now = NOW + timedelta(seconds=seconds)
    found = survey(state, now=now, caches=caches_of(state))
    assert survey(state, now=now) == found
    return found


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.says)
def test_a_job_that_goes_on_waiting_is_looked_at_again_when(change: Change) -> None:
    state = make_state(a=2)
    state.store.quotas.update(quota("shared", per="User", shares=1))
    status = {"number": 1} if change.numbered else {}
    job = make_job(status=status | (change.status or {}), **change.spec or {})
    over = {"phase": "Succeeded", "startTime": at(-9), "completionTime": at(-1)}
    state.store.job_changed(make_job("first", status=over))
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=1)
    look_at_all(state)
    (before,) = look_at_all(state).waiting
    change.happens(state, job)
    after = look_at_all(state, seconds=change.seconds)
    assert [each.name for each in after.waiting] == (["team/x"] if change.waits else [])
    assert before not in after.waiting


SPECS: tuple[dict[str, Any], ...] = (
    {"gpu": 1}, {"gpu": 1, "priority": 30}, {"gpu": "0.5"}, {"gpu": 1, "workers": 2},
    {"gpu": 1, "workers": 3, "minWorkers": 1}, {"gpu": 1, "activeDeadlineSeconds": 600},
    {"gpu": 1, "maximumExecutionTimeSeconds": 900}, {"gpu": 1, "onNoGPU": "RunOnCPU"},
    {"gpu": "0.5", "memory": {"strategy": "Dynamic"}}, {"gpu": 1, "beginTime": at(60)}, {"gpu": 1, "pool": "fast"},
    {"gpu": 1, "dependencies": [{"name": "other"}]}, {"gpu": 1, "preemptible": False},
)  # fmt: skip
METAS: tuple[dict[str, Any], ...] = (
    {}, {"annotations": {"dovetail.dev/user": "ada"}}, {"labels": {"dovetail.dev/project": "p"}},
    {"namespace": "other"},
)  # fmt: skip
STATUSES: tuple[dict[str, Any], ...] = (
    {}, {"attempt": 2, "retries": 1, "attempts": [BAD_END]}, {"earlierRunSeconds": 60},
    {"memory": {"strategy": "Dynamic", "basis": ""}},
)  # fmt: skip


def test_a_job_with_the_spec_of_another_is_the_candidate_that_it_is_by_itself() -> None:
    state = make_state(a=2)
    state.store.quotas.update(quota("low", projects=["p"], maxPriority=5, shares=1))
    state.store.quotas.update(quota("fast", users=["ada"], pools=["fast"]))
    jobs = []
    for number in range(3 * len(SPECS) * len(METAS) * len(STATUSES)):
        spec, meta, status = (
            values[number // step % len(values)]
            for values, step in ((SPECS, 1), (METAS, len(SPECS)), (STATUSES, len(SPECS) * len(METAS)))
        )
        # The name tells runs of the same work apart, and their run times are learned by it.
        job = make_job(f"x-{number}", status={"number": number + 1, **status}, meta=meta, **spec)
        state.store.job_changed(job)
        jobs.append(job)
    teach(state, *range(10))
    caches = caches_for(state).candidates
    for job in jobs:
        alone = Candidacies().candidate(job, state=state, sites={}, workers=job.spec.workers, waits=True)
        found = caches.candidate(job, state=state, sites={}, workers=job.spec.workers, waits=True)
        assert found == alone
        assert found is not None
        assert (found.kind, found.rank, found.shape) == (alone.kind, alone.rank, alone.shape)
    assert len(caches._like) < len(jobs) / 3, "most have it from another"


def test_of_a_thousand_that_wait_none_is_visited_but_the_one_that_has_changed() -> None:
    state = make_state(a=2)
    for number in range(1000):
        put(state, f"x-{number}")
    look_at_all(state)
    candidates = caches_of(state).candidates
    assert candidates.moving(state) == []
    put(state, "x-7", version=2)
    assert candidates.moving(state) == ["team/x-7"]


def test_a_job_that_goes_on_waiting_is_the_same_candidate_and_its_nodes_are_named_each_time() -> None:
    state = make_state(a=2)
    put(state)
    first, second = (survey(state, now=NOW, caches=caches_of(state)) for _ in range(2))
    assert second == first
    assert second.waiting[0] is first.waiting[0]
