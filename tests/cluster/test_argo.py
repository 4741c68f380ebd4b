"""Argo's workflow controller with its own CRDs and role, and the Workflow of docs/integrations/argo.md.

The executor's image cannot be built here, and the simulated pods run no program: the test reports a step's end as the
executor does, in a WorkflowTaskResult, and writes the pod's end.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import CONFIGMAPS, Resource
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster import clients
from tests.cluster.jobs import Jobs
from tests.cluster.projects import Project, at_work, installed
from tests.cluster.test_pod_groups import all_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GROUP: Final = "argoproj.io"
WORKFLOWS: Final = Resource(group=GROUP, version="v1alpha1", plural="workflows", kind="Workflow")
RESULTS: Final = Resource(group=GROUP, version="v1alpha1", plural="workflowtaskresults", kind="WorkflowTaskResult")
ARGO: Final = Project(
    name="workflow-controller",
    module="github.com/argoproj/argo-workflows/v3",
    folder="argo",
    crds=tuple(
        f"manifests/base/crds/minimal/argoproj.io_{kind}.yaml"
        for kind in (
            "clusterworkflowtemplates", "cronworkflows", "workflowartifactgctasks", "workfloweventbindings",
            "workflows", "workflowtaskresults", "workflowtasksets", "workflowtemplates",
        )
    ),
    role="manifests/cluster-install-no-crds/workflow-controller-rbac/workflow-controller-clusterrole.yaml",
)  # fmt: skip
CONFIGMAP: Final = "workflow-controller-configmap"
Body = dict[str, Any]


@pytest.fixture(autouse=True)
async def controller(client: Client, namespace: str, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[Path]:
    """The controller at work in the namespace of the test; the file with its log."""
    quiet = dict.fromkeys(("metricsConfig", "telemetryConfig"), '{"enabled": false}')
    body = {"metadata": {"name": CONFIGMAP}, "data": quiet}
    await client.create(CONFIGMAPS, body=body, as_type=Body, namespace=namespace)
    arguments = ("--namespaced", f"--namespace={namespace}", "--executor-image=argoexec")
    environment = {"LEADER_ELECTION_DISABLE": "true"}
    working = partial(at_work, ARGO, client, cluster=sandbox, namespace=namespace, folder=tmp_path)
    async with (
        installed(client, projects=(ARGO,)),
        working(arguments=arguments, environment=environment) as log,
    ):
        yield log


class Workflows:
    """The workflow of the recipe, in the namespace of the test."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def submit(self, *, queued: bool = True) -> str:
        """Its name."""
        body: Body = yaml.safe_load(clients.recipe("argo", language="yaml"))
        if not queued:
            del body["spec"]["templates"][0]["metadata"]["labels"]
        made = await self.client.create(WORKFLOWS, body=body, as_type=Body, namespace=self.namespace)
        return str(made["metadata"]["name"])

    async def says(self, name: str, *, phase: str, text: str = "") -> None:
        """Wait until its step has a phase, and a message with a text."""
        await clients.until(partial(self._says, name, phase, text), what=f"{phase} {text}")

    async def _says(self, name: str, phase: str, text: str) -> bool:
        found = await self.client.get(WORKFLOWS, name=name, as_type=Body, namespace=self.namespace)
        nodes = (found.get("status") or {}).get("nodes") or {}
        return any(each["phase"] == phase and text in each.get("message", "") for each in nodes.values())

    async def pod(self) -> Pod:
        """Its pod, once that runs."""
        (pod,) = await clients.until_pods(self.client, namespace=self.namespace, holds=partial(all_run, count=1))
        return pod

    async def report_outputs(self, pod: Pod, *, workflow: str) -> None:
        """What the executor does at the end of a step."""
        labels = {f"workflows.{GROUP}/workflow": workflow, f"workflows.{GROUP}/report-outputs-completed": "true"}
        body = {"metadata": {"name": pod.metadata.name, "labels": labels}}
        await self.client.create(RESULTS, body=body, as_type=Body, namespace=self.namespace)

    async def has_no_pods(self) -> None:
        await clients.until_pods(self.client, namespace=self.namespace, holds=lambda pods: not pods)
        await clients.until_nothing_is_held(self.client, namespace=self.namespace)


@pytest.fixture
def workflows(client: Client, namespace: str) -> Workflows:
    return Workflows(client, namespace=namespace)


async def test_a_step_waits_runs_ends_and_its_program_has_the_devices(workflows: Workflows, jobs: Jobs) -> None:
    await jobs.submit("first", workers=14)
    await jobs.phase("Running", "first")
    name = await workflows.submit()
    pods = await clients.until_pods(
        jobs.client, namespace=jobs.namespace, holds=lambda pods: any(names.RUN in pod.metadata.labels for pod in pods)
    )
    (waiting,) = [pod for pod in pods if names.RUN in pod.metadata.labels]
    await clients.announced(jobs.client, pod=waiting, text="Need 1 GPU, only 0 available")
    await jobs.delete("first")
    pod = await workflows.pod()
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    assert [pod.spec.containers[each.index].name for each in allocation.containers] == ["main"]
    await workflows.report_outputs(pod, workflow=name)
    await jobs.end_pod(pod)
    await workflows.says(name, phase="Succeeded")
    await clients.until_nothing_is_held(jobs.client, namespace=jobs.namespace)
    await jobs.client.delete(WORKFLOWS, name=name, namespace=jobs.namespace)


async def test_the_message_of_a_step_outside_of_the_queue_has_the_reason(workflows: Workflows, jobs: Jobs) -> None:
    await jobs.submit("first", workers=14)
    await jobs.phase("Running", "first")
    name = await workflows.submit(queued=False)
    await workflows.says(name, phase="Pending", text="Unschedulable: 0/6 nodes are available")
    await workflows.client.patch(
        WORKFLOWS, name=name, patch={"spec": {"shutdown": "Terminate"}}, as_type=Body, namespace=jobs.namespace
    )
    await workflows.says(name, phase="Failed")
    await jobs.delete("first")
    await workflows.has_no_pods()


async def test_a_workflow_that_is_deleted_while_it_runs_gives_its_gpu_back(workflows: Workflows) -> None:
    name = await workflows.submit()
    await workflows.pod()
    await workflows.client.delete(WORKFLOWS, name=name, namespace=workflows.namespace)
    await workflows.has_no_pods()
