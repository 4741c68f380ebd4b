"""Deployments, StatefulSets and LeaderWorkerSets in the queue, on a real control plane: each replica waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, PODS, Resource
from dovetail.jobs.guests.replicas import DEPLOYMENTS, STATEFULSETS
from dovetail.kube.client import Client
from tests.cluster.conftest import PREEMPTING
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.cluster.test_guests import Guests
from tests.cluster.test_pod_groups import all_run, is_gated, members
from tests.core.jobs.guests.examples import FOLDER

pytestmark = pytest.mark.cluster


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    made = Guests(client, namespace=jobs.namespace)
    yield made
    await made.clear()
    await until_records(made, count=0)


def example(name: str, *, gpu: str, **metadata: Any) -> dict[str, Any]:
    """An example whose pods request this, and run until they are ended."""
    body: dict[str, Any] = yaml.safe_load(FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    body["metadata"] |= metadata
    body["spec"]["template"]["metadata"]["annotations"] = {names.REQUEST: gpu, names.RUN_SECONDS: str(FOR_EVER)}
    return body


async def scale(guests: Guests, *, kind: Resource, name: str, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await guests.client.patch(kind, name=name, patch=patch, as_type=dict[str, Any], namespace=guests.namespace)


async def until_records(guests: Guests, *, count: int, phase: str = "") -> list[GPUJob]:
    """The records once as many are there, all in that phase if one is given."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            records, _ = await guests.client.list(GPUJOBS, as_type=GPUJob, namespace=guests.namespace)
            found = [each for each in records if each.metadata.name.startswith("pod")]
            if len(found) == count and all(not phase or each.status.phase == phase for each in found):
                return found
            await asyncio.sleep(0.05)


async def test_a_deployment_scales_through_the_queue(guests: Guests, jobs: Jobs) -> None:
    made = await guests.make(example("deployment", gpu="1(A100)"), resource=DEPLOYMENTS.resource)
    assert made["spec"]["template"]["metadata"]["labels"][names.LABEL_QUEUE] == "default"
    running = await until_records(guests, count=2, phase="Running")
    assert len({device.uuid for record in running for device in record.status.devices}) == 2
    await scale(guests, kind=DEPLOYMENTS.resource, name="serve", replicas=3)
    records = await until_records(guests, count=3)
    waiting = next(each.metadata.name for each in records if each.metadata.name not in names_of(running))
    waits = await jobs.phase("Queued", waiting, reason="Resources")
    assert waits.message.startswith("Need 1 GPU, only 0 available")
    assert [is_gated(pod) for pod in await guests.pods()].count(True) == 1
    await scale(guests, kind=DEPLOYMENTS.resource, name="serve", replicas=1)
    await guests.until_pods(lambda pods: all_run(pods, count=1))
    await until_records(guests, count=1, phase="Running")
    await jobs.submit("next", gpu="1(A100)")
    await jobs.phase("Running", "next")


def names_of(records: list[GPUJob]) -> set[str]:
    return {each.metadata.name for each in records}


async def test_a_replica_is_preempted_and_its_successor_waits(guests: Guests, jobs: Jobs) -> None:
    low, high = PREEMPTING
    said = {"annotations": {names.PRIORITY: str(low)}}
    await guests.make(example("statefulset", gpu="1(A100)", **said), resource=STATEFULSETS.resource)
    await until_records(guests, count=2, phase="Running")
    before = {pod.metadata.name: pod.metadata.uid for pod in await guests.pods()}
    await jobs.submit("high", gpu="1(A100)", priority=high)
    await jobs.phase("Running", "high")
    pods = await guests.until_pods(lambda pods: [is_gated(pod) for pod in members(pods)].count(True) == 1)
    (successor,) = [pod for pod in members(pods) if is_gated(pod)]
    assert successor.metadata.uid != before[successor.metadata.name]
    await jobs.there(GPUJOBS, f"pod-{successor.metadata.name}")
    await jobs.phase("Queued", f"pod-{successor.metadata.name}", reason="Resources")
    await jobs.delete("high")
    await until_records(guests, count=2, phase="Running")


def pinned(node: str) -> dict[str, Any]:
    """A template whose pods run on this node until they are ended."""
    container = {"name": "main", "image": "busybox"}
    return {
        "metadata": {"annotations": {names.RUN_SECONDS: str(FOR_EVER)}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]},
    }


async def test_the_next_replica_of_a_service_goes_where_the_last_one_ran(guests: Guests, jobs: Jobs) -> None:
    await jobs.submit("first", gpu="2(T4)")
    (full,) = (await jobs.phase("Running", "first")).nodes
    served = example("deployment", gpu="1(T4)")
    served["spec"]["replicas"] = 1
    served["spec"]["template"]["metadata"]["annotations"][names.WORKLOAD] = "Inference"
    await guests.make(served, resource=DEPLOYMENTS.resource)
    (record,) = await until_records(guests, count=1, phase="Running")
    (warm,) = record.status.nodes
    assert warm != full
    await scale(guests, kind=DEPLOYMENTS.resource, name="serve", replicas=0)
    await until_records(guests, count=0)
    await jobs.delete("first")
    # The other node is the better one now: it has one card left.
    await jobs.submit("small", gpu="1(T4)", template=pinned(full))
    await jobs.phase("Running", "small")
    await jobs.submit("next", gpu="1(T4)")
    assert (await jobs.phase("Running", "next")).nodes == [full]
    await jobs.delete("next")
    await jobs.gone(GPUJOBS, "next")
    await scale(guests, kind=DEPLOYMENTS.resource, name="serve", replicas=1)
    (record,) = await until_records(guests, count=1, phase="Running")
    assert record.status.nodes == [warm]
    assert record.spec.template.metadata.annotations == {names.WARM_NODES: warm}


def part_of_replica(name: str, *, worker: int) -> dict[str, Any]:
    """A pod as LeaderWorkerSet's controller makes it for a replica of two pods."""
    lws = "leaderworkerset.sigs.k8s.io"
    labels = {names.LABEL_QUEUE: "default", f"{lws}/name": "llm", f"{lws}/worker-index": str(worker)}
    if worker:
        labels[f"{lws}/group-index"] = "0"
    annotations = {f"{lws}/size": "2", names.REQUEST: "1(A100)", names.RUN_SECONDS: str(FOR_EVER)}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"restartPolicy": "Always", "containers": [{"name": "main", "image": "busybox"}]},
    }


async def test_the_pods_of_a_leaderworkersets_replica_start_together(guests: Guests, jobs: Jobs) -> None:
    """LeaderWorkerSet is not installed: its pods are made here as its documentation says."""
    await guests.make(part_of_replica("llm-0", worker=0), resource=PODS)
    await guests.make(part_of_replica("llm-0-1", worker=1), resource=PODS)
    await jobs.there(GPUJOBS, "podgroup-llm-0")
    await jobs.until("podgroup-llm-0", lambda status: status.workers_ready == 2)
    pods: list[Pod] = await guests.until_pods(lambda pods: all_run(pods, count=2))
    assert {pod.metadata.labels[names.POD_GROUP] for pod in pods} == {"llm-0"}
