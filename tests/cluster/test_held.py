"""What a guest holds on a real control plane: what it asks for, by pods that exist or can still come."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, JOBS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound, StatusError
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, manifest
from tests.cluster.test_cli import Shell, main_output, shell
from tests.cluster.test_guests import Guests, batch_job, guests, template

pytestmark = pytest.mark.cluster

__all__ = ["guests", "shell"]

DEPLOYMENTS: Final = Resource(group="apps", plural="deployments", kind="Deployment")
STATEFULSETS: Final = Resource(group="apps", plural="statefulsets", kind="StatefulSet")


async def scale(guests: Guests, name: str, *, to: int, kind: Resource = JOBS) -> None:
    """Ask for another number of pods, as `kubectl patch` and `kubectl scale` do."""
    spec = {"parallelism": to} if kind is JOBS else {"replicas": to}
    await guests.client.patch(kind, name=name, patch={"spec": spec}, as_type=dict[str, Any], namespace=guests.namespace)


async def at_work(guests: Guests, jobs: Jobs, name: str, *, workers: int, gpu: str) -> None:
    """A batch Job in the queue whose pods run; it may still make many of them."""
    body = batch_job(name, workers=workers, gpu=gpu)
    body["spec"] |= {"completions": 100, "backoffLimit": 6}
    await guests.make(body)
    await jobs.there(GPUJOBS, f"job-{name}")
    await jobs.until(f"job-{name}", lambda status: status.workers_ready == workers)


async def said_of(guests: Guests, pod: str, *, reason: str) -> str:
    return (await guests.announced(reason, kind="Pod", name=pod)).message


async def quota_of(client: Client, name: str) -> GPUQuota:
    return await client.get(GPUQUOTAS, name=name, as_type=GPUQuota)


async def record_until(jobs: Jobs, name: str, holds: Callable[[GPUJobStatus], bool]) -> GPUJobStatus:
    """The status of a guest's record once it is as it should be; another one may replace the record meanwhile."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(NotFound):
                return await jobs.until(name, holds)
            await asyncio.sleep(0.05)


async def until_used(client: Client, name: str, *, gpus: float) -> None:
    """Wait until the quota's status says that so many GPUs are in use."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if (await quota_of(client, name)).status.gpus == gpus:
                return
            await asyncio.sleep(0.05)


async def test_a_running_job_that_is_scaled_to_nothing_gives_all_its_gpus_back(guests: Guests, jobs: Jobs) -> None:
    await at_work(guests, jobs, "leak", workers=2, gpu="1(A100)")
    await scale(guests, "leak", to=0)
    # A GPUJob and a plain pod of that size.
    await jobs.submit("next", gpu="1(A100)")
    await guests.make({**template(gpu="1(A100)"), "metadata": {"name": "plain", **template(gpu="1(A100)")["metadata"]}},
                      resource=PODS)  # fmt: skip
    await jobs.phase("Running", "next")
    await guests.until_pods(
        lambda pods: [p.metadata.name for p in pods if p.status.phase == "Running"][-1:] == ["plain"]
    )
    status = await jobs.until("job-leak", lambda status: status.gpus == 0)
    assert status.placement is not None
    assert status.placement.released == [0, 1]


async def test_a_job_that_is_scaled_down_keeps_the_seats_of_its_other_pods_alone(guests: Guests, jobs: Jobs) -> None:
    await at_work(guests, jobs, "par", workers=4, gpu="1(V100)")
    await scale(guests, "par", to=2)
    await jobs.submit("rest", gpu="1(V100)", workers=6)
    await jobs.until("rest", lambda status: status.workers_ready == 6)
    status = await jobs.until("job-par", lambda status: len(status.devices) == 2)
    assert (status.phase, status.gpus, status.workers_ready) == ("Running", 2, 2)
    # A pod that ends well is followed by another one in the same seat, while others wait for that room.
    await jobs.submit("waits", gpu="1(V100)")
    await jobs.phase("Queued", "waits", reason="Resources")
    first, *_ = await jobs.pods("job-par")
    await jobs.end_pod(first)
    await jobs.until("job-par", lambda status: status.workers_succeeded == 1 and status.workers_ready == 2)
    assert (await jobs.phase("Queued", "waits")).reason == "Resources"


async def test_a_job_that_nothing_runs_of_returns_to_the_queue_when_it_asks_for_pods_again(
    guests: Guests, jobs: Jobs
) -> None:
    await at_work(guests, jobs, "again", workers=2, gpu="1(A100)")
    await scale(guests, "again", to=0)
    await jobs.until("job-again", lambda status: status.gpus == 0)
    await jobs.submit("next", gpu="2(A100)")
    await jobs.phase("Running", "next")
    await scale(guests, "again", to=1)
    # One worker instead of two: it gets another record.
    waits = await record_until(
        jobs, "job-again", lambda status: (status.phase, status.reason) == ("Queued", "Resources")
    )
    assert waits.message.startswith("Need 1 GPU, only 0 available")
    await jobs.delete("next")
    await jobs.until("job-again", lambda status: status.workers_ready == 1)


async def test_pods_by_which_a_running_job_grows_wait_one_by_one_and_say_why(
    guests: Guests, jobs: Jobs, shell: Shell
) -> None:
    await at_work(guests, jobs, "up", workers=1, gpu="1(A100)")
    await scale(guests, "up", to=3)
    pods = await guests.until_pods(lambda pods: len([p for p in pods if p.status.phase == "Running"]) == 2)
    (waiting,) = [pod for pod in pods if pod.status.phase != "Running"]
    name = waiting.metadata.name
    assert (await said_of(guests, name, reason="Resources")).startswith("Need 1 GPU, only 0 available")
    where = ("--kubeconfig", str(shell.kubeconfig), "--namespace", shell.namespace)
    told = await asyncio.to_thread(main_output, "explain", "pod", *where, name)
    assert f"It waits in the queue as GPUJob pod-{name}: Resources, Need 1 GPU, only 0 available" in told
    # Another pod of the job ends: the one that waits starts, and a new one waits after it.
    (first,) = await jobs.pods("job-up")
    assert (await jobs.phase("Running", "job-up")).gpus == 1
    await scale(guests, "up", to=2)
    await guests.until_pods(
        lambda pods: [p.status.phase for p in pods if not p.metadata.deletion_timestamp] == ["Running"] * 2
    )
    await scale(guests, "up", to=0)
    await guests.until_pods(lambda pods: not pods)
    await jobs.gone(GPUJOBS, f"pod-{name}")
    await jobs.submit("next", gpu="2(A100)")
    await jobs.phase("Running", "next")
    assert first.metadata.name != name


async def test_a_job_that_leaves_its_pods_behind_leaves_no_record_and_quotas_count_the_pods(
    guests: Guests, jobs: Jobs, client: Client
) -> None:
    """As `kubectl delete job --cascade=orphan` does."""
    limit = {"metadata": {"name": guests.namespace}, "spec": {"namespaces": [guests.namespace], "limit": {"gpus": 2}}}
    await client.create(GPUQUOTAS, body=limit, as_type=dict[str, Any])
    try:
        await at_work(guests, jobs, "orphaned", workers=2, gpu="1(A100)")
        left = await jobs.pods("job-orphaned")
        await client.delete(JOBS, name="orphaned", namespace=guests.namespace, propagation="Orphan")
        await jobs.gone(GPUJOBS, "job-orphaned")
        await jobs.submit("next", gpu="1(V100)")
        waits = await jobs.phase("Queued", "next", reason="Quota")
        assert guests.namespace in waits.message
        await until_used(client, guests.namespace, gpus=2)
        pods = {pod.metadata.name: pod for pod in await guests.pods()}
        assert [pods[each.metadata.name].status.phase for each in left] == ["Running", "Running"]
        for each in left:
            await client.delete(PODS, name=each.metadata.name, namespace=guests.namespace)
        await jobs.phase("Running", "next")
        await jobs.submit("all", gpu="1(A100)")
        await jobs.phase("Running", "all")
    finally:
        await client.delete(GPUQUOTAS, name=guests.namespace)
        for each in left:
            with suppress(NotFound):
                await client.delete(PODS, name=each.metadata.name, namespace=guests.namespace)


async def test_an_orphan_that_ended_meanwhile_leaves_nothing_for_the_next_operator(
    guests: Guests, jobs: Jobs, client: Client
) -> None:
    """The record has no owner any more when the operator sees it for the first time."""
    await at_work(guests, jobs, "ghost", workers=1, gpu="2(A100)")
    (pod,) = await jobs.pods("job-ghost")
    await client.delete(JOBS, name="ghost", namespace=guests.namespace, propagation="Orphan")
    await client.delete(PODS, name=pod.metadata.name, namespace=guests.namespace)
    await jobs.gone(GPUJOBS, "job-ghost")
    await jobs.submit("next", gpu="2(A100)")
    await jobs.phase("Running", "next")


async def test_a_pod_of_another_size_gets_no_seat_of_a_guest(
    guests: Guests, jobs: Jobs, client: Client, mallory: Client
) -> None:
    """A quota of one GPU, a guest with a tenth of one, and a pod with its run that asks for two."""
    limit = {"metadata": {"name": guests.namespace}, "spec": {"namespaces": [guests.namespace], "limit": {"gpus": 1}}}
    await client.create(GPUQUOTAS, body=limit, as_type=dict[str, Any])
    try:
        await at_work(guests, jobs, "small", workers=1, gpu="0.1(A100)")
        (own,) = await jobs.pods("job-small")
        run = own.metadata.labels[names.RUN]
        made = template(gpu="2(A100)")
        body = {
            "metadata": {"name": "big", "labels": {names.RUN: run}, "annotations": made["metadata"]["annotations"]},
            "spec": {**made["spec"], "schedulingGates": [{"name": names.QUEUE_GATE}]},
        }
        await mallory.create(PODS, body=body, as_type=Pod, namespace=guests.namespace)
        guests.made.append((PODS, "big"))
        # It ends well: after a failure, the Job controller creates the next one only after 10 s.
        await jobs.end_pod(own)
        message = await said_of(guests, "big", reason="NotQueued")
        assert message.startswith(
            "Stays gated: it requests 2(A100), and each pod of GPUJob job-small has 0.1(A100). Delete the pod"
        )
        # The guest's own pod comes again and has the seat.
        pods = await guests.until_pods(
            lambda pods: (
                [p.metadata.name for p in pods if p.status.phase == "Running"][:1] not in ([], [own.metadata.name])
            )
        )
        (big,) = [pod for pod in pods if pod.metadata.name == "big"]
        assert (big.spec.node_name, names.SEAT in big.metadata.annotations) == ("", False)
        assert (await quota_of(client, guests.namespace)).status.gpus <= 0.2
    finally:
        await client.delete(GPUQUOTAS, name=guests.namespace)


def replicated(kind: Resource, name: str, *, replicas: int, gpu: str) -> dict[str, Any]:
    """A Deployment or StatefulSet in the queue."""
    made = template(gpu=gpu)
    labels = {"app": name}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": made["metadata"]["annotations"]},
            "spec": {key: value for key, value in made["spec"].items() if key != "restartPolicy"},
        },
    }
    if kind is STATEFULSETS:
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"metadata": {"name": name, "labels": {names.LABEL_QUEUE: "default"}}, "spec": spec}


@pytest.mark.parametrize("kind", [DEPLOYMENTS, STATEFULSETS], ids=lambda kind: kind.kind)
async def test_replicas_hold_what_they_ask_for_up_and_down(guests: Guests, jobs: Jobs, kind: Resource) -> None:
    await guests.make(replicated(kind, "serve", replicas=1, gpu="1(A100)"), resource=kind)
    await guests.until_pods(lambda pods: [p.status.phase for p in pods] == ["Running"])
    await scale(guests, "serve", to=3, kind=kind)
    pods = await guests.until_pods(lambda pods: len([p for p in pods if p.status.phase == "Running"]) == 2)
    (waiting,) = [pod for pod in pods if pod.status.phase != "Running"]
    assert (await said_of(guests, waiting.metadata.name, reason="Resources")).startswith("Need 1 GPU")
    await scale(guests, "serve", to=0, kind=kind)
    await jobs.submit("next", gpu="2(A100)")
    await jobs.phase("Running", "next")


async def test_a_user_who_takes_the_owner_from_the_record_of_a_guest_restarts_the_guest_alone(
    guests: Guests, jobs: Jobs, client: Client, mallory: Client
) -> None:
    await at_work(guests, jobs, "own", workers=1, gpu="1(A100)")
    before = await client.get(GPUJOBS, name="job-own", as_type=GPUJob, namespace=guests.namespace)
    await mallory.patch(
        GPUJOBS,
        name="job-own",
        patch={"metadata": {"ownerReferences": None}},
        as_type=GPUJob,
        namespace=guests.namespace,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(NotFound):
                now = await client.get(GPUJOBS, name="job-own", as_type=GPUJob, namespace=guests.namespace)
                if now.metadata.uid != before.metadata.uid and now.status.workers_ready == 1:
                    break
            await asyncio.sleep(0.05)
    assert [owner.kind for owner in now.metadata.owner_references] == ["Job"]


async def test_only_the_operator_makes_records_of_guests(guests: Guests, mallory: Client) -> None:
    body = manifest("forged", managedBy=names.GUESTS_MANAGER)
    with pytest.raises(StatusError, match=r"only Dovetail's operator makes the record of an object"):
        await mallory.create(GPUJOBS, body=body, as_type=GPUJob, namespace=guests.namespace)
