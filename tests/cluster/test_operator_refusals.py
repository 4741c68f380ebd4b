"""GPUJobs that no one should submit: the API server refuses them in one sentence, and nothing reaches the operator."""

from typing import Any, Final

import pytest
from msgspec import Raw

from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster
RESOURCE_QUOTAS: Final = Resource(plural="resourcequotas", kind="ResourceQuota")


ALWAYS = {"spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Always"}}


@pytest.mark.parametrize(
    ("spec", "field", "allowed"),
    [
        ({"gpu": "0"}, "spec.gpu", "a whole number of GPUs from 1 to 9999"),
        ({"gpu": 0}, "spec.gpu", "a whole number of GPUs from 1 to 9999"),
        ({"gpu": "-1"}, "spec.gpu", "a whole number of GPUs from 1 to 9999"),
        ({"gpu": "1.5"}, "spec.gpu", "a share from 0.001 to 1"),
        ({"gpu": "8X,0.5"}, "spec.gpu", "such as 2, 0.5"),
        ({"gpu": "2(>=0G)"}, "spec.gpu", "each with a model or a size"),
        ({"gpu": "2(>=32G,V100)"}, "spec.gpu", "each with a model or a size"),
        ({"memory": {"strategy": "Bold"}}, "spec.memory.strategy", "a fraction from 0.05 to 1, such as 0.7"),
        ({"memory": {"strategy": "0.04"}}, "spec.memory.strategy", "a fraction from 0.05 to 1, such as 0.7"),
        ({"memory": {"strategy": "0.7", "parameters": 7}}, "spec.memory", "parameters are for strategy Dynamic"),
        ({"memory": {"batchSize": 8}}, "spec.memory", "parameters must be given"),
        ({"onNoGPU": "Sometimes"}, "spec.onNoGPU", "onNoGPU must be one of RunOnCPU, Wait"),
        ({"onNoGPUAfterSeconds": 60}, "spec", "onNoGPU must be RunOnCPU"),
        ({"rightSize": "2"}, "spec.rightSize", "rightSize must be a share of a device, or its memory and a share"),
        ({"rightSize": "0.5(V100)"}, "spec.rightSize", "such as 0.5, 8G,0.5 or 50%,0.5"),
        ({"resources": {"minNominalMemoryGB": 0}}, "spec.resources.minNominalMemoryGB", "1"),
        ({"resources": {"minNominalMemoryGB": 10000}}, "spec.resources.minNominalMemoryGB", "9999"),
        (
            {"resources": {"device": "cpu", "minNominalMemoryGB": 8}},
            "spec.resources",
            "minNominalMemoryGB must be left out",
        ),
        ({"gpu": "2(!T4|P4)"}, "spec.gpu", "each with a model or a size"),
        ({"gpu": "101%,0.5"}, "spec.gpu", "memory and a share"),
        ({"resources": {"memoryPercent": 101}}, "spec.resources.memoryPercent", "100"),
        ({"resources": {"memoryPercent": 50, "memory": "8Gi"}}, "spec.resources", "one of them must be left out"),
        ({"resources": {"excludedModels": ["!T4"]}}, "spec.resources.excludedModels[0]", "such as V100"),
        ({"resources": {"device": "cpu", "memoryPercent": 50}}, "spec.resources", "must be left out"),
        ({"mode": "Sometimes"}, "spec.mode", "one of Exclusive, Fractional, TimeShared"),
        ({"priority": 300}, "spec.priority", "255"),
        ({"priority": -1}, "spec.priority", "0"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec", "containers"),
        ({"template": {"spec": {}}}, "spec.template.spec", "containers"),
        ({"gpu": 1, "resources": {"count": 1}}, "spec", "exactly one of gpu"),
        ({"gpu": "0.5", "mode": "Exclusive"}, "spec", "write Fractional or TimeShared"),
        ({"workers": 0}, "spec.workers", "1"),
        ({"resources": {"share": 0}}, "spec.resources.share", "share must be from 0.001 to 1"),
        ({"resources": {"share": 0.9996}}, "spec.resources.share", "at most three decimals"),
        ({"resources": {"memory": "8G"}}, "spec.resources.memory", "such as 8Gi or 512Mi"),
        ({"resources": {"models": ["V100,T4"]}}, "spec.resources.models[0]", "such as V100"),
        ({"resources": {"device": "CUDA:1"}}, "spec.resources.device", "cuda:N"),
        ({"resources": {"device": "A/cuda:1"}}, "spec.resources.device", "NODE/cuda:N"),
        ({"resources": {"device": "a/cuda:1", "count": 2}}, "spec.resources", "count must be 1"),
        ({"gpu": 1.5}, "spec.gpu", "a share from 0.001 to 1"),
        ({"beginTime": "tomorrow"}, "spec.beginTime", "a time with its zone, such as 2026-12-01T08:00:00Z"),
        ({"beginTime": "2026-02-30T08:00:00Z"}, "spec.beginTime", "a time with its zone"),
        ({"group": "Café"}, "spec.group", "must be of a-z, 0-9 and '-'"),
        ({"dependencies": [{"name": "Not a job"}]}, "spec.dependencies[0].name", "must be of a-z, 0-9 and '-'"),
        ({"notify": {"emails": ["ada"]}}, "spec.notify.emails[0]", "such as ada@example.com"),
        ({"retryPolicy": {"exitCodes": [75]}}, "spec", "write backoffLimit: 1 or more, or leave retryPolicy out"),
        (
            {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [3, 0]}}]}},
            "spec.podFailurePolicy.rules[0]",
            "allowed are exit codes from 1 to 255",
        ),
        ({"activeDeadlineSeconds": 2**63 - 1}, "spec.activeDeadlineSeconds", "2147483647"),
        ({"template": ALWAYS}, "spec.template.spec.restartPolicy", "Never or OnFailure"),
        ({"beginTime": "9999-12-31T23:59:59-12:00"}, "spec.beginTime", "the years 1000 to 2999"),
    ],
)
async def test_a_bad_manifest_is_refused_in_a_sentence(
    jobs: Jobs, spec: dict[str, Any], field: str, allowed: str
) -> None:
    with pytest.raises(StatusError) as refused:
        await jobs.submit(**spec)
    assert refused.value.code == 422
    (cause,) = refused.value.details.causes or ()
    assert cause.field == field
    assert allowed in cause.message


async def test_a_sweep_of_more_tasks_than_are_allowed_is_refused(jobs: Jobs) -> None:
    parameters = [{"name": name, "values": [str(value) for value in range(40)]} for name in ("a", "b")]
    with pytest.raises(StatusError, match="sweep has 1600 combinations, and 1000 are allowed"):
        await jobs.submit(sweep={"parameters": parameters})


async def test_a_reservation_of_no_device_is_refused(jobs: Jobs) -> None:
    with pytest.raises(StatusError, match="a reservation holds devices, and device cpu takes none"):
        await jobs.submit(resources={"device": "cpu"}, reservation={"durationSeconds": 60}, template=None)


async def test_a_reservation_does_not_run_on_the_cpu(jobs: Jobs) -> None:
    with pytest.raises(StatusError, match="a reservation holds devices, and on the CPU there are none"):
        await jobs.submit(onNoGPU="RunOnCPU", reservation={"durationSeconds": 60}, template=None)


async def test_whether_a_job_runs_on_the_cpu_stays_and_when_may_change(jobs: Jobs) -> None:
    await jobs.submit(suspend=True, onNoGPU="RunOnCPU", onNoGPUAfterSeconds=600)
    await jobs.change(onNoGPUAfterSeconds=60)
    await jobs.change(onNoGPUAfterSeconds=None)
    for changed in ("Wait", None):
        with pytest.raises(StatusError, match="onNoGPU cannot be changed"):
            await jobs.change(onNoGPU=changed)


async def test_a_request_cannot_be_changed_afterwards(jobs: Jobs) -> None:
    await jobs.submit(suspend=True)
    with pytest.raises(StatusError, match="gpu cannot be changed"):
        await jobs.change(gpu=2)


@pytest.mark.parametrize(
    ("container", "pod", "told"),
    [
        ({}, {"dnsPolicy": "Never"}, "spec.template.spec.dnsPolicy"),
        ({"comand": ["train"]}, {}, 'unknown field "spec.template.spec.containers[0].comand"'),
    ],
    ids=["a value that is not allowed", "a field that is misspelt"],
)
async def test_what_only_the_batch_job_refuses_is_told_in_the_status(
    jobs: Jobs, container: dict[str, Any], pod: dict[str, Any], told: str
) -> None:
    main = {"name": "main", "image": "busybox", **container}
    await jobs.submit(template={"spec": {"containers": [main], **pod}})
    status = await jobs.phase("Queued", reason="Invalid")
    assert status.message.startswith("The API server refuses the Job: ")
    assert told in status.message


async def test_a_gang_of_which_a_resource_quota_refuses_a_pod_is_not_left_half_started(
    jobs: Jobs, client: Client, namespace: str
) -> None:
    two = {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}
    await client.create(RESOURCE_QUOTAS, body=two, as_type=Raw, namespace=namespace)
    await jobs.submit(workers=3)
    status = await jobs.phase("Queued", reason="Quota")
    assert "the API server refuses its pods: forbidden: exceeded quota: two" in status.message
    await client.delete(RESOURCE_QUOTAS, name="two", namespace=namespace)
    await jobs.until("x", lambda status: status.phase == "Running" and status.workers_active == 3)


@pytest.mark.parametrize(
    ("name", "workers", "says"),
    [("a.b", 1, "must be a DNS label"), ("a" * 62, 1, "within 63 characters"), ("a" * 61, 11, "within 63 characters")],
)
async def test_a_name_that_makes_no_host_name_is_refused(jobs: Jobs, name: str, workers: int, says: str) -> None:
    with pytest.raises(StatusError, match=says):
        await jobs.submit(name, workers=workers)


async def test_the_longest_name_that_makes_a_host_name_will_do(jobs: Jobs) -> None:
    await jobs.submit("a" * 61, run=1)
    await jobs.phase("Succeeded", "a" * 61)
