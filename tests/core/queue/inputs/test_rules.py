"""The queue's input, rule by rule: operator and queries share it, so comparing the two proves nothing about it."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.inputs.at_work import at_work
from dovetail.queue.inputs.candidates import Rules, candidate_of, chosen_way, expected_now, other_ways, site_of, sized
from dovetail.queue.inputs.leaving_pods import leaving_pods, pods_of_batch_jobs
from dovetail.queue.inputs.preemption_candidates import running_of, served_jobs
from dovetail.queue.inputs.run_ends import RunTimes, leaving_soon
from dovetail.queue.inputs.usage import use_of, use_of_deleted, use_of_ended
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ask
from tests.core.query.test_quotas import make_quota
from tests.operator_.builders import NO_ROOM, NOW, at, condition, make_child, make_job, make_pod

OWN, VENDOR = make_ask("1"), Ask(gpu=make_ask("1").gpu, resource="nvidia.com/gpu")
RUNS = {"phase": "Running", "startTime": at(-500)}


# --- ways ------------------------------------------------------------------------------------------------------------


def child_of(job: GPUJob, *, suspend: bool = False, **annotations: str) -> Job:
    child = make_child(job, suspend=suspend)
    meta = msgspec.structs.replace(child.metadata, annotations=annotations)
    return msgspec.structs.replace(child, metadata=meta)


VENDORS = {names.GPU_RESOURCE: "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("annotations", "admitted", "resource", "has_gpus"),
    [
        (None, None, "", True),
        (None, VENDOR, "nvidia.com/gpu", True),
        (None, Ask(gpu=None), "", False),
        ({}, VENDOR, "", True),
        (VENDORS, OWN, "nvidia.com/gpu", True),
        ({names.DEVICE: "cpu"}, OWN, "", False),
        ({}, Ask(gpu=None), "", True),
    ],
    ids=["neither", "admitted on a vendor's", "admitted on the CPU", "its Job says managed", "its Job says a vendor's",
         "its Job runs on the CPU", "its Job has GPUs after all"],
)  # fmt: skip
def test_the_batch_job_decides_on_the_way_then_the_verdict_then_the_preference(
    annotations: dict[str, str] | None, admitted: Ask | None, resource: str, has_gpus: bool
) -> None:
    child = None if annotations is None else child_of(make_job(), **annotations)
    found = chosen_way((OWN, VENDOR), child=child, admitted=admitted)
    assert found is not None
    assert (found.resource, found.gpu is not None) == (resource, has_gpus)
    assert chosen_way((), child=child, admitted=admitted) is None


def test_another_way_is_tried_for_a_job_whose_pods_do_not_exist() -> None:
    job, ways = make_job(), (OWN, VENDOR)
    assert other_ways(ways, chosen=OWN, child=None) == (VENDOR,)
    assert other_ways(ways, chosen=VENDOR, child=child_of(job, suspend=True)) == (OWN,)
    assert other_ways(ways, chosen=OWN, child=child_of(job)) == ()


# --- workers ---------------------------------------------------------------------------------------------------------


def elastic_child(**spec: Any) -> Job:
    return make_child(make_job(workers=4, minWorkers=2), **spec)


@pytest.mark.parametrize(
    ("child", "claims", "workers"),
    [
        (None, 0, 4),
        (None, 3, 3),
        (elastic_child(completions=2, parallelism=2), 3, 2),
        (elastic_child(completions=2, parallelism=2, suspend=True), 3, 3),
        (elastic_child(completions=2, parallelism=2, suspend=True), 0, 4),
    ],
    ids=["it waits", "it is admitted", "it runs", "it is admitted again", "it waits again"],
)
def test_an_elastic_job_has_the_workers_with_which_it_runs_or_starts(
    child: Job | None, claims: int, workers: int
) -> None:
    made = tuple(Claim(key=f"uid-x/{at}", node="n1") for at in range(claims))
    verdict = Admitted(key="uid-x", claims=made) if claims else NO_ROOM
    assert sized(make_job(workers=4, minWorkers=2), child=child, verdict=verdict).spec.workers == workers
    assert sized(make_job(workers=4), child=child, verdict=verdict).spec.workers == 4


# --- at work ---------------------------------------------------------------------------------------------------------


def test_workers_without_a_node_are_those_of_the_plan_that_have_no_pod_with_one() -> None:
    plan = {"generation": 1, "nodes": [{"name": "n1", "workers": 1}, {"name": "n2", "workers": 2}],
            "worker": {"request": "1"}}  # fmt: skip
    job = make_job(workers=3, status={**RUNS, "placement": plan})
    refused = condition("PodScheduled", status="False", reason="Unschedulable")
    child = make_child(job, status={"startTime": at(-400)})
    pods = [make_pod(0), make_pod(1, node="", phase="Pending", conditions=[refused])]
    found = at_work(job, child=child, pods=pods, run_times=RunTimes(default_seconds=1000))
    assert (found.workers, found.nodes, found.refused) == (2, ("n2", "n2"), True)
    assert [each.at_seconds for each in found.run.leaving(now=NOW)] == [600]
    bound = at_work(job, child=child, pods=[make_pod(each) for each in range(3)], run_times=RunTimes())
    assert (bound.workers, bound.nodes, bound.refused) == (0, (), False)


# --- who leaves ------------------------------------------------------------------------------------------------------

GOES = {"deletionTimestamp": at(-1)}


def pod(name: str, *, owner: str = "uid-child", **meta: Any) -> Pod:
    made = make_pod(owner=owner)
    changed = msgspec.to_builtins(made)["metadata"] | {"name": name, "uid": name} | meta
    return msgspec.structs.replace(made, metadata=msgspec.convert(changed, type(made.metadata)))


def test_pods_leave_that_are_deleted_or_whose_job_does_not_run_and_none_that_was_left_behind() -> None:
    pods = [
        pod("works"),
        pod("deleted", **GOES),
        pod("over", owner="uid-other"),
        pod("both", owner="uid-other", **GOES),
        pod("plain", ownerReferences=[], labels={}, annotations={}),
        pod("deleted and plain", ownerReferences=[], labels={}, annotations={}, **GOES),
        # A guest's pod, whose object was deleted without it.
        pod("left behind", ownerReferences=[], annotations={names.SEAT: "uid-gone/0"}),
    ]
    found = leaving_pods(iter(pods), running={"uid-child"})
    assert sorted(each.metadata.uid for each in found) == ["both", "deleted", "deleted and plain", "over"]
    assert {each.at_seconds for each in leaving_soon(found)} == {60}
    by_job = {owner: [each.metadata.uid for each in several] for owner, several in pods_of_batch_jobs(pods).items()}
    assert by_job == {
        "uid-child": ["works", "deleted"], "uid-other": ["over", "both"], "uid-gone": ["left behind"],
    }  # fmt: skip


def test_a_run_ends_when_jobs_like_it_did_after_what_it_has_run_and_at_its_limit_at_the_latest() -> None:
    job, learned = make_job(activeDeadlineSeconds=1000), Expectations()
    for number in range(5):
        status = {"phase": "Succeeded", "startTime": at(-5000), "completionTime": at(-4500)}
        learned.observe(make_job(f"ended-{number}", activeDeadlineSeconds=1000, status=status))
    for ran, at_seconds, likely in ((0, 1030, 500), (200, 830, 300), (500, 530, 0)):
        child = make_child(job, status={"startTime": at(-ran)})
        run = RunTimes().run_of(job, child=child, pods=[make_pod()])
        (found,) = run.leaving(now=NOW, learned=learned)
        assert (found.at_seconds, found.likely_seconds, found.likely_range) == (at_seconds, likely, (likely,) * 10)
        (unlearned,) = run.leaving(now=NOW)
        assert (unlearned.at_seconds, unlearned.likely_seconds, unlearned.likely_range) == (at_seconds, None, None)


# --- preemption ------------------------------------------------------------------------------------------------------


def victim(name: str = "victim", *, last: float = -100, **preemption: Any) -> GPUJob:
    made = {"count": 1, "lastTime": at(last), "by": "uid-x", **preemption}
    return make_job(name, status={"phase": "Queued", "preemption": made})


def ran(start: float) -> dict[str, Any]:
    how = {"number": 1, "reason": "Failed", "message": "", "counted": True}
    return {"attempts": [{**how, "startTime": at(start), "endTime": at(start + 1)}]}


@pytest.mark.parametrize(
    ("status", "is_served"),
    [
        (ran(-100), True),
        (ran(-101), False),
        ({}, False),
        ({"preemption": {"count": 1, "lastTime": at(-50)}}, True),
        ({"preemption": {"count": 1, "lastTime": at(-150)}}, False),
        ({"earlierRunSeconds": 60, "admittedTime": at(-90)}, True),
        ({"admittedTime": at(-90)}, False),
        ({"earlierRunSeconds": 60, "admittedTime": at(-190)}, False),
    ],
    ids=["it started then", "it ran before", "it never ran", "it was preempted since", "it was preempted before",
         "it was held after it had run", "it was only admitted", "it ran before, and is held"],
)  # fmt: skip
def test_a_job_is_served_that_ran_after_the_last_one_had_left_for_it(status: dict[str, Any], is_served: bool) -> None:
    asking = make_job("x", status=status)
    assert served_jobs([victim(last=-500), victim("later"), asking]) == (frozenset({"uid-x"} if is_served else ()))
    assert served_jobs([victim(at=at(30)), asking]) == frozenset(), "the victim still runs"
    assert served_jobs([victim(by=""), asking]) == frozenset()


def seen(job: GPUJob, *, runs: bool, served: frozenset[str] = frozenset(), **how: Any) -> Running | None:
    pods = [make_pod(0), make_pod(1, node="", phase="Pending"), make_pod(2, phase="Failed")]
    child = make_child(job, suspend=not runs)
    return running_of(job, child=child, pods=pods, pods_of_all_runs=lambda: [make_pod(3)], served=served,
                      quotas=Quotas(), now=NOW, **how)  # fmt: skip


def test_a_running_job_is_a_candidate_with_all_that_it_holds_or_may_hold() -> None:
    job = make_job(workers=2, priority=7, checkpointIntervalSeconds=900, status=RUNS)
    found = seen(job, runs=True)
    assert found is not None
    assert found.claims == (make_pod(0).metadata.uid, "uid-x/0", "uid-x/1")
    assert (found.run_seconds, found.priority, found.checkpoint_seconds) == (500, 7, 900)
    assert (found.left, found.yields_to, found.preempted, found.preemptible) == (False, "", 0, True)


@pytest.mark.parametrize(
    ("preemption", "served", "announced", "yields_to"),
    [
        ({"count": 2, "by": "uid-y", "at": at(20)}, frozenset({"uid-y"}), "", "uid-y"),
        ({"count": 2, "by": "uid-y", "lastTime": at(-900)}, frozenset({"uid-y"}), "", ""),
        ({"count": 2}, frozenset(), "uid-z", "uid-z"),
    ],
    ids=["by its status", "the other one has run since", "by a decision that no status has yet"],
)
def test_a_running_job_ends_for_another_one(
    preemption: dict[str, Any], served: frozenset[str], announced: str, yields_to: str
) -> None:
    job = make_job(status={**RUNS, "preemption": preemption})
    found = seen(job, runs=True, served=served, announced=announced)
    assert found is not None
    assert (found.yields_to, found.left, found.preempted) == (yields_to, False, 2)


def test_a_job_that_has_left_keeps_its_room_for_the_one_that_it_left_for_until_that_has_run() -> None:
    job = make_job(status={"phase": "Queued", "preemption": {"count": 1, "by": "uid-y", "lastTime": at(-9)}})
    found = seen(job, runs=False)
    assert found is not None
    assert (found.left, found.yields_to, found.run_seconds) == (True, "uid-y", 0)
    assert found.claims == (make_pod(3).metadata.uid, "uid-x/0")
    assert seen(job, runs=False, served=frozenset({"uid-y"})) is None
    assert seen(make_job(status={"phase": "Succeeded"}), runs=False) is None


# --- candidates ------------------------------------------------------------------------------------------------------


def test_jobs_share_a_site_whose_pods_may_go_to_the_same_nodes() -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    one = {"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"operator": "Exists"}], "affinity": affinity}
    assert site_of(one) == site_of({**dict(reversed(one.items())), "nodeSelector": {"b": "2", "a": "1"}, "x": 1})
    assert len({site_of({field: one[field]}) for field in one} | {site_of({}), site_of(one)}) == 5
    assert site_of({"affinity": {"podAffinity": {"x": 1}}, "tolerations": []}) == site_of({})


def test_what_a_job_may_become_is_in_its_candidate() -> None:
    job = make_job(workers=4, minWorkers=2, priority=30, activeDeadlineSeconds=600)
    quotas = Quotas()
    quotas.update(make_quota("low", maxPriority=20, preemptionPolicy="Never"))
    rules = Rules(
        quotas=quotas, run_times=RunTimes(), expectations=Expectations(), cpu_fallback={"team": 40, "other": 5}
    )
    found = candidate_of(job, child=None, ways=(OWN, VENDOR), admitted=None, workers=4, number=9, rules=rules)
    assert found is not None
    assert (found.least, found.priority, found.may_preempt, found.number) == (2, 20, False, 9)
    assert (found.run_seconds, found.limit_seconds, found.limited, found.cpu_in_seconds) == (630, 600, True, 40)
    assert (found.ask, found.others, found.name, found.key) == (OWN, (VENDOR,), "team/x", "uid-x")
    lease = make_job(reservation={"durationSeconds": 600}, template={"spec": {}})
    leased = candidate_of(lease, child=None, ways=(OWN,), admitted=None, workers=1, number=9, rules=rules)
    assert leased is not None
    assert (leased.limited, leased.run_seconds) == (False, 605), "a lease may be renewed"


def test_a_candidate_follows_what_is_learned_also_where_the_middle_stays() -> None:
    job = make_job(activeDeadlineSeconds=1000)
    rules = Rules(quotas=Quotas(), run_times=RunTimes(), expectations=(known := Expectations()), cpu_fallback={})

    def end(*parts: int) -> None:
        for number, part in enumerate(parts):
            status = {"phase": "Succeeded", "startTime": at(-5000), "completionTime": at(part - 5000)}
            known.observe(make_job(f"ended-{len(learned)}-{number}", activeDeadlineSeconds=1000, status=status))
        learned.append(parts)

    learned = list[tuple[int, ...]]()
    end(500, 500, 500, 500, 500)
    made = candidate_of(job, child=None, ways=(OWN,), admitted=None, workers=1, number=1, rules=rules)
    assert made is not None
    assert expected_now(made, job=job, expectations=known) is made
    end(100, 900)
    found = expected_now(made, job=job, expectations=known)
    assert found.likely_seconds == made.likely_seconds == 500
    assert (found.likely_range, made.likely_range) == (known.range_seconds(job), (500.0,) * 10)
    assert found.likely_range != made.likely_range


# --- use -------------------------------------------------------------------------------------------------------------


def used(job: GPUJob, *, child: Job | None = None, waits: bool = False, **how: Any) -> Any:
    return use_of(job, child=child, ask_of=lambda _: make_ask("2"), waits=waits, quotas=Quotas(),
                  **{"admitted": None, **how})  # fmt: skip


def test_a_job_uses_what_its_workers_request_from_its_admission_on_and_is_queued_before() -> None:
    job = make_job(workers=3, group="g", maxConcurrent=2)
    waiting, starts = used(job, waits=True), used(job, waits=True, admitted=Admitted(key="uid-x"))
    assert [(each.milli, each.queued) for each in (waiting, starts)] == [(6000, True), (6000, False)]
    assert (waiting.group, waiting.max_concurrent, waiting.workers, waiting.uid) == ("g", 2, 3, "uid-x")
    assert used(job) is None
    running = make_job(workers=3, status=RUNS)
    child = make_child(running, parallelism=1)
    assert (used(running, child=child).milli, used(running, child=child).queued) == (2000, False)
    held = [Claim(key=str(each), node="n1", unnamed=2, resource="nvidia.com/gpu") for each in range(2)]
    assert used(running, child=child, held=held).milli == 4000, "pods that are yet to end hold more"
    assert used(running, child=child, held=held[:1]).milli == 2000


def test_an_ended_job_counts_with_its_last_run_until_its_quota_has_recorded_it() -> None:
    status = {"phase": "Succeeded", "startTime": at(-700), "completionTime": at(-100)}
    job, quotas = make_job(workers=2, status=status), Quotas()
    assert use_of_ended(job, ask_of=lambda _: OWN, quotas=quotas) is None, "no quota has shares"
    for as_of, counts in ((None, True), (at(-101), True), (at(-100), False)):
        quotas.update(make_quota("q", shares=1, status={"asOf": as_of} if as_of else {}))
        found = use_of_ended(job, ask_of=lambda _: OWN, quotas=quotas)
        assert (found is not None) == counts
        assert found is None or (found.milli, str(found.start), str(found.end)) == (
            2000, "2026-01-01 11:48:20+00:00", "2026-01-01 11:58:20+00:00",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (RUNS, "2026-01-01 12:00:00+00:00"),
        (
            {**RUNS, "phase": "Suspended", "conditions": [condition("Suspended", seconds=-200)]},
            "2026-01-01 11:56:40+00:00",
        ),
        ({**RUNS, "phase": "Failed", "completionTime": at(-300)}, "2026-01-01 11:55:00+00:00"),
    ],
    ids=["runs", "is held", "has ended"],
)
def test_a_deleted_job_counts_until_its_run_ended_whenever_it_is_deleted(status: dict[str, Any], end: str) -> None:
    quotas = Quotas()
    quotas.update(make_quota("q", shares=1))
    found = use_of_deleted(make_job(status=status), ask_of=lambda _: OWN, quotas=quotas, now=NOW)
    assert found is not None
    assert (str(found.start), str(found.end)) == ("2026-01-01 11:51:40+00:00", end)
