"""Memory and tenants of shared devices on a real control plane: learned, measured, promised, limited."""

import asyncio

import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUJOBS, GPUNODES
from dovetail.kube.errors import StatusError
from dovetail.names import MEMORY_STRATEGY, REQUEST
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, manifest

pytestmark = pytest.mark.cluster


async def has_run(jobs: Jobs, name: str, *, peak_mib: int) -> None:
    """A GPUJob that ended well an hour ago, after ten minutes in which it used that much."""
    await jobs.submit(name, gpu="0.5(V100)", suspend=True)
    await jobs.phase("Held", name)
    status = {
        "phase": "Succeeded",
        "startTime": "2026-01-01T10:00:00Z",
        "completionTime": "2026-01-01T10:10:00Z",
        "memory": {"strategy": "Conservative", "basis": "", "peakMiB": peak_mib},
    }
    await jobs.client.patch(
        GPUJOBS, name=name, patch={"status": status}, as_type=GPUJob, namespace=jobs.namespace, subresource="status"
    )
    await jobs.phase("Succeeded", name)


async def until_measured(jobs: Jobs, name: str) -> None:
    """Wait until an agent has measured the memory of a pod of the job."""
    uids = {pod.metadata.uid for pod in await jobs.pods(name)}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = await jobs.client.list(GPUNODES, as_type=GPUNode)
            totals = [total for node in found.items for device in node.status.devices for total in device.totals]
            if any(total.uid in uids and total.peak_mib for total in totals):
                return
            await asyncio.sleep(0.05)


async def test_dynamic_promises_what_runs_of_the_name_used_and_measures_the_next(jobs: Jobs) -> None:
    await has_run(jobs, "train", peak_mib=3072)
    body = manifest("train-2", gpu="0.5(V100)", memory={"strategy": "Dynamic"})
    body["metadata"]["generateName"] = "train-"
    await jobs.client.create(GPUJOBS, body=body, as_type=GPUJob, namespace=jobs.namespace)
    await jobs.phase("Running", "train-2")
    await until_measured(jobs, "train-2")
    await jobs.end("train-2")
    status = await jobs.phase("Succeeded", "train-2")
    (pod,) = await jobs.pods("train-2")
    assert status.memory is not None
    assert status.memory.basis == "Estimated 3,379 MiB from 1 run of train, peak 3,072 MiB"
    assert [device.memory_mib for device in status.devices] == [3379]
    assert 0 < status.memory.peak_mib <= 3379
    assert (pod.metadata.annotations[REQUEST], pod.metadata.annotations[MEMORY_STRATEGY]) == (
        "3379M,0.5(V100)",
        "Aggressive",
    )


@pytest.mark.parametrize(("strategy", "stored"), [("0.7", "0.7"), (0.7, "0.7"), ("Aggressive", "Aggressive")])
async def test_a_share_is_promised_its_part_of_what_the_strategy_allows(
    jobs: Jobs, strategy: str | float, stored: str
) -> None:
    job = await jobs.submit("share", gpu="0.5(V100)", memory={"strategy": strategy})
    assert job.spec.memory.strategy == stored
    status = await jobs.phase("Running", "share")
    fraction = 0.7 if stored == "0.7" else 0.95
    assert [device.memory_mib for device in status.devices] == [int(int(32768 * fraction) * 0.5)]
    (pod,) = await jobs.pods("share")
    assert pod.metadata.annotations[MEMORY_STRATEGY] == stored


async def test_before_the_first_run_the_model_says_what_is_promised(jobs: Jobs) -> None:
    memory = {"strategy": "Dynamic", "parameters": 25_600_000, "batchSize": 32}
    await jobs.submit("model", gpu="0.5(V100)", memory=memory)
    status = await jobs.phase("Running", "model")
    assert status.memory is not None
    assert status.memory.basis == "Estimated 4,430 MiB from 25,600,000 parameters and a batch of 32"
    assert [device.memory_mib for device in status.devices] == [4430]


async def test_one_training_tenant_at_most_shares_a_device(jobs: Jobs) -> None:
    await jobs.submit("each", gpu="0.1(T4)", workload="Training", workers=4)
    status = await jobs.until("each", lambda status: status.workers_ready == 4)
    assert len({device.uuid for device in status.devices}) == 4
    await jobs.submit("late", gpu="0.1(T4)", workload="Training")
    await jobs.phase("Queued", "late", reason="Resources")
    await jobs.submit("served", gpu="0.1(T4)", workload="Inference")
    await jobs.phase("Running", "served")
    await jobs.delete("each")
    await jobs.phase("Running", "late")


@pytest.mark.parametrize(
    ("spec", "request_", "nodes"),
    [
        ({"gpu": "2(>=80G)"}, "2(>=80G)", {"a100"}),
        ({"gpu": None, "resources": {"count": 3, "minNominalMemoryGB": 32}}, "3(>=32G)", {"v100"}),
        ({"gpu": "1(T4|A100,>=16G)"}, "1(T4|A100,>=16G)", {"t4", "a100"}),
    ],
)
async def test_a_job_gets_whole_devices_of_its_nominal_size(
    jobs: Jobs, spec: dict[str, object], request_: str, nodes: set[str]
) -> None:
    await jobs.submit("large", **spec)
    status = await jobs.phase("Running", "large")
    assert status.request == request_
    assert {device.node.partition("-")[0] for device in status.devices} <= nodes
    (pod,) = await jobs.pods("large")
    assert pod.metadata.annotations[REQUEST] == request_


async def test_a_size_among_resources_is_asked_and_the_same_manifest_applies_again(jobs: Jobs) -> None:
    resources = {"count": 3, "minNominalMemoryGB": 32}
    await jobs.submit("large", gpu=None, resources=resources, suspend=True)
    await jobs.change("large", resources=resources, priority=20)
    status = await jobs.phase("Held", "large")
    stored = await jobs.client.get(GPUJOBS, name="large", as_type=GPUJob, namespace=jobs.namespace)
    assert stored.spec.resources is not None
    assert (stored.spec.gpu, stored.spec.resources.min_nominal_memory_gb, stored.spec.priority) == (None, 32, 20)
    assert status.request == "3(>=32G)"
    with pytest.raises(StatusError, match="resources cannot be changed"):
        await jobs.change("large", resources={"count": 3, "minNominalMemoryGB": 16})


async def test_a_size_that_no_device_has_is_refused_with_those_that_there_are(jobs: Jobs) -> None:
    await jobs.submit("huge", gpu="1(>=81G)")
    status = await jobs.phase("Queued", "huge", reason="ExceedsCapacity")
    assert "no node has a GPU of at least 81 GB, there is 16 GB, 32 GB, 80 GB" in status.message


async def test_what_a_job_requests_shrinks_to_its_right_size_at_its_next_start_alone(jobs: Jobs) -> None:
    await jobs.submit(gpu=1)
    await jobs.phase("Running")
    await jobs.change(rightSize="4G,0.3")
    assert (await jobs.phase("Running")).request == "1"
    await jobs.change(suspend=True)
    await jobs.phase("Suspended")
    await jobs.change(suspend=False)
    status = await jobs.until("x", lambda status: status.phase == "Running" and status.request == "4G,0.3")
    assert [(device.share_milli, device.memory_mib) for device in status.devices] == [(300, 4096)]
