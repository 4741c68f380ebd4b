"""A namespace whose GPUs are given through the queue only: what is refused there, and what is not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import GPUJOBS, NAMESPACES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from tests.cluster.jobs import Jobs
from tests.cluster.test_guests import Guests, batch_job, template

pytestmark = pytest.mark.cluster

REFUSED = (
    r"gives GPUs through Dovetail's queue only: give this pod, or the object that makes it, the label "
    r"dovetail\.dev/queue, or submit a GPUJob"
)


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    where: dict[str, Any] = {"name": jobs.namespace, "as_type": dict[str, Any]}
    await client.patch(NAMESPACES, patch={"metadata": {"labels": {names.QUEUE_ONLY: "true"}}}, **where)
    made = Guests(client, namespace=jobs.namespace)
    yield made
    await made.clear()


def pod(name: str, *, labels: dict[str, str] | None = None, gpu: str | None = "1(A100)") -> dict[str, Any]:
    body = template(gpu=gpu)
    return {**body, "metadata": {**body["metadata"], "name": name, "labels": labels or {}}}


async def test_a_gpu_pod_past_the_queue_is_refused_in_one_sentence(guests: Guests) -> None:
    with pytest.raises(StatusError, match=REFUSED):
        await guests.make(pod("past"), resource=PODS)
    plain = pod("past", gpu=None)
    plain["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    with pytest.raises(StatusError, match=REFUSED):
        await guests.make(plain, resource=PODS)
    # A run without the gate that the webhook gives with it.
    with pytest.raises(StatusError, match=REFUSED):
        await guests.make(pod("past", labels={names.LABEL_QUEUE: "default", names.RUN: "forged"}), resource=PODS)


async def test_gpus_that_the_queue_does_not_count_are_refused_with_run_and_gate_too(guests: Guests) -> None:
    """As a pod of a guest, whose gate would open without a seat."""
    split = pod("split", labels={names.RUN: "forged"}, gpu=None)
    split["metadata"]["annotations"] = {f"{names.REQUEST}.main": "1(A100)"}
    split["spec"]["schedulingGates"] = [{"name": names.QUEUE_GATE}]
    with pytest.raises(StatusError, match=REFUSED):
        await guests.make(split, resource=PODS)


async def test_what_waits_in_the_queue_and_what_needs_no_gpu_is_admitted(guests: Guests, jobs: Jobs) -> None:
    await guests.make(pod("side", gpu=None), resource=PODS)
    await guests.make(pod("queued", labels={names.LABEL_QUEUE: "default"}), resource=PODS)
    await guests.make(batch_job("train", gpu="1(V100)"))
    await jobs.submit("own", gpu="1(T4)")
    for record in ("pod-queued", "job-train"):
        await jobs.there(GPUJOBS, record)
    for job in ("pod-queued", "job-train", "own"):
        await jobs.phase("Running", job)


async def test_a_seat_in_another_namespace_is_not_looked_at(client: Client, jobs: Jobs) -> None:
    """Without the label, a pod that names no queue gets its GPU as ever."""
    made = Guests(client, namespace=jobs.namespace)
    await made.make(pod("free"), resource=PODS)
    try:
        await made.until_pods(lambda pods: any(is_running(each) for each in pods))
    finally:
        await made.clear()


def is_running(found: Pod) -> bool:
    return found.metadata.name == "free" and found.status.phase == "Running"
