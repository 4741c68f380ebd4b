"""Programs that only make or follow pods, each by its recipe of docs/integrations, from an environment of its own.

The simulated pods run no program. Each recipe says which part of the program runs here.
"""

import json
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, JOBS, NAMESPACES, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster import clients
from tests.cluster.jobs import Jobs
from tests.cluster.test_pod_groups import all_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Body = dict[str, Any]


@pytest.fixture(autouse=True)
async def left_nothing(client: Client, namespace: str) -> AsyncIterator[None]:
    """After each test no GPU is held."""
    yield
    await clients.until_nothing_is_held(client, namespace=namespace)


class Programs:
    """Programs of a client's Python, in a folder of the test."""

    def __init__(self, *, folder: Path, sandbox: Cluster, namespace: str) -> None:
        self.folder, self.sandbox, self.namespace = folder, sandbox, namespace

    async def result_with_recipe(self, client: str, source: str, *, page: str = "", more: str = "") -> Any:
        """As `result`; the Python of the recipe is the module `recipe`.

        It has the test's namespace for `team-a`, and `more` after the image.
        """
        block = clients.recipe(page or client, language="python").replace("team-a", self.namespace)
        (self.folder / "recipe.py").write_text(block.replace('"my/training",', f'"my/training", {more}'))
        return await self.result(client, source)

    async def result(self, client: str, source: str) -> Any:
        """What a program of a client's Python writes to the file `result.json`."""
        python = await clients.program_of(client)
        # Prefect starts a server of its own for a while.
        environment = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(clients.CLIENT_SECONDS)}
        command = (python, "-c", source)
        async with clients.running(
            *command, folder=self.folder, sandbox=self.sandbox, environment=environment
        ) as program:
            assert await program.ends() == 0, program.printed()
            return json.loads((self.folder / "result.json").read_text())


@pytest.fixture
def programs(sandbox: Cluster, namespace: str, tmp_path: Path) -> Programs:
    return Programs(folder=tmp_path, sandbox=sandbox, namespace=namespace)


async def bound(client: Client, *, namespace: str, count: int = 1) -> list[Pod]:
    """The pods of a namespace, once they run with devices."""
    pods = await clients.until_pods(client, namespace=namespace, holds=partial(all_run, count=count))
    assert all(allocation_in(pod.metadata.annotations) is not None for pod in pods)
    return pods


async def test_prefect_makes_a_job_that_the_queue_takes(programs: Programs, client: Client, jobs: Jobs) -> None:
    source = """
import asyncio, contextlib, io, json, uuid
with contextlib.redirect_stdout(io.StringIO()):
    from recipe import template
from prefect.client.schemas.objects import FlowRun
from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

variables = json.loads(open("variables.json").read())
made = asyncio.run(KubernetesWorkerJobConfiguration.from_template_and_values(template, variables))
made.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), name="train", flow_id=uuid.uuid4()))
open('result.json', 'w').write(json.dumps(made.job_manifest))
"""
    (programs.folder / "variables.json").write_text(clients.recipe("prefect", language="json"))
    manifest: Body = await programs.result_with_recipe("prefect", source)
    manifest["metadata"]["namespace"] = jobs.namespace
    manifest["spec"]["template"]["metadata"]["annotations"][names.RUN_SECONDS] = "100000"
    made = await client.create(JOBS, body=manifest, as_type=Body, namespace=jobs.namespace)
    record = f"job-{made['metadata']['name']}"
    await jobs.there(GPUJOBS, record)
    await jobs.phase("Running", record)
    await bound(client, namespace=jobs.namespace)
    await client.delete(JOBS, name=made["metadata"]["name"], namespace=jobs.namespace)


async def test_dagster_follows_a_queued_job_to_its_end(programs: Programs, sandbox: Cluster, jobs: Jobs) -> None:
    source = """
import json
from recipe import training

open('result.json', 'w').write(json.dumps(training.execute_in_process().success))
"""
    place = (
        f'"load_incluster_config": False, "kubeconfig_file": "{sandbox.kubeconfig}", "namespace": "{jobs.namespace}",'
    )
    assert await programs.result_with_recipe("dagster", source, more=place) is True
    records, _ = await jobs.client.list(GPUJOBS, as_type=GPUJob, namespace=jobs.namespace)
    assert [job.status.phase for job in records] == ["Succeeded"]
    made, _ = await jobs.client.list(JOBS, as_type=Job, namespace=jobs.namespace)
    await jobs.client.delete(JOBS, name=made[0].metadata.name, namespace=jobs.namespace)


async def test_parsl_submits_sees_and_cancels_a_block(programs: Programs, client: Client, namespace: str) -> None:
    source = """
import json, time
from parsl.jobs.states import JobState
from recipe import provider

block = provider.submit("sleep 1000", 1)
while (state := provider.status([block])[0].state) is not JobState.RUNNING:
    time.sleep(0.2)
pods = provider.kube_client.list_namespaced_pod(provider.namespace).items
found = [sorted(pod.metadata.annotations) for pod in pods]
open('result.json', 'w').write(json.dumps([*found, provider.cancel([block])]))
"""
    annotations, cancelled = await programs.result_with_recipe("parsl", source)
    assert names.ALLOCATION in annotations
    assert cancelled == [True]
    await clients.until_pods(client, namespace=namespace, holds=lambda pods: not pods)


async def test_a_pod_of_torchx_is_translated(programs: Programs, client: Client, namespace: str) -> None:
    patch = {"metadata": {"labels": {names.TRANSLATE: "true"}}}
    await client.patch(NAMESPACES, name=namespace, patch=patch, as_type=Body)
    source = """
import json
from kubernetes.client import ApiClient
from recipe import pod

open('result.json', 'w').write(json.dumps(ApiClient().sanitize_for_serialization(pod)))
"""
    made = await programs.result_with_recipe("torchx", source)
    made["metadata"]["name"] = "train-0"
    await client.create(PODS, body=made, as_type=Pod, namespace=namespace)
    (pod,) = await bound(client, namespace=namespace)
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    assert len(allocation.devices) == 2
    await client.delete(PODS, name=pod.metadata.name, namespace=namespace)


async def test_kubeflow_pipelines_compiles_annotation_and_label(programs: Programs) -> None:
    source = """
import json
from kfp import compiler
from recipe import pipeline

compiler.Compiler().compile(pipeline, "pipeline.yaml")
open('result.json', 'w').write(json.dumps("compiled"))
"""
    assert await programs.result_with_recipe("kfp", source, page="argo") == "compiled"
    _, platform = yaml.safe_load_all((programs.folder / "pipeline.yaml").read_text())
    (executor,) = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    assert executor["podMetadata"] == {
        "annotations": {names.REQUEST: "8G,0.5"},
        "labels": {names.LABEL_QUEUE: "default"},
    }


async def test_skypilot_completes_a_pod_and_knows_models_but_no_numbers(
    programs: Programs, client: Client, namespace: str
) -> None:
    source = """
import json
import sky
from sky.provision.kubernetes import utils

(resources,) = sky.Task.from_yaml("task.yaml").resources
pod = {"metadata": {}, "spec": {"containers": [{"name": "ray-node", "image": "none"}]}}
template = {"available_node_types": {"ray_head_default": {"node_config": pod}}}
made = utils.combine_pod_config_fields(template, resources.cluster_config_overrides)
found = utils.get_kubernetes_node_info().node_info_dict.values()
counts = [[each.accelerator_type, each.total["accelerator_count"]] for each in found if each.accelerator_type]
open('result.json', 'w').write(json.dumps([made["available_node_types"]["ray_head_default"]["node_config"], counts]))
"""
    (programs.folder / "task.yaml").write_text(clients.recipe("skypilot", language="yaml"))
    made, counts = await programs.result("skypilot", source)
    assert sorted(counts) == [["A100", 0], ["T4", 0], ["T4", 0], ["V100", 0], ["V100", 0]]
    made["metadata"]["name"] = "head"
    await client.create(PODS, body=made, as_type=Pod, namespace=namespace)
    await bound(client, namespace=namespace)
    await client.delete(PODS, name="head", namespace=namespace)


@pytest.mark.skipif(shutil.which("java") is None, reason="no java: apt-get install default-jre-headless")
async def test_spark_s_executors_get_gpus_and_go_with_their_driver(
    client: Client, namespace: str, sandbox: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "gpus.conf").write_text(clients.recipe("spark", language="properties"))
    (tmp_path / "program.py").write_text(
        "import time\nfrom pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\ntime.sleep(1000)\n"
    )
    server = load_connection(sandbox.kubeconfig).server
    settings = {"spark.kubernetes.namespace": namespace, "spark.driver.host": "127.0.0.1"}
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    python = Path(await clients.program_of("spark"))
    environment = {"PYSPARK_PYTHON": str(python)}
    submit = (str(python.with_name("spark-submit")), f"--master=k8s://{server}", "--properties-file=gpus.conf")
    command = (*submit, *options, "program.py")
    async with clients.running(*command, folder=tmp_path, sandbox=sandbox, environment=environment) as driver:
        await bound(client, namespace=namespace, count=2)
        driver.terminate()
        await clients.until_pods(client, namespace=namespace, holds=lambda pods: not pods)
