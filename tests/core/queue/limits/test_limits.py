"""Limits of GPUQuotas and of groups: whom they bind, what they say, and what they let go."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.cycle import admit
from dovetail.queue.estimates.simulation import foresee
from dovetail.queue.limits.guarantees import loans_of
from dovetail.queue.limits.limits import CounterKey, LimitGate, Takes, Terms, group_limit, limits_of, milli_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject, binds, subject_name
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.queue.backfill.test_backfill import make_job, run
from tests.core.queue.quota_tree.builders import make_tree


def make_quota(name: str = "vision", **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def gate_over(
    *quotas: GPUQuota, jobs: dict[str, tuple[Candidate, Subject]], running: tuple[str, ...] = ()
) -> LimitGate:
    terms = {
        job.key: limits_of(quotas, subject=subject, takes=Takes(milli=milli_of(job.ask, workers=job.workers)))
        for job, subject in jobs.values()
    }
    return LimitGate(terms, running=[jobs[name][0].key for name in running])


VISION = Subject(namespace="vision", user="ada")
NAMELESS, POD = Subject(namespace="vision", user=""), Subject(namespace="vision")


@dataclass(frozen=True, kw_only=True)
class Whom:
    says: str
    spec: dict[str, Any]
    subject: Subject
    counted: str | None
    bound: bool = True


CASES = (
    Whom(says="nobody is named, so all are bound", spec={}, subject=VISION, counted=""),
    Whom(says="of its namespace", spec={"namespaces": ["vision"]}, subject=VISION, counted=""),
    Whom(says="of another namespace", spec={"namespaces": ["nlp"]}, subject=VISION, counted="", bound=False),
    Whom(says="of another user", spec={"users": ["bob"]}, subject=VISION, counted="", bound=False),
    Whom(says="each user apart", spec={"per": "User"}, subject=VISION, counted="ada"),
    Whom(says="each namespace apart", spec={"per": "Namespace"}, subject=VISION, counted="vision"),
    Whom(says="those without a name together", spec={"per": "User"}, subject=NAMELESS, counted=""),
    Whom(says="a pod is no user's", spec={"per": "User"}, subject=POD, counted=None),
    Whom(says="a pod is none of the users", spec={"users": ["ada"]}, subject=POD, counted="", bound=False),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_whom_a_quota_binds(case: Whom) -> None:
    spec = make_quota(**case.spec).spec
    assert binds(spec, subject=case.subject) == case.bound
    assert subject_name(spec, subject=case.subject) == case.counted


@dataclass(frozen=True, kw_only=True)
class Told:
    says: str
    spec: dict[str, Any]
    message: str
    name: str = "vision"
    running: tuple[str, ...] = ("1", "1")
    asks: str = "4"
    user: str = "ada"
    extra: dict[str, Any] = field(default_factory=dict)


SENTENCES = (
    Told(
        says="GPUs of a namespace",
        spec={"namespaces": ["vision"], "limit": {"gpus": 5}},
        message="Namespace vision may run 5 GPUs, 2 run, this job needs 4 (GPUQuota vision)",
    ),
    Told(
        says="GPUs of each user",
        spec={"per": "User", "limit": {"gpus": 1}},
        running=("0.5",),
        asks="0.75",
        message="User ada may run 1 GPU, 0.5 run, this job needs 0.75 (GPUQuota vision)",
    ),
    Told(
        says="more than there ever is",
        spec={"per": "Namespace", "limit": {"gpus": 3}},
        running=(),
        message="Namespace vision may run 3 GPUs, 0 run, this job would never fit, it needs 4 (GPUQuota vision)",
    ),
    Told(
        says="jobs of all together",
        spec={"limit": {"runningJobs": 2}},
        message="GPUQuota vision: all whom it binds may run 2 jobs at a time, 2 run",
    ),
    Told(
        says="jobs of one user",
        spec={"users": ["ada"], "limit": {"runningJobs": 1}},
        message="User ada may run 1 job at a time, 2 run (GPUQuota vision)",
    ),
    Told(
        says="users without a name",
        spec={"per": "User", "limit": {"runningJobs": 1}},
        user="",
        message="A user without a name may run 1 job at a time, 2 run (GPUQuota vision)",
    ),
)


@pytest.mark.parametrize("case", SENTENCES, ids=lambda case: case.says)
def test_the_sentence_has_the_numbers(case: Told) -> None:
    subject = Subject(namespace="vision", user=case.user)
    jobs = {f"r{number}": (make_job(f"r{number}", gpu), subject) for number, gpu in enumerate(case.running)}
    jobs["x"] = (make_job("x", case.asks), subject)
    gate = gate_over(make_quota(case.name, **case.spec), jobs=jobs, running=tuple(set(jobs) - {"x"}))
    refused = gate.refusal(jobs["x"][0])
    assert refused is not None
    assert (refused.reason, refused.message) == ("Quota", case.message)


def test_what_pods_hold_counts_beside_the_jobs() -> None:
    quota = make_quota(namespaces=["vision"], limit={"gpus": 4})
    job = make_job("x", "2")
    (limit,) = limits_of([quota], subject=Subject(namespace="vision"), takes=Takes(milli=3000), jobs=0).start
    gate = LimitGate(
        {job.key: limits_of([quota], subject=VISION, takes=Takes(milli=2000))},
        used=Counter({limit.counter: limit.need}),
    )
    refused = gate.refusal(job)
    assert refused is not None
    assert "3 run, this job needs 2" in refused.message


def test_a_job_beyond_the_queues_limit_waits_outside_it_whatever_is_free() -> None:
    jobs = {"a": (make_job("a", "4"), VISION), "b": (make_job("b", "1", at=1), VISION)}
    ledger = make_ledger(n=4)
    run(ledger, make_job("r", "1"))
    gate = gate_over(make_quota(limit={"queuedJobs": 1}), jobs=jobs)
    first, second = admit([job for job, _ in jobs.values()], ledger=ledger, sites={}, gate=gate)
    assert isinstance(first, Waits)
    assert isinstance(second, Waits)
    assert (first.reason, second.reason) == ("Resources", "Quota")


def test_a_job_without_terms_is_let_through() -> None:
    assert LimitGate({}).refusal(make_job("x")) is None


def test_the_one_beyond_the_queue_is_told_how_long_it_is() -> None:
    jobs = {name: (make_job(name, "1", at=at), VISION) for at, name in enumerate("abc")}
    gate = gate_over(make_quota(limit={"queuedJobs": 2}), jobs=jobs)
    ledger = make_ledger(n=1)
    run(ledger, make_job("r", "1"))
    verdict = list(admit([job for job, _ in jobs.values()], ledger=ledger, sites={}, gate=gate))[-1]
    assert isinstance(verdict, Waits)
    sentence = "GPUQuota vision: all whom it binds may have 2 jobs in the queue, 2 are before this one"
    assert (verdict.reason, verdict.message) == ("Quota", sentence)


def test_a_job_does_not_count_itself_among_those_before_it() -> None:
    """The queue asks about one job several times in a look: the answer stays the same."""
    jobs = {name: (make_job(name, "1", at=at), VISION) for at, name in enumerate("ab")}
    gate = gate_over(make_quota(limit={"queuedJobs": 1}), jobs=jobs)
    first, second = (job for job, _ in jobs.values())
    assert [gate.refusal(first) for _ in range(3)] == [None, None, None]
    assert [gate.refusal(second) is None for _ in range(2)] == [False, False]
    assert gate.refusal(first) is None


def test_a_job_that_starts_leaves_its_place_in_the_queue_to_the_next() -> None:
    jobs = {name: (make_job(name, "1", at=at), VISION) for at, name in enumerate("abc")}
    gate = gate_over(make_quota(limit={"queuedJobs": 1}), jobs=jobs)
    first, second, third = (job for job, _ in jobs.values())
    assert gate.refusal(first) is None
    gate.started(first)
    assert gate.refusal(second) is None
    assert gate.refusal(third) is not None


def test_a_queue_limit_that_refuses_takes_no_place_in_another_queue() -> None:
    """The job is kept out of the full queue, so it is in none: the other queue has its place still."""
    quotas = [
        make_quota("wide", limit={"queuedJobs": 1}),
        make_quota("full", namespaces=["vision"], limit={"queuedJobs": 0}),
    ]
    other = Subject(namespace="nlp", user="bob")
    jobs = {"a": (make_job("a", "1"), VISION), "b": (make_job("b", "1", at=1), other)}
    gate = gate_over(*quotas, jobs=jobs)
    assert gate.refusal(jobs["a"][0]) is not None
    assert gate.refusal(jobs["b"][0]) is None


def test_what_a_job_takes_is_counted_once_and_given_back_once() -> None:
    jobs = {name: (make_job(name, "2", at=at), VISION) for at, name in enumerate("abc")}
    a, b, c = (job for job, _ in jobs.values())
    gate = gate_over(make_quota(limit={"gpus": 4}), jobs=jobs, running=("a",))
    gate.started(a)
    assert gate.refusal(b) is None, "a runs already and takes its two GPUs once"
    gate.started(b)
    assert gate.refusal(c) is not None
    gate.ended(a.key)
    gate.ended(a.key)
    assert gate.refusal(c) is None
    gate.started(c)
    assert gate.refusal(a) is not None, "an end that is reported twice frees two GPUs and not four"


def test_a_job_that_runs_once_more_after_its_end_counts_once_more() -> None:
    jobs = {name: (make_job(name, "2", at=at), VISION) for at, name in enumerate("ab")}
    a, b = (job for job, _ in jobs.values())
    gate = gate_over(make_quota(limit={"gpus": 2}), jobs=jobs, running=("a",))
    gate.ended(a.key)
    gate.started(a)
    assert gate.refusal(b) is not None


def test_a_question_about_the_end_of_jobs_ends_none() -> None:
    first, second, asks = (make_job(name, "4") for name in ("first", "second", "asks"))
    jobs = {name: (job, VISION) for name, job in (("first", first), ("second", second), ("asks", asks))}
    gate = gate_over(make_quota(limit={"gpus": 8}), jobs=jobs, running=("first", "second"))
    for _ in range(2):
        assert gate.refusal(asks) is not None
        assert gate.allows_without(asks, ended=[first.key])
        assert gate.allows_without(asks, ended=[first.key, second.key])
        assert not gate.allows_without(asks, ended=["nobody", asks.key])
    gate.ended(first.key)
    assert gate.refusal(asks) is None


def test_the_end_of_a_job_that_nobody_counted_changes_nothing() -> None:
    jobs = {name: (make_job(name, "2", at=at), VISION) for at, name in enumerate("ab")}
    b = [job for job, _ in jobs.values()][1]
    gate = gate_over(make_quota(limit={"gpus": 2}), jobs=jobs, running=("a",))
    gate.ended("who?")
    assert gate.refusal(b) is not None


# --- jobs that may start with fewer workers -------------------------------------------------------------------------


def elastic(name: str, *, workers: int, least: int, each: str = "2") -> Candidate:
    return replace(make_job(name, each), workers=workers, least=least)


def gate_for(job: Candidate, *quotas: GPUQuota, used: dict[CounterKey, int] | None = None) -> LimitGate:
    milli = milli_of(job.ask, workers=job.workers)
    terms = limits_of(quotas, subject=VISION, takes=Takes(milli=milli), workers=job.workers, least=job.least)
    return LimitGate({job.key: terms}, used=used)


@pytest.mark.parametrize(
    ("gpus", "used", "workers", "narrowed"),
    [
        (8, 0, 4, False),
        (8, 1000, 3, True),
        (8, 2000, 3, True),
        (8, 3000, 2, True),
        (5, 0, 2, True),
        (4, 0, 2, True),
        (9, 0, 4, False),
    ],
)
def test_an_elastic_job_starts_with_the_workers_that_its_quota_leaves(
    gpus: int, used: int, workers: int, narrowed: bool
) -> None:
    """Four workers of two GPUs each, at least two of them: what is left of the quota, in whole workers."""
    job = elastic("e", workers=4, least=2)
    gate = gate_for(job, make_quota(limit={"gpus": gpus}), used={("vision", "", "GPUs"): used})
    assert gate.refusal(job) is None
    assert gate.workers(job) == workers
    assert gate.narrows(job) == ("GPUQuota vision" if narrowed else "")


def test_the_narrowest_of_several_quotas_says_how_many_workers_start() -> None:
    job = elastic("e", workers=4, least=1)
    gate = gate_for(
        job,
        make_quota("wide", limit={"gpus": 6}),
        make_quota("narrow", limit={"gpus": 4}),
        make_quota("jobs", limit={"runningJobs": 1}),
    )
    assert (gate.workers(job), gate.narrows(job)) == (2, "GPUQuota narrow")


def test_an_elastic_job_is_refused_when_not_even_its_fewest_workers_have_room() -> None:
    job = elastic("e", workers=4, least=2)
    quota = make_quota(limit={"gpus": 5})
    refused = gate_for(job, quota, used={("vision", "", "GPUs"): 2000}).refusal(job)
    assert refused is not None
    assert refused.message == ("GPUQuota vision: all whom it binds may run 5 GPUs, 2 run, this job needs at least 4")
    assert gate_for(job, quota, used={("vision", "", "GPUs"): 1000}).refusal(job) is None


def test_an_elastic_job_takes_what_it_started_with_and_a_rigid_one_all() -> None:
    job, other = elastic("e", workers=4, least=1), make_job("o", "2")
    quota = make_quota(limit={"gpus": 6})
    terms = {
        job.key: limits_of([quota], subject=VISION, takes=Takes(milli=8000), workers=4, least=1),
        other.key: limits_of([quota], subject=VISION, takes=Takes(milli=2000)),
    }
    gate = LimitGate(terms)
    gate.started(replace(job, workers=2))
    assert gate.refusal(other) is None
    gate.started(other)
    assert gate.refusal(replace(other, key="p", name="p")) is None, "what has no terms is not refused"
    assert gate.workers(job) == 1


def test_a_rigid_job_keeps_its_workers_whatever_the_quota() -> None:
    job = replace(make_job("r", "2"), workers=3)
    gate = gate_for(job, make_quota(limit={"gpus": 4}))
    assert (gate.workers(job), gate.narrows(job)) == (3, "")


# --- jobs that may not be preempted -----------------------------------------------------------------------------------


def firm_gate(*jobs: Candidate, guaranteed: dict[str, Any]) -> LimitGate:
    """The gate over jobs of a quota with a guarantee, none of which may be preempted."""
    counted = [
        Counted(
            uid=job.key,
            subject=VISION,
            milli=milli_of(job.ask, workers=job.workers),
            memory_mib=80 * milli_of(job.ask, workers=job.workers) * 1024 // 1000,
            queued=True,
            workers=job.workers,
            least=job.least,
            preemptible=False,
        )
        for job in jobs
    ]
    tree = make_tree(make_quota(namespaces=["vision"], guaranteed=guaranteed), gpus=16)
    return LimitGate({}, loans=loans_of(tree, counted=counted, pods=(), quota_of=lambda _: "vision", recent={}))


@pytest.mark.parametrize(
    ("guaranteed", "workers"), [({"gpus": 8}, 4), ({"gpus": 7}, 3), ({"gpus": 8, "memory": "400Gi"}, 2)]
)
def test_an_elastic_job_that_may_not_be_preempted_starts_with_the_workers_that_its_guarantee_leaves(
    guaranteed: dict[str, Any], workers: int
) -> None:
    job = elastic("e", workers=4, least=2)
    gate = firm_gate(job, guaranteed=guaranteed)
    assert gate.refusal(job) is None
    assert gate.workers(job) == workers
    assert gate.narrows(job) == ("" if workers == 4 else "GPUQuota vision")


def test_what_an_elastic_job_that_may_not_be_preempted_started_with_is_left_to_no_other() -> None:
    job, other = elastic("e", workers=4, least=2), elastic("o", workers=4, least=1)
    gate = firm_gate(job, other, guaranteed={"gpus": 9})
    gate.started(replace(job, workers=3))
    assert gate.refusal(other) is None
    assert gate.workers(other) == 1


def test_an_elastic_job_that_may_not_be_preempted_waits_if_its_fewest_workers_are_beyond_the_guarantee() -> None:
    job = elastic("e", workers=4, least=3)
    refused = firm_gate(job, guaranteed={"gpus": 4}).refusal(job)
    assert refused is not None
    assert refused.message == (
        "preemptible: false is allowed within a guarantee alone: GPUQuota vision guarantees 4 GPUs, 4 of them are "
        "left, this job needs at least 6"
    )


def test_a_job_that_may_not_be_preempted_may_fall_back_to_the_cpu_beyond_its_guarantee() -> None:
    job = replace(make_job("f", "2"), cpu_in_seconds=0.0)
    (verdict,) = admit([job], ledger=make_ledger(n=1), sites={}, gate=firm_gate(job, guaranteed={"gpus": 1}))
    assert isinstance(verdict, Admitted)
    assert verdict.on_cpu


def test_jobs_of_a_group_run_side_by_side_up_to_the_number_of_each() -> None:
    jobs = [make_job(name, "1", at=at) for at, name in enumerate("abc")]
    terms = {
        job.key: Terms(start=(group_limit("team", group="sweep", most=most),))
        for job, most in zip(jobs, [2, None, 2], strict=True)
    }
    found = list(admit(jobs, ledger=make_ledger(n=4), sites={}, gate=LimitGate(terms)))
    assert [isinstance(verdict, Admitted) for verdict in found] == [True, True, False]
    last = found[2]
    assert isinstance(last, Waits)
    assert last.message == "Group sweep may run 2 jobs at a time, 2 run"


def test_a_job_is_foreseen_to_start_when_its_quota_is_free() -> None:
    running, waiting = make_job("r", "2", hours=1), make_job("w", "2", hours=1)
    ledger = make_ledger(n=8)
    leaving = run(ledger, running)
    jobs = {"r": (running, VISION), "w": (waiting, VISION)}
    gate = gate_over(make_quota(limit={"gpus": 2}), jobs=jobs, running=("r",))
    (start,) = [each for each in foresee([waiting], ledger=ledger, sites={}, leaving=leaving, gate=gate) if each]
    assert start.in_seconds == leaving[0].at_seconds


# --- properties ------------------------------------------------------------------------------------------------------

people = st.builds(Subject, namespace=st.sampled_from("ab"), user=st.sampled_from(["", "ada", "bob"]))
specs = st.fixed_dictionaries(
    {"per": st.sampled_from(["Together", "Namespace", "User"])},
    optional={
        "limit": st.fixed_dictionaries(
            {},
            optional={"gpus": st.integers(0, 6), "runningJobs": st.integers(0, 4), "queuedJobs": st.integers(0, 3)},
        ),
        "namespaces": st.sampled_from([[], ["a"]]),
        "users": st.sampled_from([[], ["ada"]]),
    },
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(specs, max_size=3),
    st.lists(st.tuples(st.sampled_from(["1", "2", "0.5"]), people, st.booleans()), max_size=12),
)
def test_no_quota_is_ever_exceeded_and_nobody_waits_for_one_that_has_room(
    drawn: list[dict[str, Any]], asked: list[tuple[str, Subject, bool]]
) -> None:
    quotas = [make_quota(f"q{number}", **spec) for number, spec in enumerate(drawn)]
    jobs = {
        f"j{number:02d}": (make_job(f"j{number:02d}", gpu, at=number), who)
        for number, (gpu, who, _) in enumerate(asked)
    }
    running = tuple(name for name, (_, _, runs) in zip(jobs, asked, strict=True) if runs)
    waiting = [job for name, (job, _) in jobs.items() if name not in running]
    gate = gate_over(*quotas, jobs=jobs, running=running)
    verdicts = list(admit(waiting, ledger=make_ledger(n=64), sites={}, gate=gate))
    started = {verdict.key for verdict in verdicts if isinstance(verdict, Admitted)}
    before = {jobs[name][0].key for name in running}
    for quota in quotas:
        within(quota, jobs=jobs, before=before, after=before | started)
    assert [verdict.key for verdict in verdicts] == [job.key for job in order(waiting)]


def within(quota: GPUQuota, *, jobs: dict[str, tuple[Candidate, Subject]], before: set[str], after: set[str]) -> None:
    """Whatever started did not take anybody beyond the quota."""
    bound = [
        (job, subject_name(quota.spec, subject=who)) for job, who in jobs.values() if binds(quota.spec, subject=who)
    ]
    for most, gpus in ((quota.spec.limits.gpus, True), (quota.spec.limits.running_jobs, False)):
        used, had = (weights(bound, among=keys, gpus=gpus) for keys in (after, before))
        if most is not None:
            assert all(amount <= max(1000 * most, had[who]) for who, amount in used.items())


def weights(bound: list[tuple[Candidate, str | None]], *, among: set[str], gpus: bool) -> Counter[str | None]:
    """Thousandths of GPUs, or of jobs, by whom they count for."""
    total: Counter[str | None] = Counter()
    for job, who in bound:
        weight = milli_of(job.ask, workers=1) if gpus else 1000
        total[who] += weight if job.key in among else 0
    return total


def test_thousandths_of_all_containers_and_workers_count() -> None:
    assert milli_of(make_ask("2x8G,0.5"), workers=3) == 3000
    assert milli_of(None, workers=3) == 0
