"""Jobs above their promise: what they are told, and when they end for it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons.codes import MEMORY_OVER_PROMISE
from dovetail_operator.devices.memory_overuse import (
    CONDITION,
    Overuses,
    announcement_of,
    condition_of,
    ending,
    explained,
)
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.actions import DeleteJob
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.core.builders import make_gpunode
from tests.operator_.builders import NOW, condition, make_budget, make_child, make_job, make_pod, make_state, see

OVERUSE = Overuse(
    uid="pod-0", namespace="team", name="x-0", device="GPU-1", index=1, promised_mib=8192, used_mib=9000, since="then"
)
SENTENCE = "Pod x-0 uses 9,000 MiB of GPU 1 (GPU-1), but was promised 8,192 MiB"


RULES = EndingRules(ends=True)


def report(*overuses: Overuse) -> GPUNode:
    gpunode = make_gpunode("n1")
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, overuses=list(overuses)))


def test_an_overuse_is_news_when_it_comes_changes_and_goes() -> None:
    known = Overuses(RULES)
    more = msgspec.structs.replace(OVERUSE, used_mib=9999)
    reports = (report(), report(OVERUSE), report(OVERUSE), report(more), report())
    assert [known.changed(each) for each in reports] == [set(), {"pod-0"}, set(), {"pod-0"}, {"pod-0"}]


def test_the_job_of_such_a_pod_gets_dirty_and_sees_it() -> None:
    state = make_state(n1=2)
    job = make_job()
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    pod = make_pod(devices=1)
    state.store.pod_event("ADDED", pod)
    overuse = msgspec.structs.replace(OVERUSE, uid=pod.metadata.uid)
    assert "team/x" in state.store.gpunode_changed(report(overuse))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert seen.overuses == (overuse,)


def test_the_overuse_of_a_node_that_is_gone_counts_no_more() -> None:
    known = Overuses(RULES)
    pod = make_pod(devices=1)
    known.changed(report(msgspec.structs.replace(OVERUSE, uid=pod.metadata.uid)))
    assert known.held_by([pod])
    known.gone("n1")
    assert known.held_by([pod]) == ()


def test_a_report_ends_a_job_where_its_pod_shares_that_device_and_the_configuration_ends_any() -> None:
    alone, sharing = make_pod(devices=1), make_pod(devices=1, mode="Fractional")
    wanted = msgspec.structs.replace(OVERUSE, uid=sharing.metadata.uid, device="GPU-n1-0", ends=True, evict=True)
    ends = {
        (rules.ends, pod is sharing): [each.evict for each in known.held_by([pod])]
        for rules in (RULES, EndingRules())
        for pod in (sharing, alone)
        if (known := Overuses(rules)).changed(report(wanted))
    }
    assert ends == {(True, True): [True], (True, False): [False], (False, True): [False], (False, False): [False]}


def test_several_overuses_are_the_first_and_a_number() -> None:
    assert explained([OVERUSE]).message == SENTENCE
    assert explained([OVERUSE, OVERUSE, OVERUSE]).message.endswith("8,192 MiB, and 2 more")


def settled(*overuses: Overuse, job: GPUJob | None = None, budget: str = "") -> Outcome:
    job = job or make_job()
    seen = see(job, make_pod(devices=1, started=-10), child=make_child(job))
    return reconcile(replace(seen, overuses=overuses, refusing_budget=budget))


def test_a_running_job_above_its_promise_runs_on_and_says_so() -> None:
    result = settled(OVERUSE)
    found = find_condition(result.status.conditions, type=CONDITION)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("False", MEMORY_OVER_PROMISE.code, SENTENCE)
    assert result.status.phase == "Running"


def test_a_job_that_an_agent_wants_ended_fails_with_the_reason_and_its_pods_go() -> None:
    result = settled(msgspec.structs.replace(OVERUSE, ends=True, evict=True))
    assert (result.status.phase, result.status.reason) == ("Failed", MEMORY_OVER_PROMISE.code)
    assert result.status.message == f"Ended by memory_overuse: {SENTENCE}"
    assert result.actions == (DeleteJob(disrupts=True),)
    failed = find_condition(result.status.conditions, type="Failed")
    assert failed is not None
    assert failed.status == "True"


def test_a_job_whose_budget_lets_no_pod_end_runs_on_says_so_and_is_looked_at_again() -> None:
    result = settled(msgspec.structs.replace(OVERUSE, ends=True, evict=True), budget="web")
    assert (result.status.phase, result.actions) == ("Running", ())
    assert result.status.message == (
        "Goes on although memory_overuse would end it: PodDisruptionBudget web lets no more of its pods end now"
    )
    assert result.wake_at is not None


@pytest.mark.parametrize(("allowed", "refusing"), [(0, "web"), (1, "")])
def test_the_budgets_of_a_pod_that_is_to_end_are_seen(allowed: int, refusing: str) -> None:
    state, job = make_state(n1=2), make_job()
    state.store.overuses = Overuses(RULES)
    state.store.job_changed(job)
    state.store.child_changed(make_child(job))
    pod = make_pod(devices=1, mode="Fractional")
    state.store.pod_event("ADDED", pod)
    state.store.budget_event("ADDED", make_budget(allowed=allowed))
    for evict, said in ((False, ""), (True, refusing)):
        state.store.gpunode_changed(report(overuse(pod.metadata.uid, device="GPU-n1-0", ends=True, evict=evict)))
        seen = state.observe("team/x", now=NOW)
        assert seen is not None
        assert seen.refusing_budget == said


def test_an_event_is_posted_once_for_an_overuse() -> None:
    job = make_job()
    after = settled(OVERUSE).status
    news = announcement_of(job, status=after)
    assert news is not None
    assert (news.severity, news.reason, news.message) == ("Warning", MEMORY_OVER_PROMISE.code, SENTENCE)
    assert announcement_of(msgspec.structs.replace(job, status=after), status=after) is None
    assert announcement_of(job, status=job.status) is None


def test_a_job_that_keeps_to_its_promise_again_says_so() -> None:
    above = settled(OVERUSE).status
    job = msgspec.structs.replace(make_job(), status=above)
    after = settled(job=job).status
    found = find_condition(after.conditions, type=CONDITION)
    assert found is not None
    assert found.status == "True"


def overuse(uid: str = "pod-0", **changes: Any) -> Overuse:
    return msgspec.structs.replace(OVERUSE, uid=uid, **changes)


def test_each_device_of_a_pod_is_news_by_itself() -> None:
    known = Overuses(RULES)
    first, second = overuse(), overuse(device="GPU-2", index=2)
    reports = (report(first), report(first, second), report(second), report(overuse("pod-1")))
    assert [known.changed(each) for each in reports] == [{"pod-0"}, {"pod-0"}, {"pod-0"}, {"pod-0", "pod-1"}]


def test_a_job_has_the_overuses_of_its_unfinished_pods_by_name_and_device() -> None:
    known = Overuses(RULES)
    a, b, ended = make_pod(0), make_pod(1), make_pod(2, phase="Failed")
    known.changed(
        report(
            overuse(b.metadata.uid, name="x-1", index=0),
            overuse(a.metadata.uid, name="x-0", index=3, device="GPU-3"),
            overuse(a.metadata.uid, name="x-0", index=2, device="GPU-2"),
            overuse(ended.metadata.uid, name="x-2"),
            overuse("another"),
        )
    )
    found = known.held_by([b, ended, a, make_pod(3, node="n2")])
    assert [(each.name, each.index) for each in found] == [("x-0", 2), ("x-0", 3), ("x-1", 0)]


def test_only_overuses_that_end_a_pod_say_why_the_job_ends() -> None:
    assert ending([]) is ending([OVERUSE]) is None
    asked = overuse(name="x-1", evict=True)
    why = ending([OVERUSE, asked])
    assert why is not None
    assert why.message == f"Ended by memory_overuse: {explained([asked])}"


@pytest.mark.parametrize(
    ("overuses", "before", "finished", "status"),
    [
        pytest.param((OVERUSE,), None, False, "False", id="above its promise"),
        pytest.param((OVERUSE,), "True", True, "False", id="above its promise at its end"),
        pytest.param((), None, False, None, id="never above it"),
        pytest.param((), "False", False, "True", id="below it again"),
        pytest.param((), "False", True, "False", id="over while above it"),
    ],
)
def test_the_condition_is(overuses: tuple[Overuse, ...], before: Any, finished: bool, status: str | None) -> None:
    known = msgspec.convert(condition(CONDITION, status=before), Condition) if before else None
    found = condition_of(overuses, before=known, finished=finished, now="now")
    assert (found.status if found else None) == status


@pytest.mark.parametrize(("before", "posted"), [(None, True), ("True", True), ("False", False)])
def test_an_overuse_is_an_event_when_the_job_kept_to_its_promise_before(before: str | None, posted: bool) -> None:
    known = [] if before is None else [condition(CONDITION, status=before)]
    found = announcement_of(make_job(status={"conditions": known}), status=settled(OVERUSE).status)
    assert (found is not None) is posted
