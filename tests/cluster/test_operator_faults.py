"""The operator killed, stopped and restarted at bad moments: the same comes about in the end, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.api.builtin import Job
from dovetail.api.historyquery import HistoryQuerySpec
from dovetail.api.resources import CRDS, GPUJOBS, JOBS, NAMESPACES, PODS, SERVICES
from dovetail.formats.durations import human, moment, timestamp
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists
from dovetail_cli.cluster.connection import Cluster as Commands
from dovetail_cli.jobs import history
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, condition
from tests.cluster.killing import kill, paused

pytestmark = pytest.mark.cluster


@pytest.fixture
async def stopped(sandbox: Cluster) -> AsyncIterator[None]:
    """The operator does not run, until the test starts it."""
    await asyncio.to_thread(sandbox.stop, "operator")
    yield
    await asyncio.to_thread(sandbox.start, "operator")
    await asyncio.to_thread(sandbox.wait_ready, ["operator"])


def condition_now(type_: str, *, reason: str) -> dict[str, str]:
    """A condition as the Job controller writes it."""
    return {"type": type_, "status": "True", "reason": reason, "lastTransitionTime": timestamp(datetime.now(UTC))}


async def start(sandbox: Cluster) -> None:
    await asyncio.to_thread(sandbox.start, "operator")


async def test_killed_while_jobs_run_and_wait_it_goes_on(sandbox: Cluster, jobs: Jobs) -> None:
    await jobs.submit("running", gpu="2(A100)")
    await jobs.phase("Running", "running")
    for name in ("first", "second"):
        await jobs.submit(name, gpu="2(A100)", run=1)
        await jobs.phase("Queued", name)
    await kill(sandbox, "operator")
    await jobs.end("running")
    for name in ("running", "first", "second"):
        await jobs.phase("Succeeded", name)


async def test_killed_again_and_again_amid_submissions_no_job_is_lost_and_no_number_given_twice(
    sandbox: Cluster, jobs: Jobs
) -> None:
    names = [f"job-{number}" for number in range(12)]
    for number, name in enumerate(names):
        await jobs.submit(name, gpu="0.5(T4)", run=1)
        if number in {3, 7}:
            await kill(sandbox, "operator")
    statuses = [await jobs.phase("Succeeded", name) for name in names]
    assert len({status.number for status in statuses}) == len(names)


async def test_a_job_whose_controller_counts_the_pods_that_its_limit_ended_as_failed_has_timed_out(
    sandbox: Cluster, jobs: Jobs
) -> None:
    """As after an API server that was killed between the deletion of the pods and the write of the Job's status."""
    await jobs.submit(activeDeadlineSeconds=4, backoffLimit=2)
    await jobs.phase("Running")
    async with paused(sandbox.pid("kube-controller-manager")):
        child = await jobs.child()
        await asyncio.sleep((moment(child.status.start_time or "") - datetime.now(UTC)).total_seconds() + 4)
        (pod,) = await jobs.pods()
        await jobs.client.delete(PODS, name=pod.metadata.name, namespace=jobs.namespace)
        # Which of its two reasons the controller sees first after such an outage is chance, so the test decides it.
        target = condition_now("FailureTarget", reason="BackoffLimitExceeded")
        await jobs.client.patch(
            JOBS,
            name="x",
            patch={"status": {"conditions": [target]}},
            as_type=Job,
            namespace=jobs.namespace,
            subresource="status",
        )
    status = await jobs.phase("TimedOut", reason="DeadlineExceeded")
    assert (status.retries, condition(status, "Failed")) == (0, ("True", "DeadlineExceeded"))
    (failed,) = [each for each in (await jobs.child()).status.conditions if each.type == "Failed"]
    assert failed.reason == "BackoffLimitExceeded"


async def test_what_was_submitted_while_it_was_away_is_done(sandbox: Cluster, jobs: Jobs, stopped: None) -> None:
    await jobs.submit(run=1)
    await start(sandbox)
    await jobs.phase("Succeeded")


async def test_what_was_cancelled_and_deleted_while_it_was_away_ends(sandbox: Cluster, jobs: Jobs) -> None:
    for name in ("cancelled", "deleted"):
        await jobs.submit(name, gpu="1(A100)", run=FOR_EVER)
        await jobs.phase("Running", name)
    await asyncio.to_thread(sandbox.stop, "operator")
    await jobs.change("cancelled", cancel=True)
    await jobs.delete("deleted")
    await start(sandbox)
    await jobs.phase("Cancelled", "cancelled")
    await jobs.gone(GPUJOBS, "deleted")
    await jobs.without_pods(None)
    await jobs.submit("next", gpu="2(A100)", run=1)
    await jobs.phase("Succeeded", "next")


async def test_a_job_that_ended_while_it_was_away_is_told_with_its_true_times(sandbox: Cluster, jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    await asyncio.to_thread(sandbox.stop, "operator")
    await jobs.end()
    child = await jobs.completed_child()
    # Times of the API have whole seconds: one that the operator took by its own clock would be another.
    over = moment(child.status.completion_time or "") + timedelta(seconds=1)
    await asyncio.sleep(max(0.0, (over - datetime.now(UTC)).total_seconds()))
    await start(sandbox)
    status = await jobs.phase("Succeeded")
    assert status.completion_time == child.status.completion_time
    assert status.start_time is not None
    ran = moment(status.completion_time or "") - moment(status.start_time)
    assert status.elapsed == human(ran.total_seconds())


async def test_a_batch_job_made_right_before_a_crash_is_taken_over(
    sandbox: Cluster, jobs: Jobs, client: Client, namespace: str
) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    child = await jobs.child()
    await asyncio.to_thread(sandbox.stop, "operator")
    # As if it had been killed between the two writes: the batch Job is there, the status knows nothing of it.
    patch = {"status": {"phase": None, "conditions": None, "devices": None, "startTime": None}}
    await client.patch(GPUJOBS, name="x", patch=patch, as_type=dict, namespace=namespace, subresource="status")
    await start(sandbox)
    status = await jobs.phase("Running")
    assert status.devices
    assert (await client.get(JOBS, name="x", as_type=Job, namespace=namespace)).metadata.uid == child.metadata.uid


async def test_a_gangs_service_that_somebody_deletes_is_made_again_also_if_nobody_looked(
    sandbox: Cluster, jobs: Jobs, client: Client, namespace: str
) -> None:
    await jobs.submit(workers=2)
    await jobs.phase("Running")
    await client.delete(SERVICES, name="x", namespace=namespace)
    await jobs.there(SERVICES, "x")
    await asyncio.to_thread(sandbox.stop, "operator")
    await client.delete(SERVICES, name="x", namespace=namespace)
    await start(sandbox)
    await jobs.there(SERVICES, "x")
    assert (await jobs.phase("Running")).attempt == 1


async def test_a_namespace_that_is_deleted_under_its_jobs_takes_them_along_and_nobody_else(
    client: Client, jobs: Jobs, namespace: str
) -> None:
    doomed = Jobs(client, namespace=f"{namespace}-doomed")
    await client.create(NAMESPACES, body={"metadata": {"name": doomed.namespace}}, as_type=dict)
    await doomed.submit("runs", gpu="2(A100)", run=FOR_EVER)
    await doomed.phase("Running", "runs")
    await doomed.submit("waits", gpu="2(A100)", run=FOR_EVER)
    await doomed.phase("Queued", "waits")
    await jobs.submit("other", gpu="2(A100)", run=1)
    await client.delete(NAMESPACES, name=doomed.namespace)
    # Its devices are free again, and the job that waited there blocks no other job.
    await jobs.phase("Succeeded", "other")
    await doomed.gone(GPUJOBS, "waits")
    await doomed.gone(GPUJOBS, "runs")
    await _made_again(client, doomed.namespace)
    commands = Commands(client=client, namespace=doomed.namespace)
    (record,) = await history.records(commands, question=HistoryQuerySpec(names=["runs"]))
    await client.delete(NAMESPACES, name=doomed.namespace)
    assert (record.phase, record.reason) == ("Cancelled", "Deleted")


async def _made_again(client: Client, namespace: str) -> None:
    """Make the namespace once the one before is gone: records are asked for in the namespace that they are about."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(AlreadyExists):
                await client.create(NAMESPACES, body={"metadata": {"name": namespace}}, as_type=dict)
                return
            await asyncio.sleep(0.1)


async def test_jobs_go_on_through_an_upgrade_of_the_crd(sandbox: Cluster, client: Client, jobs: Jobs) -> None:
    await jobs.submit("runs", gpu="2(A100)")
    await jobs.phase("Running", "runs")
    await jobs.submit("waits", gpu="2(A100)", run=1)
    await jobs.phase("Queued", "waits")
    child = await jobs.child("runs")
    crd = await client.get(CRDS, name="gpujobs.dovetail.dev", as_type=dict)
    versions = crd["spec"]["versions"]
    stored = next(each for each in versions if each["storage"])
    later = stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    later["fieldOfTheNextRelease"] = {"type": "string", "description": "A field that this operator does not know."}
    try:
        await _offer(client, versions)
        await jobs.end("runs")
        for name in ("runs", "waits"):
            await jobs.phase("Succeeded", name)
        assert (await jobs.child("runs")).metadata.uid == child.metadata.uid
    finally:
        later.pop("fieldOfTheNextRelease")
        await _offer(client, versions)


async def _offer(client: Client, versions: list[dict[str, Any]]) -> None:
    # A patch: the API server writes the status of a CRD when it likes, and an update would then be refused.
    await client.patch(CRDS, name="gpujobs.dovetail.dev", patch={"spec": {"versions": versions}}, as_type=dict)
