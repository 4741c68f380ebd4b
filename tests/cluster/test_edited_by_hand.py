"""Batch Jobs of GPUJobs that somebody deletes or changes with kubectl: nothing runs twice, in part, or unseen."""

import pytest

from dovetail.api.builtin import Job, Pod
from dovetail.api.resources import JOBS, PODS
from dovetail.names import LABEL_JOB
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster


async def edit(jobs: Jobs, patch: dict[str, object]) -> None:
    await jobs.client.patch(JOBS, name="x", patch=patch, as_type=Job, namespace=jobs.namespace)


async def test_a_job_whose_label_was_taken_off_its_batch_job_is_followed_to_its_end(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    before = await jobs.child()
    await edit(jobs, {"metadata": {"labels": {LABEL_JOB: None}}})
    await jobs.end()
    await jobs.phase("Succeeded")
    after = await jobs.child()
    assert (after.metadata.uid, after.metadata.labels[LABEL_JOB]) == (before.metadata.uid, "x")


async def test_a_gang_that_somebody_made_smaller_starts_anew_whole(jobs: Jobs) -> None:
    await jobs.submit(gpu="1(V100)", workers=2)
    await jobs.until("x", lambda status: status.phase == "Running" and status.workers_ready == 2)
    before = {pod.metadata.uid for pod in await jobs.pods()}
    await edit(jobs, {"spec": {"parallelism": 1}})
    await jobs.until("x", lambda status: status.plans == 2 and status.workers_ready == 2)
    now = {pod.metadata.uid for pod in await jobs.pods() if pod.status.phase == "Running"}
    assert len(now) == 2
    assert not now & before


async def test_a_job_does_not_run_beside_pods_that_were_left_behind(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    (left,) = await jobs.pods()
    await jobs.client.delete(JOBS, name="x", namespace=jobs.namespace, propagation="Orphan")
    told = await jobs.until("x", lambda status: left.metadata.name in status.message)
    assert (told.phase, told.reason) == ("Queued", "Evaluating")
    assert [pod.metadata.uid for pod in await jobs.pods()] == [left.metadata.uid]
    await jobs.client.delete(PODS, name=left.metadata.name, namespace=jobs.namespace)
    await jobs.phase("Running")
    (pod,) = await running(jobs)
    assert pod.metadata.uid != left.metadata.uid


async def running(jobs: Jobs) -> list[Pod]:
    return [pod for pod in await jobs.pods() if pod.status.phase == "Running"]
