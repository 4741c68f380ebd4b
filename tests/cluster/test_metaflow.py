"""Metaflow's `@kubernetes`: a real `run` of the flow of docs/integrations/metaflow.md.

S3 is moto's server. The simulated pod runs no program: the test writes its end, and the flow's next step then misses
what the step would have stored.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from dovetail import names
from dovetail.api.builtin import Event, Job
from dovetail.api.resources import EVENTS, JOBS
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import clients
from tests.cluster.clients import Program
from tests.cluster.jobs import FOR_EVER, Jobs
from tests.cluster.test_pod_groups import all_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# Simulated pods of Jobs end by themselves; this one runs until the test ends it.
REQUEST = '"dovetail.dev/gpu": "8G,0.5"'
FLOW = clients.recipe("metaflow", language="python").replace(REQUEST, f'{REQUEST}, "{names.RUN_SECONDS}": "{FOR_EVER}"')


Metaflow = Callable[..., AbstractAsyncContextManager[Program]]


@pytest.fixture
async def metaflow(sandbox: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Metaflow]:
    """The flow's commands, for the namespace of the test."""
    (port,) = free_ports(count=1)
    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "METAFLOW_DEFAULT_DATASTORE": "s3",
        "METAFLOW_DEFAULT_METADATA": "local",
        "METAFLOW_DATASTORE_SYSROOT_S3": "s3://flows/metaflow",
        "METAFLOW_S3_ENDPOINT_URL": endpoint,
        "METAFLOW_KUBERNETES_NAMESPACE": namespace,
        "METAFLOW_USER": "rita",
    }
    (tmp_path / "train.py").write_text(FLOW)
    server = await clients.program_of("metaflow", name="moto_server")
    python = await clients.program_of("metaflow")
    async with clients.running(server, "-p", str(port), folder=tmp_path, sandbox=sandbox):
        await _make_bucket(f"{endpoint}/flows")
        yield partial(clients.running, python, "train.py", folder=tmp_path, sandbox=sandbox, environment=environment)


async def _make_bucket(url: str) -> None:
    """Once the server answers."""
    async with asyncio.timeout(clients.CLIENT_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.put(url) as answer:
                    assert answer.status == 200, await answer.text()
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.2)


async def test_a_step_waits_with_a_reason_runs_and_ends(metaflow: Metaflow, client: Client, jobs: Jobs) -> None:
    await jobs.submit("first", workers=14)
    await jobs.phase("Running", "first")
    async with metaflow("run") as flow:
        job = await _waits_runs_and_ends(flow, client, jobs)
    await jobs.phase("Succeeded", f"job-{job}")
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)
    await client.delete(JOBS, name=job, namespace=jobs.namespace)


async def _waits_runs_and_ends(flow: Program, client: Client, jobs: Jobs) -> str:
    """The Job of the step, whose pod has ended."""
    await flow.prints("Task is starting (")
    job = await _job_of_the_step(client, namespace=jobs.namespace)
    await jobs.phase("Queued", f"job-{job}", reason="Resources")
    events, _ = await client.list(EVENTS, as_type=Event, namespace=jobs.namespace)
    said = [each.message for each in events if (each.involved_object.kind, each.involved_object.name) == ("Job", job)]
    assert any(message.startswith("Need 1 GPU, only 0 available") for message in said), said
    await jobs.delete("first")
    (pod,) = await clients.until_pods(client, namespace=jobs.namespace, holds=partial(all_run, count=1))
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    assert allocation.job == f"job-{job}"
    await jobs.end_pod(pod)
    await flow.prints("Task finished with exit code 0.")
    return job


async def test_a_run_that_is_killed_gives_its_gpu_back(metaflow: Metaflow, client: Client, jobs: Jobs) -> None:
    async with metaflow("run") as flow:
        await clients.until_pods(client, namespace=jobs.namespace, holds=partial(all_run, count=1))
        await flow.prints("Pod is running")
        async with metaflow("kubernetes", "kill", "--my-runs") as killing:
            assert await killing.ends() == 0, killing.printed()
        await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: not pods)
    name = await _job_of_the_step(client, namespace=jobs.namespace)
    assert (await client.get(JOBS, name=name, as_type=Job, namespace=jobs.namespace)).spec.parallelism == 0
    await jobs.submit("next", workers=14)
    await jobs.phase("Running", "next")


async def _job_of_the_step(client: Client, *, namespace: str) -> str:
    """The Job that Metaflow has made, which names the queue."""
    found, _ = await client.list(JOBS, as_type=Job, namespace=namespace, label_selector=names.LABEL_QUEUE)
    (job,) = found
    return job.metadata.name
