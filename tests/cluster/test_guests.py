"""Guests on a real control plane: objects of other kinds wait in the queue, start, are preempted and return."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS, GPUJOBS, GPUQUOTAS, JOBS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound, StatusError
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import PREEMPTING
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, Pause
from tests.cluster.test_cli import Shell, main_output, shell

pytestmark = pytest.mark.cluster

__all__ = ["shell"]


def template(*, gpu: str | None = "1", run: float = FOR_EVER) -> dict[str, Any]:
    """A pod template as users write it: the request is an annotation, and nothing else is Dovetail's."""
    asked = {} if gpu is None else {names.REQUEST: gpu}
    return {
        "metadata": {"annotations": {names.RUN_SECONDS: str(run), **asked}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "env": [{"name": "TOKEN", "value": "secret"}]}],
        },
    }


def batch_job(name: str, *, workers: int = 1, priority: int | None = None, **of_template: Any) -> dict[str, Any]:
    """A batch Job that names the queue."""
    said = {} if priority is None else {names.PRIORITY: str(priority)}
    return {
        "metadata": {"name": name, "labels": {names.LABEL_QUEUE: "default"}, "annotations": said},
        "spec": {
            "parallelism": workers,
            "completions": workers,
            "backoffLimit": 0,
            "template": template(**of_template),
        },
    }


class Guests:
    """The guests of one namespace."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.made: list[tuple[Resource, str]] = []

    async def make(self, body: dict[str, Any], *, resource: Resource = JOBS) -> dict[str, Any]:
        """Create one."""
        made = await self.client.create(resource, body=body, as_type=dict[str, Any], namespace=self.namespace)
        self.made.append((resource, made["metadata"]["name"]))
        return made

    async def clear(self) -> None:
        """Delete all, and wait until their pods have gone; `Jobs.clear` waits for those of records."""
        for resource, name in self.made:
            with suppress(NotFound):
                await self.client.delete(resource, name=name, namespace=self.namespace)
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if not [pod for pod in await self.pods() if names.LABEL_JOB not in pod.metadata.labels]:
                    return
                await pause.before_next_look()

    async def pods(self) -> list[Pod]:
        """All pods of the namespace, by name."""
        pods, _ = await self.client.list(PODS, as_type=Pod, namespace=self.namespace)
        return sorted(pods, key=lambda pod: pod.metadata.name)

    async def until_pods(self, holds: Callable[[list[Pod]], bool]) -> list[Pod]:
        """The pods once they are as they should be."""
        pods: list[Pod] = []
        try:
            pause = Pause()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    if holds(pods := await self.pods()):
                        return pods
                    await pause.before_next_look()
        except TimeoutError:
            raise AssertionError(f"the pods are still {pods}") from None

    async def announced(self, reason: str, *, kind: str, name: str) -> Event:
        """The event about a guest with that reason, once it is there."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                events, _ = await self.client.list(EVENTS, as_type=Event, namespace=self.namespace)
                for event in events:
                    about = event.involved_object
                    if (about.kind, about.name, event.reason) == (kind, name, reason):
                        return event
                await pause.before_next_look()


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    # `jobs` is cleared after it: a guest makes another record for one that is deleted.
    made = Guests(client, namespace=jobs.namespace)
    yield made
    await made.clear()


async def test_a_batch_job_is_queued_started_in_a_plan_and_ends(guests: Guests, jobs: Jobs, client: Client) -> None:
    made = await guests.make(batch_job("train", workers=2, gpu="1(A100)"))
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["annotations"][names.USER]
    await jobs.there(GPUJOBS, "job-train")
    running = await jobs.until("job-train", lambda status: status.workers_ready == 2)
    assert {device.worker for device in running.devices} == {0, 1}
    pods = await guests.until_pods(lambda pods: all(pod.status.phase == "Running" for pod in pods))
    assert {allocation_in(pod.metadata.annotations).job for pod in pods} == {"job-train"}  # type: ignore[union-attr]
    record = await client.get(GPUJOBS, name="job-train", as_type=GPUJob, namespace=guests.namespace)
    assert b"secret" not in bytes(record.spec.template.spec)
    assert record.metadata.annotations[names.USER] == made["metadata"]["annotations"][names.USER]
    assert (await guests.announced("Running", kind="Job", name="train")).message
    await jobs.end("job-train")
    done = await jobs.phase("Succeeded", "job-train")
    assert done.workers_succeeded == 2


async def test_a_batch_job_waits_and_says_why_without_a_pod(guests: Guests, jobs: Jobs) -> None:
    await jobs.submit("first", gpu="2(A100)")
    await jobs.phase("Running", "first")
    await guests.make(batch_job("waits", gpu="1(A100)"))
    await jobs.there(GPUJOBS, "job-waits")
    waits = await jobs.phase("Queued", "job-waits", reason="Resources")
    assert waits.message.startswith("Need 1 GPU, only 0 available")
    assert waits.queue is not None
    event = await guests.announced("Resources", kind="Job", name="waits")
    assert event.message.startswith("Need 1 GPU")
    assert [pod for pod in await guests.pods() if names.RUN in pod.metadata.labels] == []
    await jobs.delete("first")
    await jobs.phase("Running", "job-waits")


async def test_a_batch_job_is_preempted_whole_and_returns(guests: Guests, jobs: Jobs) -> None:
    low, high = PREEMPTING
    await guests.make(batch_job("low", workers=2, gpu="1(A100)", priority=low))
    await jobs.there(GPUJOBS, "job-low")
    await jobs.until("job-low", lambda status: status.workers_ready == 2)
    await jobs.submit("high", gpu="1(A100)", priority=high)
    preempted = await jobs.phase("Preempted", "job-low")
    assert preempted.preemption is not None
    assert preempted.preemption.count == 1
    await jobs.phase("Running", "high")
    await jobs.delete("high")
    # The status of a preempted job says for some time how it was when it was preempted.
    await jobs.until("job-low", lambda status: (status.plans, status.workers_ready) == (2, 2))


async def test_only_the_operator_lets_it_go(guests: Guests, jobs: Jobs, mallory: Client) -> None:
    await jobs.submit("first", gpu="2(A100)")
    await jobs.phase("Running", "first")
    await guests.make(batch_job("held", gpu="1(A100)"))
    await jobs.there(GPUJOBS, "job-held")
    await jobs.phase("Queued", "job-held", reason="Resources")
    where: dict[str, Any] = {"name": "held", "as_type": Job, "namespace": guests.namespace}
    with pytest.raises(StatusError, match=r"only Dovetail's operator lets an object of its queue go"):
        await mallory.patch(JOBS, patch={"spec": {"suspend": False}}, **where)
    with pytest.raises(StatusError, match=r"label dovetail\.dev/queue cannot be removed"):
        await mallory.patch(JOBS, patch={"metadata": {"labels": {names.LABEL_QUEUE: None}}}, **where)
    with pytest.raises(StatusError, match=r"annotation dovetail\.dev/user is written by Dovetail's webhook"):
        await mallory.patch(JOBS, patch={"metadata": {"annotations": {names.USER: "root"}}}, **where)


async def test_a_gate_is_opened_by_the_operator_alone(guests: Guests, mallory: Client) -> None:
    body = {**template(gpu=None), "metadata": {"name": "gated"}}
    body["spec"]["schedulingGates"] = [{"name": names.QUEUE_GATE}]
    await guests.make(body, resource=PODS)
    where: dict[str, Any] = {"name": "gated", "as_type": Pod, "namespace": guests.namespace}
    with pytest.raises(StatusError, match=r"scheduling gate dovetail\.dev/queue: only Dovetail's operator opens"):
        await mallory.patch(PODS, patch={"spec": {"schedulingGates": None}}, **where)
    with pytest.raises(StatusError, match=r"annotation dovetail\.dev/seat: only Dovetail's operator"):
        await mallory.patch(PODS, patch={"metadata": {"annotations": {names.SEAT: "uid/0"}}}, **where)


async def test_bad_input_is_one_sentence_on_the_object(guests: Guests) -> None:
    await guests.make(batch_job("odd", priority=999))
    event = await guests.announced("NotQueued", kind="Job", name="odd")
    assert event.message == (
        "Is not queued: annotation dovetail.dev/gpu-priority is '999': it must be a whole number from 0 to 255"
    )


async def test_gpus_by_resources_alone_are_refused_in_one_sentence(guests: Guests) -> None:
    body = batch_job("plain", gpu=None)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    await guests.make(body)
    event = await guests.announced("NotQueued", kind="Job", name="plain")
    assert event.message == (
        "Is not queued: container main requests nvidia.com/gpu, and its pod template has no annotation "
        "dovetail.dev/gpu: pods in the queue request GPUs by the annotation"
    )
    assert await guests.pods() == []


async def test_the_commands_list_hold_release_explain_and_cancel_it(guests: Guests, jobs: Jobs, shell: Shell) -> None:
    await guests.make(batch_job("train", workers=2, gpu="1(A100)"))
    await jobs.there(GPUJOBS, "job-train")
    await jobs.until("job-train", lambda status: status.workers_ready == 2)
    assert " job-train  R " in await shell("gqueue")
    where = ("--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace)
    assert await asyncio.to_thread(main_output, "gjob", "hold", *where, "job-train") == "Job 1 held.\n"
    held = await jobs.phase("Suspended", "job-train", reason="Held")
    assert held.message == "Held: gjob release job-train lets it go on"
    await guests.until_pods(lambda pods: not pods)
    assert await asyncio.to_thread(main_output, "gjob", "release", *where, "job-train") == "Job 1 released.\n"
    await jobs.until("job-train", lambda status: status.workers_ready == 2)
    told = await asyncio.to_thread(main_output, "explain", "job", *where, "job-train")
    assert told.startswith("Job 1 (job-train) is on a100-0 with GPU 0,1\n")
    assert await shell("gcancel", "job-train") == "Job 1 cancelled.\n"
    await jobs.phase("Cancelled", "job-train")
    await guests.until_pods(lambda pods: not pods)
    left = await guests.client.get(JOBS, name="train", as_type=Job, namespace=guests.namespace)
    assert left.spec.suspend


async def test_a_quota_counts_it(guests: Guests, jobs: Jobs, client: Client) -> None:
    limit = {"metadata": {"name": guests.namespace}, "spec": {"namespaces": [guests.namespace], "limit": {"gpus": 2}}}
    await client.create(GPUQUOTAS, body=limit, as_type=dict[str, Any])
    try:
        await guests.make(batch_job("first", workers=2, gpu="1(V100)"))
        await jobs.there(GPUJOBS, "job-first")
        await jobs.until("job-first", lambda status: status.workers_ready == 2)
        await guests.make(batch_job("second", gpu="1(V100)"))
        await jobs.there(GPUJOBS, "job-second")
        waits = await jobs.phase("Queued", "job-second", reason="Quota")
        assert guests.namespace in waits.message
        await jobs.end("job-first")
        await jobs.phase("Running", "job-second")
    finally:
        await client.delete(GPUQUOTAS, name=guests.namespace)


async def test_an_operator_that_is_restarted_goes_on(guests: Guests, jobs: Jobs, sandbox: Cluster) -> None:
    await guests.make(batch_job("runs", workers=2, gpu="1(A100)"))
    await jobs.there(GPUJOBS, "job-runs")
    before = await jobs.until("job-runs", lambda status: status.workers_ready == 2)
    await guests.make(batch_job("waits", gpu="1(A100)"))
    await jobs.there(GPUJOBS, "job-waits")
    await jobs.phase("Queued", "job-waits", reason="Resources")
    pods = {pod.metadata.uid for pod in await jobs.pods("job-runs")}
    await asyncio.to_thread(sandbox.restart, "operator")
    assert {pod.metadata.uid for pod in await jobs.pods("job-runs")} == pods
    await jobs.end("job-runs")
    done = await jobs.phase("Succeeded", "job-runs")
    assert (done.plans, done.devices) == (before.plans, before.devices)
    await jobs.phase("Running", "job-waits")
