"""What the queue makes of a job is kept as long as nothing has changed of which it is made."""

from typing import Any

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from dovetail_operator.candidacies import Candidacies
from dovetail_operator.state import State
from tests.operator_.builders import at, make_child, make_job, make_state


def put(state: State, name: str = "train", *, version: int = 1, **spec: Any) -> GPUJob:
    job = make_job(name, status={"number": 1, "request": "1"}, meta={"resourceVersion": str(version)}, **spec)
    state.put_job(job)
    return job


def look(state: State, job: GPUJob) -> Candidate:
    """The candidate as it is kept, which has to be as one that is made anew."""
    kept = state.candidacies.of(job, state=state, sites={}, workers=1)
    state.candidacies.forget_others()
    assert kept is not None
    assert kept == Candidacies().of(job, state=state, sites={}, workers=1)
    return kept


def quota(**spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, GPUQuota)


def test_a_job_that_has_not_changed_is_the_same_candidate_and_its_nodes_are_named_each_time() -> None:
    state = make_state(a=2)
    job = put(state)
    first = look(state, job)
    sites: dict[str, list[str]] = {}
    assert state.candidacies.of(job, state=state, sites=sites, workers=1) is first
    assert sites == {first.site: ["a"]}


def test_other_workers_and_another_plan_make_another_candidate() -> None:
    state = make_state(a=2)
    job = put(state, workers=2)
    look(state, job)
    one = state.candidacies.of(job, state=state, sites={}, workers=2, nodes=("a", "a"))
    assert one is not None
    assert (one.workers, one.nodes) == (2, ("a", "a"))


def test_an_edited_job_is_another_candidate() -> None:
    state = make_state(a=2)
    assert look(state, put(state)).priority == 10
    assert look(state, put(state, version=2, priority=7)).priority == 7


def test_the_way_in_which_a_job_was_let_go_is_its_own_and_no_other_is_left_once_it_is_at_work() -> None:
    state = make_state(a=2)
    job = put(state)
    asked = look(state, job).ask
    state.verdicts[job.metadata.uid] = Admitted(key=job.metadata.uid, ask=asked)
    look(state, job)
    state.put_child(make_child(job))
    assert look(state, job).others == ()


def test_memory_that_was_learned_meanwhile_is_asked_for() -> None:
    state = make_state(a=2)
    shared: dict[str, Any] = {"gpu": "0.5", "memory": {"strategy": "Dynamic"}}
    job = make_job("train-2", meta={"generateName": "train-"}, **shared)
    state.put_job(job)
    before = look(state, job).ask.gpu
    told = {"strategy": "Dynamic", "basis": "", "peakMiB": 5000}
    ended = {"phase": "Succeeded", "startTime": at(-900), "completionTime": at(-100), "memory": told}
    state.put_job(make_job("train-1", status=ended, meta={"generateName": "train-"}, **shared))
    after = look(state, job).ask.gpu
    assert before is not None
    assert after is not None
    assert (before.memory_mib, after.memory_mib) == (None, 5500)


def teach(state: State, *numbers: int) -> None:
    """Jobs that took a quarter of their limit."""
    for number in numbers:
        ended = {"phase": "Succeeded", "request": "1", "startTime": at(0), "completionTime": at(250)}
        state.put_job(make_job(f"old{number}", status=ended, gpu=1, activeDeadlineSeconds=1000))


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
    state.quotas.put(quota(namespaces=["team"], pools=["fast"]))
    assert look(state, job).site != anywhere
    state.quotas.drop("q")
    assert look(state, job).site == anywhere


def test_the_share_that_was_used_is_as_it_was_last_reckoned() -> None:
    state = make_state(a=2)
    job = put(state)
    assert look(state, job).share == 1.0
    state.quotas.put(quota(namespaces=["team"], shares=1))
    assert look(state, job).share == state.quotas.level_of(job) != 1.0


def test_a_request_that_cannot_be_read_is_no_candidate_until_it_can() -> None:
    state = make_state(a=2)
    wrong = put(state, gpu="8X,0.5")
    assert state.candidacies.of(wrong, state=state, sites={}, workers=1) is None
    right = make_job("train", meta={"resourceVersion": "2", "generation": 2}, gpu=1)
    state.put_job(right)
    assert look(state, right).gpus == 1


def test_nothing_is_kept_of_a_job_that_the_queue_does_not_look_at_any_more() -> None:
    state = make_state(a=2)
    job = put(state)
    first = look(state, job)
    state.candidacies.forget_others()
    again = state.candidacies.of(job, state=state, sites={}, workers=1)
    assert again == first
    assert again is not first
