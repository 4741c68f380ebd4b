"""GPUQuotas over the operator's state: what counts, what is noted, and that a restart changes nothing."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaUse
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.queue.cycle import decide, running_jobs, survey
from dovetail_operator.queue.quota_status import is_news
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import children_of_jobs, counted_jobs, departed
from tests.operator_.builders import NOW, at, make_child, make_job, make_pod, make_state

HOUR = 3600.0


def make_quota(name: str = "q", *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status or {}}, GPUQuota)


def add(state: State, job: GPUJob, *, runs: bool = False) -> None:
    state.store.job_changed(job)
    state.decisions.set_number(job.metadata.uid, number=1)
    if runs:
        uid = f"child-{job.metadata.name}"
        labels = {"dovetail.dev/job": job.metadata.name}
        state.store.child_changed(make_child(job, uid=uid))
        meta = {"uid": f"pod-{job.metadata.name}", "labels": labels}
        state.store.pod_event("ADDED", make_pod(devices=1, node="a", owner=uid, started=-HOUR, meta=meta))


def verdicts(state: State) -> dict[str, Verdict]:
    cycle = survey(state, now=NOW)
    return {verdict.key.removeprefix("uid-"): verdict for verdict in decide(state, cycle=cycle)}


def plain(name: str = "notebook", *, devices: int = 1, **meta: Any) -> Pod:
    return make_pod(devices=devices, node="a", started=-HOUR, meta={"uid": f"pod-{name}", "labels": {}} | meta)


def test_jobs_that_run_and_pods_that_are_no_jobs_count_together() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(namespaces=["team"], limit={"gpus": 3}))
    add(state, make_job("runs", gpu=1, status={"phase": "Running", "startTime": at(-HOUR)}), runs=True)
    state.store.pod_event("ADDED", plain())
    add(state, make_job("fits", gpu=1))
    add(state, make_job("large", gpu=2, meta={"creationTimestamp": at(-200)}))
    found = verdicts(state)
    assert isinstance(found["fits"], Admitted)
    large = found["large"]
    assert isinstance(large, Waits)
    assert large.message == "Namespace team may run 3 GPUs, 2 run, this job needs 2 (GPUQuota q)"


def test_an_elastic_job_starts_with_as_many_workers_as_its_limits_leave() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(namespaces=["team"], limit={"gpus": 5}))
    state.store.pod_event("ADDED", plain())
    add(state, make_job("elastic", gpu=1, workers=6, minWorkers=2))
    add(state, make_job("next", gpu=1, meta={"creationTimestamp": at(-100)}))
    found = verdicts(state)
    elastic = found["elastic"]
    assert isinstance(elastic, Admitted)
    assert len(elastic.claims) == 4
    # What it was let go with counts from then on, and not what it asked for.
    state.decisions.set_verdict("uid-elastic", verdict=elastic)
    assert sum(each.milli for each in counted_jobs(state, waiting={"uid-elastic"})) == 4000
    told = found["next"]
    assert isinstance(told, Waits)
    assert told.message == "Namespace team may run 5 GPUs, 5 run, this job needs 1 (GPUQuota q)"


def test_an_elastic_job_is_told_what_its_fewest_workers_need() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(namespaces=["team"], limit={"gpus": 2}))
    state.store.pod_event("ADDED", plain())
    add(state, make_job("elastic", gpu=1, workers=6, minWorkers=2))
    add(state, make_job("large", gpu=1, workers=6, minWorkers=3))
    found = [verdict for verdict in verdicts(state).values() if isinstance(verdict, Waits)]
    assert [each.message for each in found] == [
        "Namespace team may run 2 GPUs, 1 run, this job needs at least 2 (GPUQuota q)",
        "Namespace team may run 2 GPUs, 1 run, this job would never fit, it needs at least 3 (GPUQuota q)",
    ]


def test_a_pod_that_merely_says_that_it_is_a_jobs_counts() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"gpus": 1}))
    state.store.pod_event("ADDED", plain(labels={"dovetail.dev/job": "x"}))
    add(state, make_job("x"))
    assert isinstance(verdicts(state)["x"], Waits)


@pytest.mark.parametrize("gone", ["deleted", "ended"])
def test_a_pod_that_is_over_counts_no_more(gone: str) -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"gpus": 1}))
    state.store.pod_event("ADDED", plain())
    add(state, make_job("x", gpu=1))
    assert isinstance(verdicts(state)["x"], Waits)
    ended = make_pod(phase="Succeeded", devices=1, node="a", meta={"uid": "pod-notebook", "labels": {}})
    state.store.pod_event("DELETED" if gone == "deleted" else "MODIFIED", plain() if gone == "deleted" else ended)
    assert isinstance(verdicts(state)["x"], Admitted)


def test_a_job_that_was_let_go_counts_before_there_is_a_batch_job() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"runningJobs": 1}))
    add(state, make_job("first"))
    add(state, make_job("second", meta={"creationTimestamp": at(-50)}))
    state.decisions.set_verdict("uid-first", verdict=Admitted(key="uid-first"))
    assert isinstance(verdicts(state)["second"], Waits)


def test_a_job_that_has_ended_takes_nothing_although_its_use_is_not_noted_yet() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"runningJobs": 1}, shares=1, status={"asOf": at(-HOUR)}))
    ended = {"phase": "Succeeded", "startTime": at(-20), "completionTime": at(-10)}
    add(state, make_job("ended", status=ended))
    add(state, make_job("x"))
    assert [each.uid for each in counted_jobs(state, waiting={"uid-x"})] == ["uid-ended", "uid-x"]
    assert isinstance(verdicts(state)["x"], Admitted)


def test_a_quota_that_is_gone_binds_nobody() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"gpus": 0}))
    add(state, make_job("x"))
    assert isinstance(verdicts(state)["x"], Waits)
    state.store.quotas.drop("q")
    assert isinstance(verdicts(state)["x"], Admitted)


def test_a_quota_binds_as_it_says_by_now() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"gpus": 0}))
    add(state, make_job("x"))
    assert isinstance(verdicts(state)["x"], Waits)
    state.store.quotas.update(make_quota(limit={"gpus": 8}))
    assert isinstance(verdicts(state)["x"], Admitted)


def test_a_job_is_told_which_pool_it_may_not_use() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(pools=["big"]))
    add(state, make_job("x", pool="small"))
    told = verdicts(state)["x"]
    assert isinstance(told, Waits)
    assert (told.reason, told.message) == ("Quota", "Asks for pool small, GPUQuota q allows big alone")


def test_a_job_whose_pool_has_no_nodes_is_told_that_it_is_the_pool() -> None:
    state = make_state(a=8)
    add(state, make_job("x", pool="small"))
    told = verdicts(state)["x"]
    assert isinstance(told, Waits)
    assert told.reason == "ExceedsCapacity"
    assert told.message.endswith("(in pool small)")


def test_a_job_that_chooses_its_nodes_is_told_that_it_is_those_that_lack() -> None:
    state = make_state(a=8)
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}], "nodeSelector": {"disk": "fast"}}}
    add(state, make_job("x", template=template))
    told = verdicts(state)["x"]
    assert isinstance(told, Waits)
    assert told.reason == "ExceedsCapacity"
    assert told.message.endswith("(of the nodes that its nodeSelector or affinity allows)")


def reckoned(quotas: Quotas, state: State, *, seconds: float = 0) -> GPUQuotaStatus:
    now = NOW + timedelta(seconds=seconds)
    return quotas.compute_statuses(counted_jobs(state, waiting=()), now=now, children=children_of_jobs(state))["q"]


def test_the_status_counts_by_whom() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(per="User", limit={"gpus": 4}))
    annotations = {"annotations": {"dovetail.dev/user": "ada"}}
    job = make_job("runs", gpu=1, meta=annotations, status={"phase": "Running", "startTime": at(-HOUR)})
    add(state, job, runs=True)
    state.store.pod_event("ADDED", plain())
    status = reckoned(state.store.quotas, state)
    assert (status.gpus, status.running_jobs) == (2, 1)
    assert status.uses == [QuotaUse(who="ada", gpus=1.0, running_jobs=1)]


def test_what_was_used_is_the_same_after_a_restart() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(namespaces=["team"], shares=1))
    add(state, make_job("runs", gpu=1, status={"phase": "Running", "startTime": at(-HOUR)}), runs=True)
    first = reckoned(state.store.quotas, state)
    assert first.uses[0].gpu_seconds == pytest.approx(HOUR, rel=1e-2)
    later = reckoned(state.store.quotas, state, seconds=600)
    again = Quotas()
    again.update(make_quota(namespaces=["team"], shares=1, status=values_of(first)))
    assert reckoned(again, state, seconds=600).uses[0].gpu_seconds == pytest.approx(later.uses[0].gpu_seconds, abs=1e-2)


def test_a_job_that_ended_is_counted_until_that_is_noted() -> None:
    state = make_state(a=8)
    status = {"phase": "Succeeded", "startTime": at(-HOUR), "completionTime": at(-100)}
    add(state, make_job("done", gpu=2, status=status))
    state.store.quotas.update(make_quota(shares=1))
    assert reckoned(state.store.quotas, state).uses[0].gpu_seconds == pytest.approx(2 * (HOUR - 100), rel=1e-2)
    state.store.quotas.update(make_quota(shares=1, status={"asOf": at(0), "uses": [{"who": "", "gpuSeconds": 5}]}))
    assert reckoned(state.store.quotas, state).uses[0].gpu_seconds == pytest.approx(5)


def test_a_job_that_is_deleted_while_it_runs_is_counted() -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(shares=1))
    job = make_job("runs", gpu=1, status={"phase": "Running", "startTime": at(-HOUR)})
    used = departed(state, job=job, now=NOW)
    assert used is not None
    state.store.quotas.departed(used)
    assert reckoned(state.store.quotas, state).uses[0].gpu_seconds == pytest.approx(HOUR, rel=1e-2)


def test_who_has_used_less_goes_first_among_equals() -> None:
    state = make_state(a=1)
    state.store.quotas.update(
        make_quota("greedy", users=["ada"], shares=1, status={"asOf": at(0), "uses": [{"who": "", "gpuSeconds": 1e6}]})
    )
    state.store.quotas.update(make_quota("modest", users=["bob"], shares=1))
    for name, user, created in (("old", "ada", -200), ("young", "bob", -10)):
        meta = {"annotations": {"dovetail.dev/user": user}, "creationTimestamp": at(created)}
        add(state, make_job(name, meta=meta))
    state.store.quotas.compute_statuses(counted_jobs(state, waiting=("uid-old", "uid-young")), now=NOW)
    found = verdicts(state)
    assert isinstance(found["young"], Admitted)
    assert isinstance(found["old"], Waits)


@pytest.mark.parametrize(
    ("after", "seconds", "news"),
    [
        (GPUQuotaStatus(gpus=1, as_of=at(1)), 1, True),
        (GPUQuotaStatus(as_of=at(30), uses=[QuotaUse(who="", gpu_seconds=30)]), 30, True),
        (GPUQuotaStatus(as_of=at(30)), 30, False),
        (GPUQuotaStatus(as_of=at(90)), 90, False),
    ],
    ids=["a count", "somebody new", "time alone", "time alone, for long"],
)
def test_when_a_status_is_written(after: GPUQuotaStatus, seconds: float, news: bool) -> None:
    before = GPUQuotaStatus(as_of=at(0))
    assert is_news(before, after=after, now=NOW + timedelta(seconds=seconds)) == news


@pytest.mark.parametrize(("seconds", "news"), [(59, False), (60, True)])
def test_a_use_that_only_grows_is_noted_once_a_minute(seconds: float, news: bool) -> None:
    before = GPUQuotaStatus(as_of=at(0), uses=[QuotaUse(who="", gpus=1, gpu_seconds=10)])
    after = GPUQuotaStatus(as_of=at(seconds), uses=[QuotaUse(who="", gpus=1, gpu_seconds=10 + seconds)])
    assert is_news(before, after=after, now=NOW + timedelta(seconds=seconds)) == news


def test_a_job_beyond_the_priority_that_its_quota_allows_waits_and_says_so_and_keeps_nobody_else_back() -> None:
    state = make_state(a=1)
    state.store.quotas.update(make_quota(namespaces=["team"], maxPriority=50))
    add(state, make_job("above", gpu=1, priority=51, meta={"creationTimestamp": at(-100)}))
    add(state, make_job("within", gpu=1, priority=50))
    found = verdicts(state)
    assert isinstance(found["within"], Admitted)
    above = found["above"]
    assert isinstance(above, Waits)
    assert (above.reason, above.message) == ("Quota", "spec.priority is 51: GPUQuota q allows 0 to 50")
    state.store.quotas.update(make_quota(namespaces=["team"], maxPriority=51))
    assert isinstance(verdicts(state)["above"], Admitted)


def test_a_priority_that_is_raised_later_counts_no_more_than_the_bound() -> None:
    state = make_state(a=1)
    state.preemption = Rules(gap=10)
    state.store.quotas.update(make_quota(namespaces=["team"], maxPriority=50))
    running = {"phase": "Running", "startTime": at(-HOUR)}
    add(state, make_job("runs", gpu=1, priority=255, status=running), runs=True)
    assert [each.priority for each in running_jobs(state, now=NOW)] == [50]


@pytest.mark.parametrize(("may", "leave"), [(True, {"uid-runs"}), (False, set())])
def test_a_quota_says_who_may_take_the_place_of_others(may: bool, leave: set[str]) -> None:
    state = make_state(a=1)
    state.preemption = Rules(gap=10, min_run_seconds=0)
    state.store.quotas.update(make_quota(users=["ada"], preemptionPolicy="PreemptLowerPriority" if may else "Never"))
    running = {"phase": "Running", "startTime": at(-HOUR)}
    add(state, make_job("runs", gpu=1, priority=1, status=running), runs=True)
    add(state, make_job("boss", gpu=1, priority=99, meta={"annotations": {"dovetail.dev/user": "ada"}}))
    cycle = survey(state, now=NOW)
    list(decide(state, cycle=cycle))
    assert set(cycle.orders) == leave


@pytest.mark.parametrize("meta", [{"labels": {}}, {"namespace": "elsewhere"}])
def test_a_pod_that_names_a_job_s_batch_job_as_its_owner_counts_as_any_other(meta: dict[str, Any]) -> None:
    state = make_state(a=8)
    state.store.quotas.update(make_quota(limit={"gpus": 2}))
    add(state, make_job("x", gpu=1, status={"phase": "Running", "startTime": at(-HOUR)}), runs=True)
    forged = {"uid": "pod-forged", "labels": {"dovetail.dev/job": "x"}} | meta
    state.store.pod_event("ADDED", make_pod(devices=1, node="a", owner="child-x", started=-HOUR, meta=forged))
    add(state, make_job("next", gpu=1))
    found = verdicts(state)["next"]
    assert isinstance(found, Waits)
    assert found.message == "GPUQuota q: all whom it binds may run 2 GPUs, 2 run, this job needs 1"
