"""The real MPI operator: MPIJobs wait in the queue.

A build takes minutes, so that this belongs to `make e2e`. The MPI operator listens on port 8080, whatever its options.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.api.builtin import Pod
from dovetail.api.resources import GPUJOBS
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs
from tests.cluster.kinds import MPIJOBS
from tests.cluster.projects import MPI_OPERATOR, at_work, installed
from tests.cluster.test_guest_kinds import hold_and_release, written
from tests.cluster.test_guests import Guests, guests
from tests.cluster.test_neighbours import condition_of
from tests.cluster.test_pod_groups import all_run
from tests.core.jobs.guests.examples import EXPECTED

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

__all__ = ["guests"]
EXAMPLE = EXPECTED["MPIJob"]


@pytest.fixture(autouse=True)
async def mpi_operator(client: Client, namespace: str, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[None]:
    """The MPI operator is at work in the test's namespace."""
    arguments = (f"--namespace={namespace}", f"--lock-namespace={namespace}", "--kube-api-qps=50")
    async with (
        installed(client, projects=(MPI_OPERATOR,)),
        at_work(
            MPI_OPERATOR,
            client,
            cluster=sandbox,
            namespace=namespace,
            arguments=arguments,
            environment={},
            folder=tmp_path,
        ),
    ):
        yield


def role_of(pod: Pod) -> str:
    return pod.metadata.labels["training.kubeflow.org/job-role"]


async def started(guests: Guests, jobs: Jobs) -> list[Pod]:
    """All pods of the example, once they run."""
    made = await guests.make(written(MPIJOBS), resource=MPIJOBS)
    assert made["spec"]["runPolicy"]["suspend"] is True
    await jobs.there(GPUJOBS, EXAMPLE.name)
    running = await jobs.until(EXAMPLE.name, lambda status: status.workers_ready == EXAMPLE.workers)
    assert len({(device.node, device.uuid) for device in running.devices}) == EXAMPLE.workers
    return await guests.until_pods(lambda pods: all_run(pods, count=EXAMPLE.pods))


async def test_the_example_is_held_runs_on_its_plan_returns_and_ends(guests: Guests, jobs: Jobs) -> None:
    pods = await started(guests, jobs)
    allocated = {role_of(pod): allocation_in(pod.metadata.annotations) for pod in pods}
    assert allocated["launcher"] is None
    assert allocated["worker"] is not None
    assert allocated["worker"].job == EXAMPLE.name
    await hold_and_release(guests, jobs, expected=EXAMPLE)
    again = await guests.until_pods(lambda pods: all_run(pods, count=EXAMPLE.pods))
    await jobs.end_pod(next(pod for pod in again if role_of(pod) == "launcher"), exit_code=0)
    await jobs.phase("Succeeded", EXAMPLE.name)
    await condition_of(jobs, MPIJOBS, "allreduce", lambda true: "Succeeded" in true)
    # The workers are servers: the operator ends them, and their GPUs are free.
    await guests.until_pods(lambda pods: not [pod for pod in pods if role_of(pod) == "worker"])


async def test_a_launcher_that_fails_fails_the_mpijob_and_its_record(guests: Guests, jobs: Jobs) -> None:
    body = written(MPIJOBS)
    body["spec"]["runPolicy"]["backoffLimit"] = 0
    await guests.make(body, resource=MPIJOBS)
    await jobs.there(GPUJOBS, EXAMPLE.name)
    pods = await guests.until_pods(lambda pods: all_run(pods, count=EXAMPLE.pods))
    await jobs.end_pod(next(pod for pod in pods if role_of(pod) == "launcher"), exit_code=3)
    await jobs.phase("Failed", EXAMPLE.name)
    await condition_of(jobs, MPIJOBS, "allreduce", lambda true: "Failed" in true)
