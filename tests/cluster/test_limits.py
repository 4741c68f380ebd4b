"""Quotas, pools, groups and preemption, as people meet them: applied to a real control plane."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUQUOTAS, NODES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, StatusError
from dovetail.names import LABEL_POOL, PREEMPTING_AT
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.installed.chart import NAMESPACE
from tests.cluster.accounts import connection_of
from tests.cluster.conftest import PREEMPTING
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, Pause
from tests.cluster.killing import kill

pytestmark = pytest.mark.cluster
T = TypeVar("T")


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """What is read, once it is as it should be."""
    pause = Pause()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(found := await read()):
            await pause.before_next_look()
    return found


class Quotas:
    """GPUQuotas that a test makes; they are gone with it."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.names: list[str] = []

    async def make(self, name: str = "q", **spec: Any) -> str:
        made = f"{self._namespace}-{name}"
        self.names.append(made)
        spec.setdefault("namespaces", [self._namespace])
        manifest = {
            "apiVersion": GPUQUOTAS.api_version,
            "kind": GPUQUOTAS.kind,
            "metadata": {"name": made},
            "spec": spec,
        }
        await self._client.create(GPUQUOTAS, body=manifest, as_type=GPUQuota)
        return made

    async def make_known(self, name: str = "q", **spec: Any) -> str:
        """One that the operator has heard of: the next job is held to it."""
        made = await self.make(name, **spec)
        await until(lambda: self.get(made), lambda quota: quota.status.observed_generation > 0)
        return made

    async def drop(self, name: str) -> None:
        self.names.remove(name)
        await self._client.delete(GPUQUOTAS, name=name)

    async def get(self, name: str) -> GPUQuota:
        return await self._client.get(GPUQUOTAS, name=name, as_type=GPUQuota)


@pytest.fixture
async def quotas(client: Client, namespace: str) -> AsyncIterator[Quotas]:
    made = Quotas(client, namespace=namespace)
    yield made
    for name in made.names:
        await client.delete(GPUQUOTAS, name=name)


def says(text: str) -> Any:
    """Whether a status tells the reason Quota with these words."""

    def holds(status: GPUJobStatus) -> bool:
        return status.reason == "Quota" and text in status.message

    return holds


async def test_a_job_beyond_the_quota_waits_with_the_numbers_and_starts_when_there_is_room(
    jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    name = await quotas.make(limit={"gpus": 3, "queuedJobs": 1})
    await jobs.submit("first", gpu=2)
    await jobs.phase("Running", "first")
    await jobs.submit("second", gpu=2)
    status = await jobs.phase("Queued", "second", reason="Quota")
    assert status.message == f"Namespace {namespace} may run 3 GPUs, 2 run, this job needs 2 (GPUQuota {name})"
    await jobs.submit("third")
    await jobs.until("third", says("may have 1 job in the queue, 1 are before this one"))
    used = await until(lambda: quotas.get(name), lambda quota: quota.status.running_jobs == 1)
    assert used.status.gpus == 2
    await jobs.delete("first")
    await jobs.phase("Running", "second")


async def test_a_pod_that_is_no_gpujobs_is_held_to_the_quota_too(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    await quotas.make_known(limit={"gpus": 2})
    await jobs.submit(gpu=1)
    await jobs.phase("Running")
    manifest = {
        "metadata": {"name": "notebook", "annotations": {"dovetail.dev/gpu": "2"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    await client.create(PODS, body=manifest, as_type=Pod, namespace=namespace)

    def refused(pod: Pod) -> bool:
        told = [condition.message for condition in pod.status.conditions if condition.type == "PodScheduled"]
        return any("may run 2 GPUs, 1 run, this pod needs 2" in message for message in told)

    async def pod() -> Pod:
        return await client.get(PODS, name="notebook", as_type=Pod, namespace=namespace)

    await until(pod, refused)
    await jobs.delete()
    await until(pod, lambda found: bool(found.spec.node_name))


async def test_jobs_of_a_group_run_one_after_the_other(jobs: Jobs) -> None:
    for name in ("one", "two"):
        await jobs.submit(name, group="sweep", maxConcurrent=1)
    await jobs.until("two", says("Group sweep may run 1 job at a time, 1 run"))
    await jobs.delete("one")
    await jobs.phase("Running", "two")


async def test_a_job_runs_in_its_pool_and_in_no_other_than_its_namespace_may_use(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    pool = namespace
    await client.patch(NODES, name="t4-1", patch={"metadata": {"labels": {LABEL_POOL: pool}}}, as_type=Node)
    try:
        await jobs.submit("inside", pool=pool)
        status = await jobs.phase("Running", "inside")
        assert status.nodes == ["t4-1"]
        await quotas.make_known(pools=[pool])
        await jobs.submit("outside", pool="elsewhere")
        await jobs.until("outside", lambda status: "elsewhere" in status.message)
        await jobs.submit("kept")
        status = await jobs.phase("Running", "kept")
        assert status.nodes == ["t4-1"]
    finally:
        await client.patch(NODES, name="t4-1", patch={"metadata": {"labels": {LABEL_POOL: None}}}, as_type=Node)


def around_now(*, begins: float, ends: float) -> dict[str, str]:
    """Times in hours from now."""
    now = datetime.now(UTC)
    return {
        "startTime": (now + timedelta(hours=begins)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "endTime": (now + timedelta(hours=ends)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


async def test_what_is_kept_for_a_time_is_for_those_it_names(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    kept = {"name": "class", "gpus": 2, "pool": namespace}
    await client.patch(NODES, name="a100-0", patch={"metadata": {"labels": {LABEL_POOL: namespace}}}, as_type=Node)
    try:
        later = await quotas.make(
            "later", namespaces=["nobody"], advanceReservations=[kept | around_now(begins=1, ends=2)]
        )
        await until(lambda: quotas.get(later), lambda quota: bool(quota.status.kept))
        await jobs.submit("endless", gpu="1(A100)")
        status = await jobs.phase("Queued", "endless", reason="Reserved")
        assert f"2 GPUs are kept by GPUQuota {later}" in status.message
        await jobs.submit("short", gpu="1(A100)", activeDeadlineSeconds=600)
        await jobs.phase("Running", "short")
        await jobs.delete("short")
        await quotas.drop(later)
        now = await quotas.make("now", advanceReservations=[kept | around_now(begins=-1, ends=1)])
        await jobs.phase("Running", "endless")
        used = await until(lambda: quotas.get(now), lambda quota: quota.status.running_jobs == 1)
        assert used.status.gpus == 1
    finally:
        await client.patch(NODES, name="a100-0", patch={"metadata": {"labels": {LABEL_POOL: None}}}, as_type=Node)


def window(start: str, end: str) -> dict[str, Any]:
    return {"name": "r", "startTime": f"{start}T00:00:00Z", "endTime": f"{end}T00:00:00Z", "gpus": 1}


def day(**more: Any) -> dict[str, Any]:
    return {"name": "day", "start": "08:00", "end": "20:00", "gpus": 4} | more


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"per": "Team"}, "per must be one of Namespace, Together, User"),
        (
            {"namespaces": [], "advanceReservations": [window("2026-01-01", "2026-01-02")]},
            "namespaces, users and projects must not all be empty",
        ),
        (
            {"advanceReservations": [window("2026-01-02", "2026-01-01")]},
            "endTime must be after startTime",
        ),
        (
            {"advanceReservations": [window("2026-02-30", "2026-03-01")]},
            "startTime must be a time with its zone, such as 2026-12-01T08:00:00Z",
        ),
        ({"guaranteeWindows": [day(start="8:00")]}, "start must be a time of day in hours and minutes, such as 08:00"),
        ({"guaranteeWindows": [day(timeZone="berlin")]}, "timeZone must be the name of a time zone, such as Europe"),
        (
            {"guaranteeWindows": [day(gpus=9)], "limit": {"gpus": 8}},
            "gpus of each of guaranteeWindows must not be above limit.gpus",
        ),
        (
            {"guaranteeWindows": [day()], "per": "User"},
            "guaranteeWindows and reserve are for all whom the quota applies to: per must be Together",
        ),
        (
            {"forecast": {"gpus": 4}, "per": "User"},
            "forecast is for all whom the quota applies to: per must be Together",
        ),
        (
            {"forecast": {"gpus": 9}, "limit": {"gpus": 8}},
            "forecast.gpus must not be above limit.gpus: raise the limit or lower the forecast",
        ),
        ({"forecast": {"gpus": 4, "timeZone": "berlin"}}, "timeZone must be the name of a time zone, such as Europe"),
        ({"reserve": {"gpus": 4}}, "reserve is a part of the guarantee: set guaranteed.gpus or guaranteeWindows"),
        (
            {"guaranteed": {"gpus": 8}, "reserve": {"gpus": 6, "gpusPerReplica": 4}},
            "gpus must be a multiple of gpusPerReplica: it is for whole replicas",
        ),
    ],
    ids=[
        "no such word",
        "kept for nobody",
        "over before it begins",
        "a day that there is not",
        "no time of day",
        "no time zone",
        "a window above the limit",
        "a window for each user",
        "a forecast for each user",
        "a forecast above the limit",
        "no time zone of a forecast",
        "a reserve of nothing",
        "a part of a replica",
    ],
)
async def test_a_bad_quota_is_refused_in_a_sentence(quotas: Quotas, spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StatusError, match=sentence):
        await quotas.make(**spec)
    quotas.names.clear()


async def test_a_job_makes_way_and_is_back_at_its_old_age(jobs: Jobs) -> None:
    low, high = PREEMPTING
    await jobs.submit("low", gpu="2(A100)", priority=low)
    before = await jobs.phase("Running", "low")
    await jobs.submit("peer", gpu="2(A100)", priority=low)
    await jobs.phase("Queued", "peer", reason="Resources")
    await jobs.submit("boss", gpu="2(A100)", priority=high)
    told = await jobs.until("low", lambda status: status.preemption is not None and status.preemption.at is not None)
    assert told.phase == "Running"
    (pod,) = await until(
        lambda: jobs.pods("low"), lambda pods: all(PREEMPTING_AT in pod.metadata.annotations for pod in pods)
    )
    assert told.preemption is not None
    assert pod.metadata.annotations[PREEMPTING_AT] == told.preemption.at
    made = await jobs.phase("Preempted", "low")
    assert made.preemption is not None
    assert made.preemption.count == 1
    boss = await jobs.phase("Running", "boss")
    assert boss.nodes == before.nodes
    assert [event.reason for event in await jobs.announced("Preempted", "low")][-2:] == ["Preempting", "Preempted"]
    # Older than its peer, it goes first again, and it has not failed.
    await jobs.delete("boss")
    again = await jobs.phase("Running", "low")
    assert (again.retries, again.workers_failed) == (0, 0)
    assert (await jobs.phase("Queued", "peer")).reason == "Resources"


async def test_nobody_makes_way_for_room_that_is_kept_for_others(
    client: Client, jobs: Jobs, quotas: Quotas, namespace: str
) -> None:
    low, high = PREEMPTING
    kept = {"name": "class", "gpus": 1, "pool": namespace} | around_now(begins=-1, ends=1)
    await client.patch(NODES, name="a100-0", patch={"metadata": {"labels": {LABEL_POOL: namespace}}}, as_type=Node)
    try:
        await jobs.submit("low", gpu="1(A100)", priority=low)
        await jobs.phase("Running", "low")
        course = await quotas.make("course", namespaces=["nobody"], advanceReservations=[kept])
        await until(lambda: quotas.get(course), lambda quota: bool(quota.status.kept))
        await jobs.submit("boss", gpu="2(A100)", priority=high)
        await jobs.until("boss", lambda status: status.queue is not None and bool(status.queue.estimated_start))
        assert (await jobs.phase("Running", "low")).preemption is None
        await quotas.drop(course)
        await jobs.phase("Preempted", "low")
        await jobs.phase("Running", "boss")
    finally:
        await client.patch(NODES, name="a100-0", patch={"metadata": {"labels": {LABEL_POOL: None}}}, as_type=Node)


@pytest.mark.slow
async def test_an_operator_that_is_killed_meanwhile_changes_nothing(jobs: Jobs, sandbox: Cluster) -> None:
    low, high = PREEMPTING
    await jobs.submit("low", gpu="2(A100)", priority=low)
    await jobs.phase("Running", "low")
    await jobs.submit("boss", gpu="2(A100)", priority=high)
    await jobs.until("low", lambda status: status.preemption is not None and status.preemption.at is not None)
    await kill(sandbox, "operator")
    await jobs.phase("Running", "boss")
    status = await jobs.phase("Preempted", "low")
    assert status.preemption is not None
    assert (status.preemption.count, status.retries) == (1, 0)


async def test_of_a_pod_the_operator_may_write_that_notice_alone(
    client: Client, jobs: Jobs, sandbox: Cluster, namespace: str
) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    (pod,) = await jobs.pods()
    connection = await connection_of("dovetail-operator", client, namespace=NAMESPACE, sandbox=sandbox)
    async with Client(connection) as operator:
        for patch in (
            {"metadata": {"annotations": {"mine": "x"}}},
            {"metadata": {"labels": {"mine": "x"}}},
            {"status": {"phase": "Failed"}},
        ):
            with pytest.raises(Forbidden):
                await operator.patch(
                    PODS, name=pod.metadata.name, patch=patch, as_type=Pod, namespace=namespace, subresource="status"
                )


async def test_who_need_not_make_way_any_more_goes_on(jobs: Jobs) -> None:
    low, high = PREEMPTING
    await jobs.submit("low", gpu="2(A100)", priority=low)
    await jobs.phase("Running", "low")
    await jobs.submit("boss", gpu="2(A100)", priority=high)
    await jobs.until("low", lambda status: status.preemption is not None and status.preemption.at is not None)
    await jobs.delete("boss")
    status = await jobs.until("low", lambda status: status.preemption is not None and status.preemption.at is None)
    assert (status.phase, status.preemption and status.preemption.count) == ("Running", 0)
    await until(
        lambda: jobs.pods("low"), lambda pods: all(PREEMPTING_AT not in pod.metadata.annotations for pod in pods)
    )
