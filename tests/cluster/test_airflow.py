"""Airflow's KubernetesPodOperator: a real DAG by `airflow dags test`, with the DAG of docs/integrations/airflow.md.

The pods are simulated: they run no program and have no log, so the operator does not read one, and the test writes
how a pod ends.
"""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from dovetail.api.builtin import Pod
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster import clients
from tests.cluster.clients import Program
from tests.cluster.jobs import Jobs
from tests.cluster.test_pod_groups import all_run, is_gated

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Run = Callable[[], AbstractAsyncContextManager[Program]]
DAG = clients.recipe("airflow", language="python")


@pytest.fixture
async def airflow(
    sandbox: Cluster, namespace: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Program]]:
    """Airflow's command with a database of its own; its Kubernetes connection names the namespace of the test."""
    program = await clients.program_of("airflow", name="airflow")
    extra = {"kube_config_path": str(sandbox.kubeconfig), "namespace": namespace}
    environment = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }
    command = partial(clients.running, program, folder=tmp_path, sandbox=sandbox, environment=environment)
    async with command("db", "migrate") as migrating:
        assert await migrating.ends() == 0, migrating.printed()
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "train.py").write_text(DAG + "\ntrain.get_logs = False\n")
    return partial(command, "dags", "test", "train")


async def test_a_task_waits_with_the_reason_in_its_log_runs_and_leaves_nothing(
    airflow: Run, client: Client, jobs: Jobs
) -> None:
    await jobs.submit("first", workers=14)
    await jobs.phase("Running", "first")
    async with airflow() as task:
        await task.prints("The Pod has an Event: Need 1 GPU, only 0 available")
        (pod,) = [each for each in await pods_of(client, jobs) if is_gated(each)]
        await jobs.delete("first")
        (pod,) = await clients.until_pods(client, namespace=jobs.namespace, holds=partial(all_run, count=1))
        allocation = allocation_in(pod.metadata.annotations)
        assert allocation is not None
        assert [device.share_milli for device in allocation.devices] == [500]
        await jobs.end_pod(pod)
        assert await task.ends() == 0, task.printed()
    assert not await pods_of(client, jobs)
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)


async def test_a_task_that_is_cancelled_gives_its_gpu_back(airflow: Run, client: Client, jobs: Jobs) -> None:
    async with airflow() as task:
        await clients.until_pods(client, namespace=jobs.namespace, holds=partial(all_run, count=1))
        await task.prints("base")
        task.terminate()
        await clients.until_pods(client, namespace=jobs.namespace, holds=lambda pods: not pods)
        assert await task.ends() != 0
    await clients.until_nothing_is_held(client, namespace=jobs.namespace)


async def pods_of(client: Client, jobs: Jobs) -> list[Pod]:
    """All pods of the test's namespace."""
    return await clients.until_pods(client, namespace=jobs.namespace, holds=lambda _: True)
