"""Each of Dovetail's programs killed while jobs run and jobs wait: it ends the same, and no job is lost."""

import asyncio
from collections import Counter

import pytest

from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.resources import GPUJOBS
from dovetail_cli.cluster import audit
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.killing import kill, running

pytestmark = pytest.mark.cluster

JOBS = 12
# On the six nodes of the tests' sandbox a few of these run at once and the others wait.
REQUESTS = ("4", "2", "0.5", "8G,0.25")


async def statuses(jobs: Jobs) -> list[GPUJob]:
    found, _ = await jobs.client.list(GPUJOBS, as_type=GPUJob, namespace=jobs.namespace)
    return found


async def until_some_run_and_some_wait(jobs: Jobs) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            phases = Counter(job.status.phase for job in await statuses(jobs))
            if phases["Running"] and phases["Queued"]:
                return
            await asyncio.sleep(0.05)


async def until_all_have_ended(jobs: Jobs) -> list[GPUJob]:
    async with asyncio.timeout(3 * PATIENCE_SECONDS):
        while True:
            found = await statuses(jobs)
            if all(is_finished(job) for job in found):
                return found
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("component", ["extender", "operator", "agent", "kube-scheduler"])
async def test_killed_while_jobs_run_and_wait_all_of_them_end_well(
    sandbox: Cluster, jobs: Jobs, component: str
) -> None:
    # Together: those that run must not be over before the last ones come.
    await asyncio.gather(
        *(
            jobs.submit(f"job-{number}", gpu=REQUESTS[number % len(REQUESTS)], run=3, workers=1 + number % 2)
            for number in range(JOBS)
        )
    )
    await until_some_run_and_some_wait(jobs)

    killed = await kill(sandbox, component)
    proof = await asyncio.to_thread(audit.prove, kubeconfig=str(sandbox.kubeconfig), context=None)
    assert not proof.items

    ended = await until_all_have_ended(jobs)
    assert Counter(job.status.phase for job in ended) == {"Succeeded": JOBS}
    assert len({job.status.number for job in ended}) == JOBS
    await running(sandbox, component, other_than=killed)
