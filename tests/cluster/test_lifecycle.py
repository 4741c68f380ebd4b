"""What becomes of jobs beyond a single run: gangs that start anew, arrays, sweeps, leases, other queues."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus, is_finished
from dovetail.api.resources import GPUJOBS, JOBS, PODS, SERVICES, Resource
from dovetail.kube.errors import StatusError
from dovetail.names import LABEL_ARRAY
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, condition, manifest

pytestmark = pytest.mark.cluster

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.yaml"))
INFERENCE = Path(__file__).parents[2] / "examples" / "inference.yaml"
# What is to be seen of each example on the nodes of the tests; all others run to success.
SEEN = {
    "dynamic": ("Running", ""),
    "held": ("Held", "Held"),
    "kueue": ("Queued", "ExternallyManaged"),
    "reservation": ("Running", ""),
    "topology": ("Queued", "ExceedsCapacity"),
    "vendor": ("Queued", "ExceedsCapacity"),
}
DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment")
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


async def running_pods(jobs: Jobs, *, count: int, other_than: frozenset[str] = frozenset()) -> list[Pod]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods = [pod for pod in await jobs.pods() if pod.metadata.uid not in other_than]
            running = [pod for pod in pods if pod.status.phase == "Running"]
            if len(running) == count:
                return running
            await asyncio.sleep(0.05)


def runs_again(status: GPUJobStatus) -> bool:
    """The pods of the second attempt may run before the status has heard of it."""
    return status.phase == "Running" and status.attempt > 1


async def test_a_gang_of_which_a_worker_fails_starts_anew_as_a_whole(jobs: Jobs) -> None:
    await jobs.submit(gpu="1(V100)", workers=3, backoffLimit=1)
    first = await running_pods(jobs, count=3)
    await jobs.end_pod(first[1], exit_code=9)
    again = await running_pods(jobs, count=3, other_than=frozenset(pod.metadata.uid for pod in first))
    assert len(again) == 3
    status = await jobs.until("x", runs_again)
    assert (status.attempt, status.retries) == (2, 1)
    assert [(each.counted, "exit code 9" in each.message) for each in status.attempts] == [(True, True)]
    await jobs.end_pod(again[0], exit_code=9)
    status = await jobs.phase("Failed", reason="BackoffLimitExceeded")
    assert condition(status, "Failed") == ("True", "BackoffLimitExceeded")


async def test_an_evicted_worker_costs_its_gang_no_retry(jobs: Jobs) -> None:
    await jobs.submit(gpu="1(V100)", workers=2)
    first = await running_pods(jobs, count=2)
    await jobs.end_pod(first[0], exit_code=143, conditions=[EVICTED])
    await running_pods(jobs, count=2, other_than=frozenset(pod.metadata.uid for pod in first))
    status = await jobs.until("x", runs_again)
    assert (status.attempt, status.retries, status.attempts[0].reason) == (2, 0, "DisruptionTarget")


async def test_an_exit_code_that_is_not_worth_a_try_ends_the_job(jobs: Jobs) -> None:
    await jobs.submit(run=1, exit_code=3, backoffLimit=5, retryPolicy={"exitCodes": [75]})
    status = await jobs.phase("Failed", reason="PodFailurePolicy")
    assert "exit code 3" in status.message


async def test_an_array_runs_as_many_tasks_at_a_time_as_it_may(jobs: Jobs) -> None:
    await jobs.submit(gpu="0.25", run=1, array={"indexes": "0-4%2"})
    most = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await tasks(jobs)
            most = max(most, sum(not is_finished(task) for task in found))
            job = await jobs.client.get(GPUJOBS, name="x", as_type=GPUJob, namespace=jobs.namespace)
            if job.status.phase == "Succeeded":
                break
            await asyncio.sleep(0.05)
    assert most == 2
    assert job.status.tasks is not None
    assert (job.status.tasks.succeeded_indexes, job.status.tasks.total) == ("0-4", 5)
    assert sorted(task.metadata.name for task in await tasks(jobs)) == [f"x-t{index}" for index in range(5)]
    assert condition(job.status, "Complete") == ("True", "TasksCompleted")


async def test_a_cancelled_array_ends_with_its_tasks(jobs: Jobs) -> None:
    await jobs.submit(gpu="0.25", array={"indexes": "0-2"})
    await jobs.until("x", lambda status: status.tasks is not None and status.tasks.running == 3)
    await jobs.change(cancel=True)
    await jobs.phase("Cancelled")
    for task in await tasks(jobs):
        await jobs.phase("Cancelled", task.metadata.name)


async def test_what_changes_in_an_array_changes_in_its_tasks_and_more_of_them_may_run(jobs: Jobs) -> None:
    await jobs.submit(gpu="0.25", priority=5, array={"indexes": "0-3%3"})
    await jobs.until("x", lambda status: status.tasks is not None and status.tasks.running == 3)
    await jobs.change(priority=60, array={"indexes": "0-3%4"})
    await jobs.until("x", lambda status: status.tasks is not None and status.tasks.running == 4)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if {task.spec.priority for task in await tasks(jobs)} == {60}:
                break
            await asyncio.sleep(0.05)
    with pytest.raises(StatusError, match="cannot be changed except the number behind %"):
        await jobs.change(array={"indexes": "0-4%4"})


async def test_a_held_job_goes_on_with_the_template_that_it_has_by_then(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    await jobs.change(suspend=True)
    await jobs.phase("Suspended")
    await jobs.change(suspend=False, template={"spec": {"containers": [{"name": "main", "image": "another"}]}})
    await jobs.phase("Running")
    child = await jobs.client.get(JOBS, name="x", as_type=RawJob, namespace=jobs.namespace)
    assert child.spec["template"]["spec"]["containers"][0]["image"] == "another"


class RawJob(msgspec.Struct):
    """A batch Job whose pods' containers are looked at."""

    spec: dict[str, Any]


async def tasks(jobs: Jobs) -> list[GPUJob]:
    found, _ = await jobs.client.list(
        GPUJOBS, as_type=GPUJob, namespace=jobs.namespace, label_selector=f"{LABEL_ARRAY}=x"
    )
    return found


async def test_a_lease_ends_unless_it_is_renewed(jobs: Jobs) -> None:
    await jobs.client.create(
        GPUJOBS,
        body={"metadata": {"name": "x"}, "spec": {"gpu": 1, "reservation": {"durationSeconds": 3600}}},
        as_type=GPUJob,
        namespace=jobs.namespace,
    )
    status = await jobs.phase("Running")
    assert status.lease is not None
    assert len(status.devices) == 1
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await jobs.change(reservation={"durationSeconds": 2, "renewTime": now})
    status = await jobs.phase("TimedOut", reason="DeadlineExceeded")
    assert "lease has ended" in status.message


async def test_kueue_lets_its_jobs_go_and_we_choose_the_devices(jobs: Jobs) -> None:
    wanted = manifest("x", gpu=1)
    wanted["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    await jobs.client.create(GPUJOBS, body=wanted, as_type=GPUJob, namespace=jobs.namespace)
    await jobs.phase("Queued", reason="ExternallyManaged")
    child = await jobs.made_child()
    assert child.spec.suspend
    assert child.metadata.labels["kueue.x-k8s.io/queue-name"] == "team"
    # As Kueue does.
    await jobs.client.patch(
        JOBS, name="x", patch={"spec": {"suspend": False}}, as_type=dict[str, Any], namespace=jobs.namespace
    )
    status = await jobs.phase("Running")
    assert len(status.devices) == 1


async def test_a_job_and_a_deployment_that_ask_by_annotation_need_no_gpujob(jobs: Jobs) -> None:
    pod = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"dovetail.dev/gpu": "8G,0.25"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    }
    job = {"metadata": {"name": "plain"}, "spec": {"template": pod}}
    await jobs.client.create(JOBS, body=job, as_type=dict[str, Any], namespace=jobs.namespace)
    (deployment,) = yaml.safe_load_all(INFERENCE.read_text(encoding="utf-8"))
    await jobs.client.create(DEPLOYMENTS, body=deployment, as_type=dict[str, Any], namespace=jobs.namespace)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                pods, _ = await jobs.client.list(PODS, as_type=Pod, namespace=jobs.namespace)
                if len([each for each in pods if "dovetail.dev/allocation" in each.metadata.annotations]) == 1 + 3:
                    break
                await asyncio.sleep(0.05)
    finally:
        await jobs.client.delete(DEPLOYMENTS, name="inference", namespace=jobs.namespace)
        await jobs.client.delete(JOBS, name="plain", namespace=jobs.namespace)


async def test_a_service_of_the_gangs_name_that_is_anothers_is_left_alone(jobs: Jobs) -> None:
    service = {"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    await jobs.client.create(SERVICES, body=service, as_type=dict[str, Any], namespace=jobs.namespace)
    await jobs.submit(gpu=1, workers=2)
    status = await jobs.phase("Queued", reason="Invalid")
    assert status.message.startswith("A Service named x exists and is not this GPUJob's")


async def test_every_example_does_what_it_says(jobs: Jobs) -> None:
    """All of them at once: they wait for each other's devices, as jobs of a team do."""
    expected = {}
    for path in EXAMPLES:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document["kind"] == "GPUJob":
                written = replace(GPUJOBS, version=document["apiVersion"].removeprefix(f"{GPUJOBS.group}/"))
                made = await jobs.client.create(written, body=document, as_type=GPUJob, namespace=jobs.namespace)
                expected[made.metadata.name] = SEEN.get(path.stem, ("Succeeded", ""))
    async with asyncio.timeout(3 * PATIENCE_SECONDS):
        while True:
            found, _ = await jobs.client.list(GPUJOBS, as_type=GPUJob, namespace=jobs.namespace)
            seen = {job.metadata.name: (job.status.phase, job.status.reason) for job in found}
            late = {name: seen.get(name) for name, wanted in expected.items() if seen.get(name) != wanted}
            if not late:
                return
            await asyncio.sleep(0.2)
