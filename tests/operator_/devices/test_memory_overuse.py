"""Jobs above their promise: what they are told, and when they end for it."""

from dataclasses import replace

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.meta import find_condition
from dovetail_operator.devices.memory_overuse import CONDITION, REASON, Overuses, announcement_of, told
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.actions import DeleteJob
from dovetail_operator.lifecycle.reconcile import Outcome, reconcile
from tests.core.builders import make_gpunode
from tests.operator_.builders import NOW, make_child, make_job, make_pod, make_state, see

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
    assert known.of([pod])
    known.gone("n1")
    assert known.of([pod]) == ()


def test_a_report_ends_a_job_where_its_pod_shares_that_device_and_the_configuration_ends_any() -> None:
    alone, sharing = make_pod(devices=1), make_pod(devices=1, mode="Fractional")
    wanted = msgspec.structs.replace(OVERUSE, uid=sharing.metadata.uid, device="GPU-n1-0", ends=True, evict=True)
    ends = {
        (rules.ends, pod is sharing): [each.evict for each in known.of([pod])]
        for rules in (RULES, EndingRules())
        for pod in (sharing, alone)
        if (known := Overuses(rules)).changed(report(wanted))
    }
    assert ends == {(True, True): [True], (True, False): [False], (False, True): [False], (False, False): [False]}


def test_several_overuses_are_the_first_and_a_number() -> None:
    assert told([OVERUSE]) == SENTENCE
    assert told([OVERUSE, OVERUSE, OVERUSE]).endswith("8,192 MiB, and 2 more")


def settled(*overuses: Overuse, job: GPUJob | None = None) -> Outcome:
    job = job or make_job()
    seen = see(job, make_pod(devices=1, started=-10), child=make_child(job))
    return reconcile(replace(seen, overuses=overuses))


def test_a_running_job_above_its_promise_runs_on_and_says_so() -> None:
    result = settled(OVERUSE)
    condition = find_condition(result.status.conditions, CONDITION)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", REASON, SENTENCE)
    assert result.status.phase == "Running"


def test_a_job_that_an_agent_wants_ended_fails_with_the_reason_and_its_pods_go() -> None:
    result = settled(msgspec.structs.replace(OVERUSE, ends=True, evict=True))
    assert (result.status.phase, result.status.reason) == ("Failed", REASON)
    assert result.status.message == f"Ended by memory_overuse: {SENTENCE}"
    assert result.actions == (DeleteJob(),)
    failed = find_condition(result.status.conditions, "Failed")
    assert failed is not None
    assert failed.status == "True"


def test_an_event_is_posted_once_for_an_overuse() -> None:
    job = make_job()
    after = settled(OVERUSE).status
    news = announcement_of(job, after)
    assert news is not None
    assert (news.severity, news.reason, news.message) == ("Warning", REASON, SENTENCE)
    assert announcement_of(msgspec.structs.replace(job, status=after), after) is None
    assert announcement_of(job, job.status) is None


def test_a_job_that_keeps_to_its_promise_again_says_so() -> None:
    above = settled(OVERUSE).status
    job = msgspec.structs.replace(make_job(), status=above)
    after = settled(job=job).status
    condition = find_condition(after.conditions, CONDITION)
    assert condition is not None
    assert condition.status == "True"
