"""Jobs that may have fewer workers than they ask for: what is told of how many they have, and why no more."""

import msgspec

from dovetail.queue.verdicts import Admitted
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import NOW, at, condition, make_child, make_pod, make_state
from tests.operator_.job.test_plan import elastic, look
from tests.operator_.queue.test_quotas import make_quota


def test_an_elastic_job_that_its_quota_keeps_small_says_that_it_is_the_quota() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota("vision", limit={"gpus": 4}))
    job = elastic(workers=5, least=1)
    state.store.job_changed(job)
    look(state)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    started = reconcile(seen).status
    assert started.elastic is not None
    assert (started.elastic.workers, started.elastic.limit) == (2, "GPUQuota vision")
    metadata = msgspec.structs.replace(job.metadata, resource_version="11")
    state.store.job_changed(msgspec.structs.replace(job, status=started, metadata=metadata))
    state.store.child_changed(make_child(job, completions=2, parallelism=2))
    state.decisions.keep_verdicts(())
    for worker in range(2):
        state.store.pod_event("ADDED", make_pod(worker, node="a", created=-worker))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    status = reconcile(seen).status
    assert status.message.startswith("Runs with 2 of 5 workers, as many as GPUQuota vision left it")
    assert status.elastic == started.elastic


def test_an_elastic_job_that_room_keeps_smaller_than_its_quota_does_not_blame_the_quota() -> None:
    state = make_state(a=4)
    state.store.quotas.update(make_quota("vision", limit={"gpus": 8}))
    state.store.job_changed(elastic(workers=5, least=1))
    found = look(state)["uid-x"]
    assert isinstance(found, Admitted)
    assert (len(found.claims), found.limit) == (2, "")


def test_what_the_workers_of_a_run_used_is_added_up_when_it_is_over() -> None:
    state = make_state(a=8)
    status = {
        "startTime": at(-100),
        "earlierRunSeconds": 40,
        "elastic": {"workers": 3, "requested": 5, "earlierWorkerSeconds": 80},
    }
    job = elastic(workers=5, least=2, status=status)
    state.store.job_changed(job)
    rest = {"startTime": at(-100), "conditions": [condition("Suspended", seconds=-50)]}
    state.store.child_changed(make_child(job, suspend=True, status=rest, completions=3, parallelism=3))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    found = reconcile(seen).status
    assert found.earlier_run_seconds == 90
    assert found.elastic is not None
    assert (found.elastic.workers, found.elastic.earlier_worker_seconds) == (3, 80 + 3 * 50)
