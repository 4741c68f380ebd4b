"""The whole life of a GPUJob on a real control plane: through operator, kube-scheduler, extender and KWOK."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.api.builtin import ConfigMap, Event
from dovetail.api.reasons.catalog import rendered
from dovetail.api.resources import CONFIGMAPS, EVENTS, GPUJOBS, JOBS
from dovetail.formats.durations import human, moment
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox import progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from tests.cluster.jobs import FOR_EVER, Jobs, condition, run

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., tuple[str, ...]]


@pytest.fixture
def kubectl(sandbox: Cluster, namespace: str) -> Kubectl:
    """The command line of a kubectl call in this test's namespace."""
    program: Path = locate.resolve(["kubectl"], report=progress.reporter())["kubectl"]

    def command(*arguments: str) -> tuple[str, ...]:
        return (str(program), f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={namespace}", *arguments)

    return command


async def test_a_job_runs_to_success_and_tells_where(jobs: Jobs) -> None:
    await jobs.submit(gpu="2(V100)", run=2)
    status = await jobs.phase("Succeeded")
    assert condition(status, "Complete") == ("True", "CompletionsReached")
    assert condition(status, "Admitted") == ("True", "Admitted")
    assert (status.number, status.request, status.gpus, status.workers_succeeded) == (1, "2(V100)", 2, 1)
    assert status.node_list.startswith("v100-")
    assert {device.node for device in status.devices} == set(status.nodes)
    assert [device.share_milli for device in status.devices] == [1000, 1000]
    assert status.admitted_time is not None
    assert status.start_time is not None
    assert status.completion_time is not None
    assert status.admitted_time <= status.start_time < status.completion_time
    assert status.elapsed == human((moment(status.completion_time) - moment(status.start_time)).total_seconds())


async def test_the_events_of_many_jobs_do_not_wait_for_each_other(jobs: Jobs) -> None:
    """In a rush they come slowly, but all of them come."""
    left = {f"many-{number}" for number in range(400)}
    for name in sorted(left):
        await jobs.submit(name, suspend=True)
    async with asyncio.timeout(90):
        while left:
            events, _ = await jobs.client.list(EVENTS, as_type=Event, namespace=jobs.namespace)
            left -= {event.involved_object.name for event in events}
            await asyncio.sleep(0.5)


async def test_the_status_names_the_devices_that_the_pod_is_given(jobs: Jobs) -> None:
    await jobs.submit(gpu="8G,0.5")
    status = await jobs.phase("Running")
    (device,) = status.devices
    (pod,) = await jobs.pods()
    assert (device.share_milli, device.memory_mib) == (500, 8192)
    assert pod.metadata.annotations["dovetail.dev/visible-devices.0"] == device.uuid
    assert pod.metadata.annotations["dovetail.dev/mps-percentage.0"] == "50"
    assert pod.metadata.labels["dovetail.dev/job-number"] == str(status.number)


async def test_a_gang_runs_side_by_side(jobs: Jobs) -> None:
    await jobs.submit(gpu="2(V100)", workers=3)
    running = await jobs.until("x", lambda status: status.phase == "Running" and status.workers_ready == 3)
    assert sorted({device.worker for device in running.devices}) == [0, 1, 2]
    assert len({device.uuid for device in running.devices}) == 6
    await jobs.end()
    status = await jobs.phase("Succeeded")
    assert status.workers_succeeded == 3


async def test_a_job_that_fails_says_how(jobs: Jobs) -> None:
    await jobs.submit(run=1, exit_code=3)
    status = await jobs.phase("Failed", reason="BackoffLimitExceeded")
    assert "exit code 3" in status.message
    assert condition(status, "Failed") == ("True", "BackoffLimitExceeded")
    announced = await jobs.announced("Failed")
    assert [event.type for event in announced if event.reason == "Failed"] == ["Warning"]


@pytest.mark.slow  # the second attempt begins 10 s after the first one's end
async def test_a_failed_worker_is_tried_again(jobs: Jobs) -> None:
    await jobs.submit(run=1, exit_code=3, backoffLimit=1)
    status = await jobs.phase("Failed")
    assert (status.attempt, status.retries, len(status.attempts)) == (2, 1, 1)


async def test_a_job_over_its_time_limit_has_timed_out(jobs: Jobs) -> None:
    await jobs.submit(activeDeadlineSeconds=2)
    status = await jobs.phase("TimedOut", reason="DeadlineExceeded")
    assert "2 s" in status.message
    assert condition(status, "Failed") == ("True", "DeadlineExceeded")
    await jobs.without_pods()


async def test_a_job_without_gpu_runs_at_once(jobs: Jobs) -> None:
    await jobs.submit(resources={"device": "cpu"}, run=1)
    status = await jobs.phase("Succeeded")
    assert (status.request, status.gpus, status.devices) == ("cpu", 0, [])


async def test_the_first_reason_that_is_told_is_the_true_one(jobs: Jobs) -> None:
    """How soon it is there is for benchmarks to say."""
    await jobs.submit(gpu="2(A100)", name="holder")
    await jobs.phase("Running", "holder")
    await jobs.submit(gpu="2(A100)")
    status = await jobs.until("x", lambda status: bool(status.reason))
    assert (status.phase, status.reason) == ("Queued", "Resources")
    assert status.message.startswith("Need 2 GPUs, only 0 available")
    assert rendered(status.details).message == status.message


async def test_a_job_that_waits_starts_when_there_is_room_and_the_higher_priority_first(jobs: Jobs) -> None:
    await jobs.submit("holder", gpu="2(A100)")
    await jobs.phase("Running", "holder")
    await jobs.submit("low", gpu="2(A100)", priority=1)
    await jobs.submit("high", gpu="2(A100)", priority=200)
    for name in ("low", "high"):
        await jobs.phase("Queued", name, reason="Resources")
    await jobs.change("holder", cancel=True)
    await jobs.phase("Running", "high")
    await jobs.phase("Queued", "low", reason="Resources")


async def test_what_could_never_run_says_the_largest_that_could(jobs: Jobs) -> None:
    await jobs.submit(gpu=16)
    status = await jobs.phase("Queued", reason="ExceedsCapacity")
    assert status.message == "Need 16 GPUs, only 4 available on one node: the largest request that could ever fit is 4"
    assert [each.code for each in status.details] == ["TooFewGPUs", "OnOneNode", "LargestEver"]


async def test_a_cancelled_job_ends_and_its_pods_go(jobs: Jobs) -> None:
    await jobs.submit(run=FOR_EVER)
    await jobs.phase("Running")
    await jobs.change(cancel=True)
    status = await jobs.phase("Cancelled", reason="Cancelled")
    assert condition(status, "Failed") == ("True", "Cancelled")
    assert status.completion_time is not None
    await jobs.gone(JOBS)
    await jobs.without_pods()


async def test_a_job_is_held_before_it_runs_and_suspended_after(jobs: Jobs) -> None:
    await jobs.submit(suspend=True)
    status = await jobs.phase("Held", reason="Held")
    assert condition(status, "Suspended") == ("True", "Held")
    with pytest.raises(NotFound):
        await jobs.child()
    await jobs.change(suspend=False)
    await jobs.phase("Running")
    await jobs.change(suspend=True)
    await jobs.phase("Suspended", reason="Held")
    await jobs.without_pods()
    await jobs.change(suspend=False)
    status = await jobs.phase("Running")
    assert condition(status, "Suspended") == ("False", "JobResumed")


async def test_a_deleted_job_takes_its_batch_job_and_pods_along(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    await jobs.delete()
    await jobs.gone(GPUJOBS)
    await jobs.gone(JOBS)
    await jobs.without_pods()


async def test_a_job_is_removed_when_its_time_to_be_kept_is_over(jobs: Jobs) -> None:
    await jobs.submit(run=1, ttlSecondsAfterFinished=1)
    await jobs.gone(GPUJOBS)
    await jobs.gone(JOBS)


async def test_a_batch_job_that_somebody_deletes_is_made_anew(jobs: Jobs, client: Client, namespace: str) -> None:
    await jobs.submit()
    before = await jobs.phase("Running")
    first = (await jobs.child()).metadata.uid
    await asyncio.sleep(1.1)  # times of the API have whole seconds
    await client.delete(JOBS, name="x", namespace=namespace)
    await jobs.until("x", lambda status: status.phase == "Running" and status.start_time != before.start_time)
    assert (await jobs.child()).metadata.uid != first


async def test_a_strangers_batch_job_is_left_alone(jobs: Jobs, client: Client, namespace: str) -> None:
    pod = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
    stranger = {"metadata": {"name": "x"}, "spec": {"suspend": True, "template": {"spec": pod}}}
    await client.create(JOBS, body=stranger, as_type=dict, namespace=namespace)
    await jobs.submit()
    status = await jobs.phase("Queued", reason="Invalid")
    assert status.message.startswith("A Job named x exists and is not this GPUJob's")
    assert not (await jobs.child()).metadata.owner_references


async def test_a_job_that_comes_again_under_its_name_is_another_one(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    await jobs.delete()
    await jobs.submit(run=1)
    status = await jobs.phase("Succeeded")
    assert status.number == 2


async def test_numbers_count_in_each_namespace_and_are_written_down(jobs: Jobs, client: Client, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await jobs.submit(name, suspend=True)
    numbers = [(await jobs.phase("Held", name)).number for name in ("a", "b", "c")]
    assert sorted(number or 0 for number in numbers) == [1, 2, 3]
    configmap = await client.get(
        CONFIGMAPS, name="dovetail-job-numbers", as_type=ConfigMap, namespace="dovetail-system"
    )
    assert configmap.data[namespace] == "3"


async def test_what_happens_is_announced_once(jobs: Jobs) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    await jobs.end()
    await jobs.phase("Succeeded")
    # It started at once, so its status alone says when.
    assert [event.reason for event in await jobs.announced("Succeeded")] == ["Succeeded"]


async def test_kubectl_shows_since_when_a_job_runs_and_how_long_it_ran(jobs: Jobs, kubectl: Kubectl) -> None:
    await jobs.submit()
    await jobs.phase("Running")
    columns = "-o=jsonpath={.status.startTime} {.status.elapsed}"
    started, ran = (await run(*kubectl("get", "gj", "x", columns))).stdout.split(" ")
    assert (bool(started), ran) == (True, "")
    await jobs.end()
    await jobs.phase("Succeeded")
    ended, ran = (await run(*kubectl("get", "gj", "x", columns))).stdout.split(" ")
    assert (ended, ran.endswith("s")) == (started, True)


async def test_kubectl_waits_for_a_job_and_shows_it(jobs: Jobs, kubectl: Kubectl) -> None:
    await jobs.submit(gpu="1(V100)", run=1, priority=30)
    waited = await run(*kubectl("wait", "--for=condition=Complete", "gpujob/x", "--timeout=50s"))
    assert (waited.stdout, waited.stderr) == ("gpujob.dovetail.dev/x condition met\n", "")
    shown = await run(*kubectl("get", "gj", "x"))
    head, row = shown.stdout.splitlines()
    assert head.split() == [
        "NAME",
        "STATE",
        "REASON",
        "POSITION",
        "GPUS",
        "NODES",
        "PRIORITY",
        "STARTED",
        "ELAPSED",
        "AGE",
    ]
    cells = row.split()
    assert cells[:3] == ["x", "Succeeded", "1"]
    assert cells[3].startswith("v100-")
    assert cells[4] == "30"
