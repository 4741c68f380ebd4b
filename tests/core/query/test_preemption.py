"""Which jobs would be preempted for a query's job, and when it starts then."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.query.dry_run import dry_run_on, prepare
from dovetail.query.preemption import PreemptionView, preempting
from dovetail.query.queue_view import QueueView
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import ENDING_SECONDS, Order, Rules
from dovetail.queue.preemption.victims import Running
from tests.core.engine.builders import make_ask
from tests.core.query.clusters import random_cluster
from tests.operator_.builders import NOW, make_job

RULES = Rules(gap=50, min_run_seconds=300.0, grace_seconds=60.0, reclaim_grace_seconds=20.0)


def running(key: str, *, priority: int = 0, run_seconds: float = 0.0, **more: Any) -> Running:
    return Running(key=key, priority=priority, run_seconds=run_seconds, claims=(key,), **more)


def candidate(key: str) -> Candidate:
    return Candidate(key=key, ask=make_ask("1"))


def view(*jobs: Running, rules: Rules = RULES) -> PreemptionView:
    return PreemptionView(running=jobs, rules=rules, jobs={each.key: make_job(each.key) for each in jobs})


def test_those_who_run_get_older_and_those_who_have_left_do_not() -> None:
    evictor = view(running("a", run_seconds=10.0), running("b", run_seconds=20.0, left=True)).evictor(in_seconds=5.0)
    assert [each.run_seconds for each in evictor.running] == [15.0, 20.0]


@pytest.mark.parametrize(
    ("priority", "waits"), [(49, []), (50, [100.0, 200.0]), (60, [50.0, 100.0, 200.0]), (255, [50.0, 100.0, 200.0])]
)
def test_a_further_look_is_worth_it_when_a_job_of_low_enough_priority_has_run_long_enough(
    priority: int, waits: list[float]
) -> None:
    jobs = [
        running("ripe", run_seconds=300.0),
        running("soon", run_seconds=200.0),
        running("later", run_seconds=100.0),
        running("higher", priority=10, run_seconds=250.0),
        running("gone", run_seconds=290.0, left=True),
    ]
    assert list(view(*jobs).ripe_in(priority=priority)) == waits
    assert list(view(*jobs, rules=Rules(gap=0)).ripe_in(priority=priority)) == []


@pytest.mark.parametrize(("reclaim", "grace"), [("", 60.0), ("back to its quota", 20.0)])
def test_the_start_waits_for_the_grace_period_of_the_kind_of_preemption(reclaim: str, grace: float) -> None:
    others = view(running("a"), running("b"), running("c"))
    evictor, asked, another = others.evictor(), candidate("asked"), candidate("another")
    evictor.orders.update({
        "a": Order(victim="a", by=asked, reclaim=reclaim, grace_seconds=grace),
        "b": Order(victim="b", by=another, grace_seconds=9.0, reclaim="" if reclaim else "of another one"),
        "c": Order(victim="c", by=asked, reclaim=reclaim, grace_seconds=grace / 2),
    })  # fmt: skip
    found = preempting(evictor, key="asked", others=others, reader=EVERYTHING, in_seconds=7.0)
    assert found is not None
    assert ([job.name for job in found.victims], found.other_victims) == (["a", "c"], 0)
    assert (found.grace_seconds, found.in_seconds) == (grace, 7.0)
    assert found.starts_in_seconds == 7.0 + grace + ENDING_SECONDS
    stranger = Reader(sees=lambda _namespace: False, readable=str, everything=False)
    hidden = preempting(evictor, key="asked", others=others, reader=stranger)
    assert hidden is not None
    assert (hidden.victims, hidden.other_victims) == ([], 2)
    assert preempting(evictor, key="nobody", others=others, reader=EVERYTHING) is None


@pytest.mark.parametrize(("start", "preempts"), [(149.0, False), (150.0, False), (151.0, True)])
def test_a_preemption_is_foretold_where_the_job_starts_sooner_by_it(
    start: float, preempts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its victim has run long enough in 100 s, and then has 20 s of grace and 30 s to end."""
    cluster = random_cluster(1)
    for emptied in (cluster.nodes, cluster.gpunodes, cluster.pods, cluster.jobs, cluster.children, cluster.quotas):
        emptied.clear()
    cluster.free.clear()
    cluster.add_node("n")
    while cluster.free["n"]:
        cluster.add_running()
    prepared = prepare(cluster.objects(), now=NOW)
    (job, *_), (pod, *_) = cluster.jobs, cluster.pods
    victim = Running(key=job.metadata.uid, priority=0, run_seconds=200.0, claims=(pod.metadata.uid,))
    rules = Rules(gap=5, min_run_seconds=300.0, grace_seconds=20.0)
    others = PreemptionView(running=[victim], rules=rules, jobs={job.metadata.uid: job})
    prepared = replace(prepared, others=others)
    monkeypatch.setattr(QueueView, "start_of", lambda _queue, asked, **_: Start(key=asked.key, in_seconds=start))
    found = dry_run_on(prepared, job=make_job("asked", gpu="1", priority=200))
    assert found.start is not None
    assert found.start.seconds == start
    assert (found.preemption is not None) == preempts
