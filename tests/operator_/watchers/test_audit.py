"""The operator's own audit: what it counts, and which findings need a second look."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.audit.allocations import Rules
from dovetail.kube.client import Client
from dovetail_operator.watchers.audit import AuditWatch
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, at, make_job, make_pod

SLICES = "GET /apis/resource.k8s.io/v1/resourceslices"


class Cluster:
    """The objects of the informers, and the audit of them."""

    def __init__(self, client: Client) -> None:
        self.nodes = [msgspec.convert({"metadata": {"name": "n1", "labels": {"dovetail.dev/managed": "true"}}}, Node)]
        device = {"index": 0, "uuid": "GPU-n1-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
        self.gpunodes = [msgspec.convert({"metadata": {"name": "n1"}, "status": {"devices": [device]}}, GPUNode)]
        self.pods: list[Pod] = []
        self.jobs: list[GPUJob] = []
        self.registry = CollectorRegistry()
        self.looks = 0
        self.at_look: dict[int, list[GPUJob]] = {}
        self.watch = AuditWatch(
            client,
            nodes=lambda: self.nodes,
            gpunodes=lambda: self.gpunodes,
            pods=lambda: self.pods,
            jobs=self._jobs,
            rules=Rules(),
            registry=self.registry,
            now=self._now,
            pause_seconds=0.0,
        )

    def count(self, kind: str) -> float | None:
        return self.registry.get_sample_value("dovetail_audit_findings", {"kind": kind})

    def _jobs(self) -> list[GPUJob]:
        self.looks += 1
        return self.at_look.get(self.looks, self.jobs)

    def _now(self) -> datetime:
        return NOW


@pytest.fixture
def cluster(api: Api, client: Client) -> Cluster:
    api.answer(SLICES, *[Answer(body={"metadata": {"resourceVersion": "1"}, "items": []})] * 400)
    return Cluster(client)


def tenant(number: int) -> Pod:
    """A pod that was promised the whole of the node's only device."""
    meta = {"name": f"p{number}", "uid": f"uid-{number}", "ownerReferences": [], "labels": {}}
    return make_pod(number, devices=1, meta=meta | {"annotations": make_pod(devices=1).metadata.annotations})


async def test_nothing_is_counted_before_the_first_audit(cluster: Cluster) -> None:
    assert cluster.count("ShareOverpromised") is None
    assert cluster.registry.get_sample_value("dovetail_audit_timestamp_seconds") is None


async def test_a_clean_cluster_has_no_finding_and_a_time(cluster: Cluster) -> None:
    await cluster.watch.audit()
    assert cluster.count("ShareOverpromised") == 0
    assert cluster.registry.get_sample_value("dovetail_audit_timestamp_seconds") == NOW.timestamp()


async def test_a_device_that_two_pods_hold_is_counted_until_one_is_gone(cluster: Cluster) -> None:
    cluster.pods = [tenant(1), tenant(2)]
    await cluster.watch.audit()
    assert cluster.count("ShareOverpromised") == 1
    cluster.pods.pop()
    await cluster.watch.audit()
    assert cluster.count("ShareOverpromised") == 0


def late(**status: Any) -> GPUJob:
    """A job whose status shows a device that no pod of it holds."""
    device = {"worker": 0, "node": "n1", "index": 0, "uuid": "GPU-n1-0", "shareMilli": 1000, "memoryMiB": 100}
    return make_job("x", status={"phase": "Running", "startTime": at(-9), "devices": [device], **status})


async def test_a_status_that_lags_is_no_finding_if_it_has_caught_up(cluster: Cluster) -> None:
    cluster.at_look = {1: [late()]}
    await cluster.watch.audit()
    assert cluster.looks == 2
    assert cluster.count("AllocationWithoutPod") == 0


async def test_a_status_that_begins_to_lag_meanwhile_is_of_the_next_audit(cluster: Cluster) -> None:
    other = msgspec.structs.replace(late(), metadata=msgspec.structs.replace(late().metadata, name="y", uid="uid-y"))
    cluster.at_look = {1: [late()]} | {look: [other] for look in range(2, 14)}
    await cluster.watch.audit()
    assert (cluster.looks, cluster.count("AllocationWithoutPod")) == (2, 0)


async def test_a_status_that_stays_wrong_is_a_finding(cluster: Cluster) -> None:
    cluster.jobs = [late()]
    await cluster.watch.audit()
    assert cluster.looks == 13
    assert cluster.count("AllocationWithoutPod") == 1


async def test_a_status_that_catches_up_at_the_last_look_is_no_finding(cluster: Cluster) -> None:
    cluster.at_look = {look: [late()] for look in range(1, 13)}
    await cluster.watch.audit()
    assert (cluster.looks, cluster.count("AllocationWithoutPod")) == (13, 0)


async def test_an_operator_that_may_not_list_slices_audits_the_rest(api: Api, client: Client) -> None:
    api.answer(SLICES, *[refusal(403, reason="Forbidden")] * 4)
    cluster = Cluster(client)
    cluster.pods = [tenant(1), tenant(2)]
    await cluster.watch.audit()
    assert cluster.count("ShareOverpromised") == 1
