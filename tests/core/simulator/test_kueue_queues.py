"""Kueue's queues in a replay: arrivals, quotas and cohorts."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.answers.observe import Forecast
from dovetail.api.kueue import ClusterQueue, Workload
from dovetail.cluster.observed import PlacedPod
from dovetail.simulator.kueue_queues import KueueQueues
from dovetail.simulator.observed_replay import forecast
from tests.core.query.explain.observe.builders import GPU, make_node
from tests.core.simulator.test_observed_replay import START, at, ran


def of_job(pod: PlacedPod, *, job: str) -> PlacedPod:
    """The pod as one of a Job's."""
    raw = msgspec.to_builtins(pod)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return msgspec.convert(raw, PlacedPod)


def workload(
    job: str, *, came: float, admitted: float, ended: float | None = None, queue: str = "a", evicted: bool = False
) -> Workload:
    times = {"QuotaReserved": admitted, "Admitted": admitted} | ({} if ended is None else {"Finished": ended})
    conditions = [{"type": name, "status": "True", "lastTransitionTime": at(each)} for name, each in times.items()]
    conditions += [{"type": "Evicted", "status": "False", "lastTransitionTime": at(admitted)}] if evicted else []
    meta = {
        "name": f"job-{job}",
        "namespace": "vision",
        "creationTimestamp": at(came),
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}"}],
    }
    status = {"admission": {"clusterQueue": queue}, "conditions": conditions}
    return msgspec.convert({"metadata": meta, "status": status}, Workload)


def clusterqueue(name: str, *, gpus: int, cohort: str = "", borrowing: int | None = None, **more: Any) -> ClusterQueue:
    limit = {} if borrowing is None else {"borrowingLimit": borrowing}
    resources = [{"name": "cpu", "nominalQuota": "1"}, {"name": GPU, "nominalQuota": str(gpus), **limit}]
    spec = {"resourceGroups": [{"flavors": [{"name": "any", "resources": resources}]}], **more}
    spec |= {"cohortName": cohort} if cohort else {}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ClusterQueue)


def replayed(pods: list[PlacedPod], *, workloads: list[Workload], queues: list[ClusterQueue]) -> Forecast:
    kueue = KueueQueues(workloads=workloads, clusterqueues=queues)
    found = forecast([make_node("n1", gpus=8)], pods=pods, now=START + timedelta(seconds=1000), kueue=kueue)
    assert found is not None
    return found


# The node has 8 devices, and the queue 4: the second job waits for the first one's quota, and not for room.
PODS = [
    of_job(ran("a-x", came=1, bound=1, ended=100, gpus=4), job="a"),
    of_job(ran("b-x", came=101, bound=102, ended=200, gpus=4), job="b"),
]
WORKLOADS = [workload("a", came=0, admitted=1), workload("b", came=10, admitted=101)]


def test_a_pod_waits_from_its_job_s_creation_and_for_its_queue_s_quota() -> None:
    found = replayed(PODS, workloads=WORKLOADS, queues=[clusterqueue("a", gpus=4)])
    waits = {each.name: (each.waited, each.replayed, each.under_dovetail) for each in found.items}
    assert waits == {"a-x": (1.0, 0.0, 0.0), "b-x": (92.0, 89.0, 0.0)}
    assert found.reproduced == 1.0
    assert any("2 pods were admitted by Kueue" in note for note in found.notes)


def test_a_job_holds_its_quota_from_its_admission_until_kueue_has_seen_its_end_and_looks_again() -> None:
    slow = [workload("a", came=0, admitted=1, ended=140), workload("b", came=10, admitted=142, ended=250)]
    pods = [PODS[0], of_job(ran("b-x", came=142, bound=144, ended=240, gpus=4), job="b")]
    found = replayed(pods, workloads=slow, queues=[clusterqueue("a", gpus=4)])
    assert {each.name: each.replayed for each in found.items} == {"a-x": 0.0, "b-x": 130.0}
    kueue = KueueQueues(workloads=slow)
    times = [kueue.quota_times(pod) for pod in [*pods, ran("alone", came=1)]]
    assert times == [(at(1), at(140)), (at(142), at(250)), None]


def test_a_queue_s_jobs_start_in_its_order_even_where_a_later_one_would_fit_for_a_moment() -> None:
    pods = [
        of_job(ran("a-x", came=0, bound=0, ended=50, gpus=2), job="a"),
        of_job(ran("small-x", came=60, bound=60, ended=120, gpus=2), job="small"),
        of_job(ran("large-x", came=121, bound=121, ended=200, gpus=4), job="large"),
    ]
    workloads = [
        workload("a", came=0, admitted=0, ended=58),
        workload("small", came=58, admitted=60, ended=120),
        workload("large", came=1, admitted=121, ended=200),
    ]
    found = replayed(pods, workloads=workloads, queues=[clusterqueue("a", gpus=4)])
    assert {each.name: each.replayed for each in found.items}["large-x"] == pytest.approx(118.0, abs=2)
    assert found.reproduced == 1.0


def test_a_job_keeps_its_quota_while_it_waits_for_a_node() -> None:
    pods = [
        ran("of-no-queue", came=0, bound=0, ended=100, gpus=6),
        of_job(ran("large-x", came=1, bound=101, ended=200, gpus=4), job="large"),
        of_job(ran("small-x", came=201, bound=201, ended=250, gpus=2), job="small"),
    ]
    workloads = [
        workload("large", came=1, admitted=1, ended=200),
        workload("small", came=5, admitted=201, ended=250),
    ]
    found = replayed(pods, workloads=workloads, queues=[clusterqueue("a", gpus=5)])
    waits = {each.name: each.replayed for each in found.items}
    # Two devices are free from the beginning, and the queue's quota is not.
    assert waits == {"of-no-queue": 0.0, "large-x": 99.0, "small-x": pytest.approx(196.0, abs=2)}


def test_without_its_quota_the_replay_starts_too_early_and_is_not_trusted() -> None:
    found = replayed(PODS, workloads=WORKLOADS, queues=[])
    assert (found.reproduced, found.trusted) == (0.5, False)


@pytest.mark.parametrize("evicted", [False, True])
def test_a_pod_that_replaces_a_failed_one_or_comes_after_an_eviction_waits_from_its_own_creation(evicted: bool) -> None:
    late = of_job(ran("a-y", came=400, bound=401, ended=450), job="a")
    early = of_job(ran("a-x", came=2, bound=2, ended=450), job="a")
    kueue = KueueQueues(workloads=[workload("a", came=0, admitted=1, evicted=evicted)])
    assert kueue.arrival(late) == at(400)
    assert kueue.arrival(early) == at(2 if evicted else 0)


def test_a_pod_that_kueue_does_not_know_is_in_no_queue() -> None:
    kueue = KueueQueues(workloads=WORKLOADS, clusterqueues=[clusterqueue("a", gpus=4)])
    pod = ran("alone", came=5)
    assert (kueue.arrival(pod), kueue.queue_of(pod)) == (at(5), "")
    assert kueue.has_quota("", resource=GPU, count=100, used={})


@pytest.mark.parametrize(
    ("queue", "count", "used", "has"),
    [
        pytest.param({}, 4, {}, True, id="its own quota"),
        pytest.param({}, 5, {}, False, id="beyond it without a cohort"),
        pytest.param({"cohort": "all"}, 6, {}, True, id="what the cohort leaves"),
        pytest.param({"cohort": "all"}, 6, {("b", GPU): 3}, False, id="what the cohort uses itself"),
        pytest.param({"cohort": "all", "borrowing": 1}, 6, {}, False, id="beyond its borrowing limit"),
        pytest.param({"cohort": "all", "borrowing": 1}, 5, {}, True, id="up to its borrowing limit"),
    ],
)
def test_a_queue_s_quota(queue: dict[str, Any], count: int, used: dict[tuple[str, str], int], has: bool) -> None:
    kueue = KueueQueues(clusterqueues=[clusterqueue("a", gpus=4, **queue), clusterqueue("b", gpus=4, cohort="all")])
    assert kueue.has_quota("a", resource=GPU, count=count, used=used) == has
