"""The descheduler's own program, with the policy of docs/integrations/descheduler.md, among gangs and plain shares."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.jobs.guests.replicas import DEPLOYMENTS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.cluster import clients
from tests.cluster.jobs import FOR_EVER, Jobs
from tests.cluster.projects import Project, at_work

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

DESCHEDULER: Final = Project(
    name="descheduler",
    module="sigs.k8s.io/descheduler",
    folder="descheduler",
    crds=(),
    role="kubernetes/base/rbac.yaml",
)
BUDGETS: Final = Resource(group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget")
POLICY, ANNOTATED, BUDGET = map(yaml.safe_load, clients.recipes("descheduler", language="yaml"))
EVICTOR: Final = POLICY["profiles"][0]["pluginConfig"][0]["args"]
Body = dict[str, Any]
Descheduling = Callable[[Body], AbstractAsyncContextManager[Path]]


@pytest.fixture
def descheduling(client: Client, namespace: str, sandbox: Cluster, tmp_path: Path) -> Descheduling:
    """The descheduler at work with a policy, once a second, with its own ClusterRole. Gives the file with its log."""

    @asynccontextmanager
    async def with_policy(policy: Body) -> AsyncIterator[Path]:
        path, (port,) = tmp_path / "policy.yaml", free_ports(count=1)
        path.write_text(yaml.safe_dump(policy))
        arguments = (
            f"--kubeconfig={tmp_path / DESCHEDULER.name}.kubeconfig", f"--policy-config-file={path}",
            "--descheduling-interval=1s", f"--secure-port={port}", "--v=4",
        )  # fmt: skip
        working = partial(at_work, DESCHEDULER, client, cluster=sandbox, namespace=namespace, folder=tmp_path)
        async with working(arguments=arguments, environment={}) as log:
            try:
                yield log
            except BaseException as error:
                error.add_note(log.read_text()[-4000:])
                raise

    return with_policy


def eager(evictor: Mapping[str, Any]) -> Body:
    """A policy that evicts every pod that is older than two seconds, as far as the evictor lets it."""
    old = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 2}}
    config = [{"name": "DefaultEvictor", "args": evictor}, old]
    profile = {"name": "eager", "pluginConfig": config, "plugins": {"deschedule": {"enabled": ["PodLifeTime"]}}}
    return {key: POLICY[key] for key in ("apiVersion", "kind", "nodeSelector")} | {"profiles": [profile]}


class Scene:
    """Gangs, replicas and what pins them, in the namespace of a test."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs, self.client, self.namespace = jobs, jobs.client, jobs.namespace

    async def gang(self, *, gpu: str = "1", annotated: bool = False) -> set[str]:
        """The UIDs of the pods of the recipe's gang, once all run."""
        body = deepcopy(ANNOTATED)
        metadata = body["spec"]["template"]["metadata"]
        metadata["annotations"] = {**metadata["annotations"]} if annotated else {}
        metadata["annotations"][names.RUN_SECONDS] = str(FOR_EVER)
        body["spec"]["gpu"] = gpu
        await self.client.create(GPUJOBS, body=body, as_type=GPUJob, namespace=self.namespace)
        await self.jobs.phase("Running", "train")
        return await self.of_gang()

    async def of_gang(self) -> set[str]:
        """The UIDs of the gang's pods."""
        return {pod.metadata.uid for pod in await self.jobs.pods("train")}

    async def replica(self, name: str, *, gpu: str, queued: bool = False) -> Pod:
        """The one pod of a new Deployment, once it runs."""
        labels = {"app": name}
        annotations = {names.REQUEST: gpu, names.POLICY: "Pack", names.RUN_SECONDS: str(FOR_EVER)}
        pods = {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pods}
        metadata = {"name": name, "labels": {names.LABEL_QUEUE: "default"} if queued else {}}
        body = {"metadata": metadata, "spec": spec}
        await self.client.create(DEPLOYMENTS.resource, body=body, as_type=Body, namespace=self.namespace)
        return await self.successor(name)

    async def successor(self, name: str, *, of: Pod | None = None) -> Pod:
        """The running pod of a Deployment, once it is not this one."""
        before = of and of.metadata.uid

        def holds(pods: list[Pod]) -> bool:
            return any(_runs(pod, app=name) and pod.metadata.uid != before for pod in pods)

        pods = await clients.until_pods(self.client, namespace=self.namespace, holds=holds)
        return next(pod for pod in pods if _runs(pod, app=name) and pod.metadata.uid != before)

    async def clear(self) -> None:
        deployments, _ = await self.client.list(DEPLOYMENTS.resource, as_type=Body, namespace=self.namespace)
        for each in deployments:
            await self.client.delete(DEPLOYMENTS.resource, name=each["metadata"]["name"], namespace=self.namespace)
        await self.jobs.clear()
        await clients.until_pods(self.client, namespace=self.namespace, holds=lambda pods: not pods)
        await clients.until_nothing_is_held(self.client, namespace=self.namespace)


def _runs(pod: Pod, *, app: str) -> bool:
    ours = pod.metadata.labels.get("app") == app and not pod.metadata.deletion_timestamp
    return ours and pod.status.phase == "Running"


@pytest.fixture
async def scene(jobs: Jobs) -> AsyncIterator[Scene]:
    made = Scene(jobs)
    yield made
    await made.clear()


@pytest.mark.parametrize("gpu", ["1(V100)", "0.5(V100)"])
async def test_the_recipe_s_policy_moves_a_share_to_a_fuller_node_and_leaves_the_queue_alone(
    scene: Scene, descheduling: Descheduling, gpu: str
) -> None:
    on_one = {"nodeSelector": {"kubernetes.io/hostname": "v100-0"}}
    template = {"metadata": {"annotations": {names.RUN_SECONDS: str(FOR_EVER)}}, "spec": on_one}
    template["spec"] |= {"containers": [{"name": "main", "image": "busybox"}]}
    await scene.jobs.submit("all-of-it", gpu=4, template=template)
    await scene.jobs.phase("Running", "all-of-it")
    share = await scene.replica("share", gpu=gpu)
    assert share.spec.node_name == "v100-1"
    await scene.jobs.delete("all-of-it")
    await scene.jobs.without_pods("all-of-it")
    await scene.jobs.submit("half-of-it", gpu=2, template=template)
    await scene.jobs.phase("Running", "half-of-it")
    gang = await scene.gang(gpu="0.125(T4)")
    queued = await scene.replica("queued", gpu="0.5(A100)", queued=True)
    async with descheduling(POLICY) as log:
        moved = await scene.successor("share", of=share)
        assert moved.spec.node_name == "v100-0"
        text = "Number of underutilized nodes"
        seen = _count(log, text)
        await clients.until(lambda: _counts(log, text, times=seen + 3), what="three more looks")
    assert await scene.of_gang() == gang
    assert (await scene.successor("queued")).metadata.uid == queued.metadata.uid
    assert (await scene.successor("share")).metadata.uid == moved.metadata.uid


def _count(log: Path, text: str) -> int:
    return log.read_text().count(text)


async def _counts(log: Path, text: str, *, times: int) -> bool:
    return _count(log, text) >= times


@pytest.mark.parametrize("protection", ["policy", "annotation", "budget"])
async def test_each_protection_keeps_a_gang_while_replicas_around_it_are_evicted(
    scene: Scene, descheduling: Descheduling, protection: str
) -> None:
    gang = await scene.gang(annotated=protection == "annotation")
    if protection == "budget":
        await scene.client.create(BUDGETS, body=BUDGET, as_type=Body, namespace=scene.namespace)
    evictor = {"policy": EVICTOR, "annotation": {"noEvictionPolicy": "Mandatory"}, "budget": {}}[protection]
    pod = await scene.replica("share", gpu="0.5")
    async with descheduling(eager(evictor)) as log:
        for _ in range(3):
            pod = await scene.successor("share", of=pod)
    assert await scene.of_gang() == gang
    assert ("violate the pod's disruption budget" in log.read_text()) == (protection == "budget")


async def test_without_protection_a_gang_restarts_as_a_whole_and_costs_no_retry(
    scene: Scene, descheduling: Descheduling
) -> None:
    gang = await scene.gang()
    async with descheduling({**eager({}), "maxNoOfPodsToEvictTotal": 1}):
        await scene.jobs.until("train", lambda status: bool(status.attempts))
    status = await scene.jobs.phase("Running", "train")
    assert status.retries == 0
    assert {(each.reason, each.counted) for each in status.attempts} == {("DisruptionTarget", False)}
    assert len(await scene.of_gang()) == 4
    assert gang.isdisjoint(await scene.of_gang())
