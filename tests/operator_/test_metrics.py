"""What a scrape of the operator reads from its state."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.kube.leader_election import Leadership
from dovetail_operator.metrics import (
    JobsCollector,
    LeaseCollector,
    NamespaceQueuesCollector,
    NamespacesCollector,
    QuotasCollector,
)
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, at, make_job, make_state


@pytest.fixture
def state() -> State:
    return make_state(a=4)


def scraped(state: State) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(JobsCollector(state))
    registry.register(NamespacesCollector(state, now=lambda: NOW))
    registry.register(NamespaceQueuesCollector(state))
    return registry


def created(seconds: float, namespace: str = "team") -> dict[str, Any]:
    return {"creationTimestamp": at(seconds), "namespace": namespace}


def held(*devices: tuple[str, int]) -> dict[str, Any]:
    """The status of a running job with these shares of the devices of node a."""
    found = [
        {"worker": 0, "node": "a", "index": 0, "uuid": uuid, "shareMilli": share, "memoryMiB": 100}
        for uuid, share in devices
    ]
    return {"phase": "Running", "startTime": at(-60), "devices": found}


def report(state: State, **utilization: float) -> None:
    """The agent of node a reports the load of its devices; `_` in a name stands for `-`."""
    devices = [
        {
            "index": index,
            "uuid": uuid.replace("_", "-"),
            "vendor": "nvidia",
            "model": "V100",
            "memoryMiB": 32768,
            "utilization": value,
        }
        for index, (uuid, value) in enumerate(utilization.items())
    ]
    status = {"devices": devices, "observedAt": at(-5)}
    state.store.gpunode_changed(msgspec.convert({"metadata": {"name": "a"}, "status": status}, GPUNode))


def test_the_oldest_waiting_job_of_each_reason_has_its_time(state: State) -> None:
    waits = {"phase": "Queued", "reason": "Resources"}
    state.store.job_changed(make_job("young", status=waits, meta=created(-10)))
    state.store.job_changed(make_job("old", status=waits, meta=created(-7200)))
    state.store.job_changed(make_job("held", status={"phase": "Held", "reason": "Held"}, meta=created(-900)))
    state.store.job_changed(make_job("running", status={"phase": "Running"}, meta=created(-99999)))
    registry, name = scraped(state), "dovetail_jobs_oldest_waiting_timestamp_seconds"
    assert registry.get_sample_value(name, {"reason": "Resources"}) == (NOW - timedelta(hours=2)).timestamp()
    assert registry.get_sample_value(name, {"reason": "Held"}) == (NOW - timedelta(seconds=900)).timestamp()
    assert registry.get_sample_value(name, {"reason": "Priority"}) is None


def test_a_job_without_a_status_is_being_evaluated(state: State) -> None:
    state.store.job_changed(make_job("new", meta=created(-3)))
    registry = scraped(state)
    assert registry.get_sample_value("dovetail_jobs_waiting", {"reason": "Evaluating"}) == 1
    oldest = registry.get_sample_value("dovetail_jobs_oldest_waiting_timestamp_seconds", {"reason": "Evaluating"})
    assert oldest == (NOW - timedelta(seconds=3)).timestamp()


def waits(state: State, name: str, *, since: float, namespace: str = "team", **status: Any) -> None:
    meta = created(since, namespace) | {"uid": f"{namespace}-{name}"}
    queued = {"phase": "Queued", "reason": "Resources", **status}
    state.store.job_changed(make_job(name, status=queued, meta=meta))


def test_a_namespace_s_queue_has_its_length_its_oldest_job_and_its_next_start(state: State) -> None:
    waits(state, "old", since=-600, queue={"position": 1, "estimatedStart": at(300)})
    waits(state, "young", since=-60, reason="Quota", queue={"position": 2, "estimatedStart": at(900)})
    waits(state, "of-its-user", since=-9999, reason="Dependency")
    waits(state, "held", since=-9999, phase="Held", reason="Held")
    waits(state, "unknown", since=-5, namespace="other", phase="Preempted", reason="Resources")
    registry = scraped(state)

    def value(name: str, namespace: str = "team") -> float | None:
        return registry.get_sample_value(f"dovetail_namespace_{name}", {"namespace": namespace})

    assert (value("jobs_waiting"), value("jobs_waiting", "other")) == (2, 1)
    assert value("oldest_waiting_timestamp_seconds") == (NOW - timedelta(seconds=600)).timestamp()
    assert value("next_start_timestamp_seconds") == (NOW + timedelta(seconds=300)).timestamp()
    assert value("next_start_timestamp_seconds", "other") is None


def test_a_namespace_whose_jobs_all_run_has_an_empty_queue_and_not_an_unknown_one(state: State) -> None:
    waits(state, "runs", since=-60, phase="Running", reason="Admitted")
    registry, team = scraped(state), {"namespace": "team"}
    assert registry.get_sample_value("dovetail_namespace_jobs_waiting", team) == 0
    assert registry.get_sample_value("dovetail_namespace_oldest_waiting_timestamp_seconds", team) is None


def test_the_shortest_of_many_queues_are_one(state: State) -> None:
    for number in range(502):
        waits(state, "first", since=-number, namespace=f"ns-{number}")
        if number > 1:
            waits(state, "second", since=-number, namespace=f"ns-{number}")
    registry = scraped(state)
    of_others = {"namespace": "(others)"}
    assert registry.get_sample_value("dovetail_namespace_jobs_waiting", of_others) == 2
    oldest = registry.get_sample_value("dovetail_namespace_oldest_waiting_timestamp_seconds", of_others)
    assert oldest == (NOW - timedelta(seconds=1)).timestamp()
    assert registry.get_sample_value("dovetail_namespace_jobs_waiting", {"namespace": "ns-0"}) is None


def test_held_and_idle_gpus_are_summed_by_namespace(state: State) -> None:
    report(state, g0=0.25, g1=0.75, g2=0.5)
    state.store.job_changed(make_job("one", status=held(("g0", 1000), ("g1", 1000)), meta=created(-99)))
    state.store.job_changed(make_job("two", status=held(("g2", 500)), meta=created(-99, "other")))
    registry = scraped(state)
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "team"}) == 2
    # A quarter of the busier device is idle.
    assert registry.get_sample_value("dovetail_gpus_held_idle", {"namespace": "team"}) == pytest.approx(0.5)
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "other"}) == 0.5
    assert registry.get_sample_value("dovetail_gpus_held_idle", {"namespace": "other"}) == 0.25


def test_devices_that_nobody_measures_are_not_called_idle(state: State) -> None:
    state.store.job_changed(make_job("one", status=held(("g9", 1000)), meta=created(-99)))
    registry = scraped(state)
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "team"}) == 1
    assert registry.get_sample_value("dovetail_gpus_held_idle", {"namespace": "team"}) == 0


def test_a_job_that_has_ended_holds_nothing(state: State) -> None:
    ended = held(("g0", 1000)) | {"phase": "Succeeded", "completionTime": at(0)}
    state.store.job_changed(make_job("one", status=ended, meta=created(-99)))
    assert scraped(state).get_sample_value("dovetail_gpus_held", {"namespace": "team"}) is None


def test_the_smallest_of_many_namespaces_are_one_sum(state: State) -> None:
    for number in range(502):
        status = held((f"g{number}", 10 if number < 2 else 1000))
        meta = created(-99, f"ns-{number}") | {"uid": f"uid-{number}"}
        state.store.job_changed(make_job(f"j{number}", status=status, meta=meta))
    registry = scraped(state)
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "(others)"}) == pytest.approx(0.02)
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "ns-0"}) is None
    assert registry.get_sample_value("dovetail_gpus_held", {"namespace": "ns-2"}) == 1


@dataclass
class Office:
    remaining_seconds: float


@pytest.mark.parametrize(("remaining", "value"), [(5.0, 1.0), (0.0, 0.0)])
def test_the_lease_is_held_as_long_as_it_lasts(remaining: float, value: float) -> None:
    registry = CollectorRegistry()
    registry.register(LeaseCollector(cast("Leadership", Office(remaining))))
    assert registry.get_sample_value("dovetail_operator_lease_held") == value


def test_the_quotas_of_a_tree_have_series_and_others_have_none() -> None:
    state, registry = make_state(), CollectorRegistry()
    guarantee = {"gpus": 4, "used": 6, "lent": 0, "borrowed": 2, "waiting": 0}
    for name, status in (("team", {"guarantee": guarantee}), ("plain", {})):
        state.store.quotas.update(msgspec.convert({"metadata": {"name": name}, "spec": {}, "status": status}, GPUQuota))
    registry.register(QuotasCollector(state))
    assert registry.get_sample_value("dovetail_quota_gpus", {"quota": "team", "kind": "borrowed"}) == 2
    assert registry.get_sample_value("dovetail_quota_gpus", {"quota": "plain", "kind": "used"}) is None


@pytest.mark.parametrize(
    ("known", "values"), [({"expected": 6, "error": 1.5, "hours": 9}, (6, 1.5)), ({}, (None, None))]
)
def test_the_forecast_of_a_quota_has_series_once_it_has_one(known: dict[str, Any], values: tuple[Any, Any]) -> None:
    state, registry = make_state(), CollectorRegistry()
    forecast = {"since": at(-9000), "hour": at(-5)} | known
    quota = {"metadata": {"name": "q"}, "spec": {"forecast": {"gpus": 8}}, "status": {"forecast": forecast}}
    state.store.quotas.update(msgspec.convert(quota, GPUQuota))
    registry.register(QuotasCollector(state))
    names = "dovetail_quota_forecast_gpus", "dovetail_quota_forecast_error_gpus"
    assert tuple(registry.get_sample_value(name, {"quota": "q"}) for name in names) == values


@pytest.mark.parametrize(("valid", "value"), [("False", 1.0), ("True", 0.0), (None, None)])
def test_a_quota_that_contradicts_its_tree_has_a_series(valid: str | None, value: float | None) -> None:
    state, registry = make_state(), CollectorRegistry()
    condition = {
        "type": "Valid",
        "status": valid,
        "reason": "ParentMissing",
        "message": "",
        "lastTransitionTime": at(-5),
    }
    status = {"conditions": [] if valid is None else [condition]}
    state.store.quotas.update(msgspec.convert({"metadata": {"name": "q"}, "spec": {}, "status": status}, GPUQuota))
    registry.register(QuotasCollector(state))
    assert registry.get_sample_value("dovetail_quota_contradictory", {"quota": "q"}) == value
