"""The real JobSet controller with its webhooks: a JobSet in the queue is held, runs on its plan, returns and ends.

Its own sandbox, `dovetail sandbox up --with jobset`; a build takes minutes, so that this belongs to `make e2e`.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from dovetail.api.builtin import Job
from dovetail.api.resources import GPUJOBS, JOBS
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES, OVERRIDES
from tests.cluster.jobs import Jobs
from tests.cluster.kinds import JOBSETS
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_guest_kinds import hold_and_release, written
from tests.cluster.test_guests import Guests
from tests.cluster.test_neighbours import condition_of
from tests.cluster.test_pod_groups import all_run
from tests.core.jobs.guests.examples import EXPECTED

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox with JobSet."""
    with sandbox_with(nodes_file=NODES, overrides=OVERRIDES, with_=["jobset"]) as found:
        yield found


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    made = Guests(client, namespace=jobs.namespace)
    yield made
    await made.clear()


async def test_the_example_is_held_runs_on_its_plan_returns_and_ends(guests: Guests, jobs: Jobs) -> None:
    expected = EXPECTED["JobSet"]
    made = await guests.make(written(JOBSETS), resource=JOBSETS)
    assert made["spec"]["suspend"] is True
    await jobs.there(GPUJOBS, expected.name)
    running = await jobs.until(expected.name, lambda status: status.workers_ready == expected.workers)
    assert len({(device.node, device.uuid) for device in running.devices}) == expected.workers
    pods = await guests.until_pods(lambda pods: all_run(pods, count=expected.pods))
    allocated = [found for pod in pods if (found := allocation_in(pod.metadata.annotations)) is not None]
    assert [found.job for found in allocated] == [expected.name] * expected.workers
    await hold_and_release(guests, jobs, expected=expected)
    for pod in await guests.until_pods(lambda pods: all_run(pods, count=expected.pods)):
        await jobs.end_pod(pod, exit_code=0)
    await jobs.phase("Succeeded", expected.name)
    await condition_of(jobs, JOBSETS, "together", lambda true: "Completed" in true)


async def test_a_worker_that_fails_fails_the_jobset_and_its_record(guests: Guests, jobs: Jobs) -> None:
    expected = EXPECTED["JobSet"]
    await guests.make(written(JOBSETS), resource=JOBSETS)
    await jobs.there(GPUJOBS, expected.name)
    await jobs.until(expected.name, lambda status: status.workers_ready == expected.workers)
    failing = next(pod for pod in await guests.pods() if allocation_in(pod.metadata.annotations) is not None)
    await jobs.end_pod(failing, exit_code=3)
    failed = await jobs.phase("Failed", expected.name)
    assert "exit code 3" in failed.message
    await condition_of(jobs, JOBSETS, "together", lambda true: "Failed" in true)


async def test_a_jobset_waits_without_a_job_that_could_start(guests: Guests, jobs: Jobs) -> None:
    await jobs.submit("first", workers=11)
    await jobs.phase("Running", "first")
    await guests.make(written(JOBSETS), resource=JOBSETS)
    await jobs.there(GPUJOBS, "jobset-together")
    await jobs.phase("Queued", "jobset-together", reason="Resources")
    made, _ = await guests.client.list(
        JOBS, as_type=Job, namespace=guests.namespace, label_selector="jobset.sigs.k8s.io/jobset-name"
    )
    assert all(job.spec.suspend for job in made)
