"""The dry run and explain foretell what the operator does: random clusters through both, with equal answers."""

import time
from dataclasses import replace
from random import Random

import msgspec
import pytest

from dovetail.answers.questions import DryRun
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.formats.timestamps import after, timestamp
from dovetail.jobs.cpu_fallback import explain_on_cpu
from dovetail.jobs.memory_use import Learning
from dovetail.query.dry_run import dry_run, dry_run_on, prepare
from dovetail.query.explain.explanation import explain
from dovetail.query.explain.subjects import of_job
from dovetail.query.preemption import preemption_view
from dovetail.query.preemption_rules import rules_of
from dovetail.query.queue_view import queue_view
from dovetail.queue.estimates.calibration import Factors, Held, data_of
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.verdicts import Admitted, Verdict
from dovetail_operator.queue.cycle import decide, running_jobs, survey
from dovetail_operator.queue.start_estimates import estimates
from dovetail_operator.state.state import State, build_state
from dovetail_operator.state.usage import children_of_jobs, counted_jobs
from tests.core.query.clusters import RandomCluster, random_cluster
from tests.operator_.builders import NOW, at, make_child, make_job

SEEDS = range(40)


def state_of(cluster: RandomCluster) -> State:
    """The operator after it has seen the cluster's objects."""
    settings = cluster.settings
    view = ClusterView(
        ledger=Ledger(limits=settings.limits),
        vendors=settings.vendors,
        freshness=Freshness(max_age_seconds=settings.measurement_max_age, clock=time.monotonic),
    )
    state = build_state(
        view,
        rankings=settings.rankings,
        learning=Learning(default=settings.memory_guard, look_seconds=settings.monitor_update_interval),
        run_times=RunTimes(default_seconds=settings.default_time_limit, by_namespace=settings.namespace_time_limits),
        quotas=Quotas(half_life_seconds=settings.fair_share_half_life),
        preemption=rules_of(settings.preemption),
        cpu_fallback=settings.namespace_cpu_fallback,
    )
    for node in cluster.nodes:
        view.node_changed(node)
    for gpunode in cluster.gpunodes:
        state.store.gpunode_changed(gpunode)
    for quota in cluster.quotas:
        state.store.quotas.update(quota)
    for job in cluster.jobs:
        state.store.job_changed(job)
    for child in cluster.children:
        state.store.child_changed(child)
    for pod in cluster.pods:
        state.store.pod_event("ADDED", pod)
    learn(state, gpus=cluster.rng.choice(["0.5", "1", "2", "4"]))
    factors = Factors(early=cluster.rng.choice([0.5, 2.0]), late=1.5, shift=cluster.rng.choice([-0.5, 0.0, 0.7]))
    state.store.expectations.misses.restore(factors, held=Held(jobs=40, within=36))
    return reckoned(state)


def learn(state: State, *, gpus: str) -> None:
    """Count the jobs that are there, and many that came before and are gone."""
    for job in [*state.store.jobs.values(), *(make_job(f"gone-{number}", gpu=gpus) for number in range(40))]:
        state.count_submitted(job)
        while state.mix.term.work():
            pass
        state.mix.term.follow()


def read_with(cluster: RandomCluster, *, state: State) -> ClusterObjects:
    """The cluster's objects, with the mix and what was learned of estimates, as the operator has stored them."""
    learned = data_of(state.store.expectations.misses)
    return replace(cluster.objects(), job_mix=state.mix.term.record(), estimates=learned)


def reckoned(state: State) -> State:
    """The state once the use of quotas was computed."""
    cycle = survey(state, now=NOW)
    counted = counted_jobs(state, waiting=cycle.keys)
    state.store.quotas.compute_statuses(counted, now=NOW, children=children_of_jobs(state))
    return state


def verdicts_of(state: State) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in decide(state, cycle=survey(state, now=NOW))}


def test_a_query_counts_the_operator_s_use_of_quotas_and_victims(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            cluster = random_cluster(seed, by_namespace=True)
            state, queue = state_of(cluster), queue_view(cluster.objects(), now=NOW)
            counted = counted_jobs(state, waiting=survey(state, now=NOW).keys)
            assert {each.uid: each for each in queue.counted} == {each.uid: each for each in counted}
            preemptible = preemption_view(cluster.objects(), queue=queue).running
            assert sorted(preemptible, key=lambda each: each.key) == sorted(
                running_jobs(state, now=NOW), key=lambda each: each.key
            )


def asked_of(cluster: RandomCluster) -> GPUJob:
    """A job that is submitted at noon, as the last one."""
    spec = {name: value for name, value in cluster.waiting_spec().items() if name != "dependencies"}
    job = cluster.new_job("wait", **spec)
    meta = msgspec.structs.replace(job.metadata, creation_timestamp=at(0))
    return msgspec.structs.replace(job, metadata=meta)


def test_a_dry_run_says_what_the_operator_does_with_the_job_once_it_is_submitted(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            cluster = random_cluster(seed, by_namespace=True)
            asked, state = asked_of(cluster), state_of(cluster)
            foretold = dry_run(asked, objects=read_with(cluster, state=state), now=NOW)
            state.store.job_changed(asked)
            if foretold.outcome == "Invalid":
                assert_refused(foretold, state=state, asked=asked)
                continue
            verdict = verdicts_of(reckoned(state))[asked.metadata.uid]
            if isinstance(verdict, Admitted):
                nodes = [claim.node for claim in verdict.claims]
                assert foretold.outcome == "Starts"
                assert foretold.message == (explain_on_cpu(verdict.on_cpu).message if verdict.on_cpu else "")
                assert {each.node for each in foretold.nodes or ()} == set(nodes)
                continue
            assert foretold.reason == verdict.reason
            assert verdict.message.startswith(foretold.message)
            if verdict.reason != "ExceedsCapacity":
                assert verdict.queue is not None
                assert foretold.position == verdict.queue.position
                assert_same_start(foretold, state=state, asked=asked)


def assert_refused(foretold: DryRun, *, state: State, asked: GPUJob) -> None:
    """Options that contradict each other, such as weights of a policy that has none, reach no queue."""
    seen = state.observe(key_of(asked.metadata), now=NOW)
    assert seen is not None
    assert seen.obstacle is not None
    assert (seen.obstacle.reason, seen.obstacle.message) == ("Invalid", foretold.message)


def assert_same_start(foretold: DryRun, *, state: State, asked: GPUJob) -> None:
    """The estimate of the start, to the second; the operator makes none by ends for a job that preempts others."""
    if foretold.preemption is not None and not foretold.preemption.in_seconds:
        return
    places = dict(each for each in estimates(state, cycle=survey(state, now=NOW, foresees=True)) if each is not None)
    place = places.get(asked.metadata.uid)
    expected = None if place is None else place.estimated_start
    start = foretold.start
    assert (None if start is None else timestamp(after(NOW, seconds=start.seconds + 0.5))) == expected
    if place is not None and start is not None:
        assert (start.basis, start.basis_details) == (place.basis, place.basis_details)
        bounds = [
            None if each is None else timestamp(after(NOW, seconds=each)) for each in (start.earliest, start.latest)
        ]
        known = place.estimated_start_earliest, place.estimated_start_latest
        assert bounds in ([*known], [None, None])


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [
        ({}, 3600),
        ({"factors": "1.5 1.5", "shift": "0.3", "held": "40 36.00"}, 4880),
        ({"factors": "1.5 1.5", "shift": "much", "held": "40 36.00"}, 3600),
        ({"movesOfDeleted": "{}"}, 3600),
    ],
    ids=["nothing", "a shift", "what cannot be read", "moves alone"],
)
def test_a_dry_run_is_moved_by_what_the_operator_has_learned(stored: dict[str, str], seconds: float) -> None:
    cluster = RandomCluster(Random(1))
    cluster.add_node("n")
    gpus, status = len(cluster.free["n"]), {"phase": "Running", "startTime": at(-400)}
    job = cluster.new_job("run", gpu=gpus, status=status, activeDeadlineSeconds=3970)
    child = make_child(job, uid="child", status={"startTime": at(-400)}, parallelism=1, completions=1)
    cluster.jobs.append(job)
    cluster.children.append(child)
    cluster.add_pod(job, child, worker=0, node="n", gpus=gpus)
    found = dry_run(cluster.new_job("asked", gpu="1"), objects=replace(cluster.objects(), estimates=stored), now=NOW)
    assert found.start is not None
    assert found.start.seconds == pytest.approx(seconds, abs=2)


def test_explain_gives_each_waiting_job_the_operator_s_reason(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            cluster = random_cluster(seed, by_namespace=True)
            state = state_of(cluster)
            objects, verdicts = read_with(cluster, state=state), verdicts_of(state)
            if any(isinstance(verdict, Admitted) for verdict in verdicts.values()):
                # A job that is admitted now takes room from those behind it before explain can see it bound.
                continue
            pods = objects.pods_by_job()
            for job in cluster.jobs:
                verdict = verdicts.get(job.metadata.uid)
                if verdict is None:
                    continue
                subject = of_job(job, pods=pods.get(key_of(job.metadata), ()), settings=cluster.settings)
                found = explain(subject, objects=objects, now=NOW).answer
                if found is None:
                    continue
                assert found.fits == isinstance(verdict, Admitted)
                assert found.fits or found.reason == verdict.reason


def test_explain_names_the_node_that_the_operator_plans_first(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            cluster = random_cluster(seed, by_namespace=True)
            job = msgspec.structs.replace(cluster.new_job("wait", gpu="1"), metadata=cluster.new_job("only").metadata)
            cluster.jobs[:] = [each for each in cluster.jobs if each.status.phase not in {"Queued", "Starting"}]
            cluster.quotas.clear()
            state = state_of(cluster)
            state.store.job_changed(job)
            verdict = verdicts_of(reckoned(state))[job.metadata.uid]
            subject = of_job(job, pods=(), settings=cluster.settings)
            found = explain(subject, objects=read_with(cluster, state=state), now=NOW).answer
            assert found is not None
            assert found.fits == isinstance(verdict, Admitted)
            if isinstance(verdict, Admitted):
                best = found.fitting[0]
                (claim,) = verdict.claims
                assert claim.node in {each.node for each in found.fitting if each.score == best.score}


def test_a_prepared_queue_gives_each_of_many_dry_runs_the_answer_of_a_fresh_one(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            cluster = random_cluster(seed, by_namespace=True)
            prepared = prepare(cluster.objects(), now=NOW)
            for _ in range(3):
                asked = asked_of(cluster)
                assert dry_run_on(prepared, job=asked) == dry_run(asked, objects=cluster.objects(), now=NOW)


def test_a_limit_on_simulated_cycles_leaves_out_the_estimate_and_nothing_else() -> None:
    estimated = 0
    for seed in SEEDS:
        cluster = random_cluster(seed, by_namespace=True)
        prepared, asked = prepare(cluster.objects(), now=NOW), asked_of(cluster)
        found, short = dry_run_on(prepared, job=asked), dry_run_on(prepared, job=asked, most_cycles=0)
        estimated += found.start is not None
        assert short.start is None
        assert (short.outcome, short.reason, short.position) == (found.outcome, found.reason, found.position)
    assert estimated


def test_pods_of_a_list_and_pods_one_by_one_give_the_same_ledger(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            objects = random_cluster(seed, by_namespace=True).objects()
            listed, one_by_one = objects.view().ledger, replace(objects, pods=()).view()
            for pod in objects.pods:
                one_by_one.pod_changed(pod)
            assert set(listed.claims()) == set(one_by_one.ledger.claims())
            assert listed.content() == one_by_one.ledger.content()
