"""Jobs that run on the CPU on a real control plane: where no GPU could serve them, and after a wait for busy ones."""

from typing import Any

import pytest

from dovetail.api.gpujob import GPUJobStatus
from dovetail.formats.timestamps import moment
from dovetail.names import DEVICE
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster

AFTER: dict[str, Any] = {"gpu": "1(V100)", "onNoGPU": "RunOnCPU", "onNoGPUAfterSeconds": 3}


async def fill(jobs: Jobs) -> None:
    """All V100s are taken."""
    await jobs.submit("full", gpu="4(V100)", workers=2)
    await jobs.until("full", lambda status: status.workers_ready == 2)


async def on_cpu(jobs: Jobs, name: str) -> GPUJobStatus:
    """Its status once it runs on the CPU; its pods request and see no GPU."""
    status = await jobs.phase("Running", name)
    assert (status.device, status.devices, status.gpus) == ("cpu", [], 0)
    assert status.message.startswith("Runs on the CPU: Need")
    assert (await jobs.child(name)).metadata.annotations[DEVICE] == "cpu"
    for pod in await jobs.pods(name):
        (container,) = pod.spec.containers
        assert not any("dovetail.dev" in resource for resource in container.resources.requests)
        assert ("NVIDIA_VISIBLE_DEVICES", "void") in {(entry.name, entry.value) for entry in container.env}
    return status


async def test_a_job_stops_waiting_for_busy_gpus_after_its_time(jobs: Jobs) -> None:
    await fill(jobs)
    await jobs.submit("late", **AFTER)
    waits = await jobs.phase("Queued", "late", reason="Resources")
    assert waits.gpu_wait_start_time is not None
    assert "; if it still waits at 20" in waits.message
    runs = await on_cpu(jobs, "late")
    assert runs.request == "1(V100)"
    assert runs.gpu_wait_start_time is None
    assert (moment(runs.admitted_time or "") - moment(waits.gpu_wait_start_time)).total_seconds() >= 3
    messages = [event.message for event in await jobs.events("late")]
    assert any(message.startswith("Runs on the CPU: Need 1 GPU") for message in messages)


async def test_a_job_that_no_node_could_serve_runs_on_the_cpu_at_once(jobs: Jobs) -> None:
    await jobs.submit("never", gpu="9(V100)", onNoGPU="RunOnCPU")
    await on_cpu(jobs, "never")


async def test_a_gang_runs_on_the_cpu_as_a_whole(jobs: Jobs) -> None:
    await fill(jobs)
    await jobs.submit("gang", **(AFTER | {"onNoGPUAfterSeconds": 0}), workers=3)
    await jobs.until("gang", lambda status: status.workers_ready == 3)
    await on_cpu(jobs, "gang")


async def test_the_time_may_be_set_while_a_job_waits(jobs: Jobs) -> None:
    await fill(jobs)
    await jobs.submit("late", **(AFTER | {"onNoGPUAfterSeconds": 86400}))
    await jobs.phase("Queued", "late", reason="Resources")
    await jobs.change("late", onNoGPUAfterSeconds=1)
    await on_cpu(jobs, "late")


async def test_a_job_takes_the_gpus_that_become_free_in_time(jobs: Jobs) -> None:
    await fill(jobs)
    await jobs.submit("late", **(AFTER | {"onNoGPUAfterSeconds": 86400}))
    await jobs.phase("Queued", "late", reason="Resources")
    await jobs.delete("full")
    status = await jobs.phase("Running", "late")
    assert (status.device, len(status.devices)) == ("cuda", 1)


async def test_each_task_of_an_array_falls_back_by_itself_and_dependents_follow(jobs: Jobs) -> None:
    await fill(jobs)
    await jobs.submit("many", **AFTER, run=1, array={"indexes": "0-1"})
    await jobs.submit("after", run=1, resources={"device": "cpu"}, dependencies=[{"name": "many"}])
    await jobs.phase("Succeeded", "many")
    await jobs.phase("Succeeded", "after")
