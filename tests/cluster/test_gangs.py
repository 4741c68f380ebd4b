"""Kubernetes' own PodGroups on a real control plane with their feature gate: their pods start together, or none does.

Its own sandbox, of Kubernetes 1.37, whose programs are built once; so that this belongs to `make e2e`. PodGroups of
Jobs are made by the real Job controller.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import GPUJOBS, JOBS, PODS
from dovetail.jobs.guests.gangs import POD_GROUP_OBJECTS
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES, OVERRIDES, PREEMPTING
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_guests import Guests, batch_job, template
from tests.cluster.test_pod_groups import all_run, is_gated, members
from tests.core.jobs.guests.examples import FOLDER

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

GATES: Final = {
    "kubernetes": "1.37",
    "feature_gates": "GenericWorkload=true,WorkloadWithJob=true,TopologyAwareWorkloadScheduling=true",
    "runtime_config": "scheduling.k8s.io/v1beta1=true",
}
POD_GROUPS: Final = POD_GROUP_OBJECTS.resource


class Gangs(Guests):
    """The PodGroups of one namespace and their pods."""

    async def gang(self, name: str, *, least: int, pods: int, said: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a PodGroup, and pods that name it; `said` are more annotations of these."""
        policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
        await self.make({"metadata": {"name": name}, "spec": {**policy, **spec}}, resource=POD_GROUPS)
        for index in range(pods):
            await self.member(name, index=index, said=said)

    async def member(self, gang: str, *, index: int, said: dict[str, str] | None = None) -> None:
        """Create one pod of a PodGroup."""
        body = template(gpu="1(A100)")
        annotations = {**body["metadata"]["annotations"], **(said or {})}
        metadata = {"name": f"{gang}-{index}", "labels": {names.LABEL_QUEUE: "default"}, "annotations": annotations}
        spec = {**body["spec"], "schedulingGroup": {"podGroupName": gang}}
        await self.make({"metadata": metadata, "spec": spec}, resource=PODS)

    async def until_told(self, name: str, *, status: str) -> dict[str, Any]:
        """The condition of a PodGroup that says whether its pods are scheduled, once it says so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = await self.client.get(POD_GROUPS, name=name, as_type=dict[str, Any], namespace=self.namespace)
                for each in found.get("status", {}).get("conditions", []):
                    if (each["type"], each["status"]) == ("PodGroupInitiallyScheduled", status):
                        condition: dict[str, Any] = each
                        return condition
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox of the version that has PodGroups."""
    with sandbox_with(nodes_file=NODES, overrides=OVERRIDES, **GATES) as found:
        yield found


@pytest.fixture
async def gangs(client: Client, jobs: Jobs) -> AsyncIterator[Gangs]:
    made = Gangs(client, namespace=jobs.namespace)
    yield made
    await made.clear()


def seated(pods: list[Pod], *, record: str) -> list[Pod]:
    """The pods with devices of a record."""
    found = [(pod, allocation_in(pod.metadata.annotations)) for pod in pods]
    return [pod for pod, allocation in found if allocation is not None and allocation.job == record]


async def test_the_example_runs_two_together_and_the_third_by_itself(gangs: Gangs, jobs: Jobs) -> None:
    group, *pods = yaml.safe_load_all(FOLDER.joinpath("scheduling-group.yaml").read_text(encoding="utf-8"))
    await gangs.make(group, resource=POD_GROUPS)
    for body in pods:
        body["metadata"]["annotations"][names.RUN_SECONDS] = str(FOR_EVER)
        await gangs.make(body, resource=PODS)
    await jobs.there(GPUJOBS, "schedulinggroup-train")
    running = await gangs.until_pods(lambda pods: all_run(pods, count=3))
    assert [pod.metadata.name for pod in seated(running, record="schedulinggroup-train")] == ["train-0", "train-1"]
    assert [pod.metadata.name for pod in seated(running, record="pod-train-2")] == ["train-2"]
    assert (await gangs.until_told("train", status="True"))["reason"] == "Scheduled"


async def test_none_starts_before_all_have_a_place_and_the_podgroup_says_why(gangs: Gangs, jobs: Jobs) -> None:
    low, high = PREEMPTING
    await jobs.submit("first", gpu="1(A100)", priority=high)
    await jobs.phase("Running", "first")
    await gangs.gang("pair", least=2, pods=2, said={names.PRIORITY: str(low)})
    await jobs.there(GPUJOBS, "schedulinggroup-pair")
    await jobs.phase("Queued", "schedulinggroup-pair", reason="Resources")
    told = await gangs.until_told("pair", status="False")
    assert (told["reason"], told["message"][:28]) == ("Unschedulable", "Need 2 GPUs, only 1 availabl")
    event = await gangs.announced("Resources", kind="PodGroup", name="pair")
    assert event.message.startswith("Need 2 GPUs")
    assert all(map(is_gated, members(await gangs.pods())))
    await jobs.delete("first")
    await gangs.until_pods(lambda pods: all_run(members(pods), count=2))
    await gangs.until_told("pair", status="True")
    await jobs.submit("high", gpu="1(A100)", priority=high)
    await jobs.phase("Running", "high")
    await gangs.until_pods(lambda pods: not members(pods))


async def test_an_incomplete_podgroup_waits_and_follows_its_minimum(gangs: Gangs, jobs: Jobs) -> None:
    await gangs.gang("pair", least=3, pods=2)
    event = await gangs.announced("NotQueued", kind="PodGroup", name="pair")
    assert event.message == "Is not queued: PodGroup pair waits for its pods: 2 of 3"
    policy = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    await gangs.client.patch(POD_GROUPS, name="pair", patch=policy, as_type=dict[str, Any], namespace=gangs.namespace)
    await jobs.there(GPUJOBS, "schedulinggroup-pair")
    await gangs.until_pods(lambda pods: all_run(pods, count=2))


async def test_a_level_of_the_podgroup_holds_its_pods_together(gangs: Gangs, jobs: Jobs) -> None:
    level = {"schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]}}
    await gangs.gang("pair", least=2, pods=2, **level)
    await jobs.there(GPUJOBS, "schedulinggroup-pair")
    pods = await gangs.until_pods(lambda pods: all_run(pods, count=2))
    assert len({pod.spec.node_name for pod in pods}) == 1
    unknown = {"schedulingConstraints": {"topology": [{"key": "example.com/row"}]}}
    await gangs.gang("other", least=1, pods=1, **unknown)
    event = await gangs.announced("NotQueued", kind="PodGroup", name="other")
    assert "node label 'example.com/row', which is no level of the network here" in event.message


async def test_a_job_whose_pods_kubernetes_groups_starts_as_a_gang(gangs: Gangs, jobs: Jobs) -> None:
    """The Job controller makes the PodGroup, and its pods wait in the queue by the label of their template."""
    await jobs.submit("first", gpu="1(A100)")
    await jobs.phase("Running", "first")
    body = batch_job("train", workers=2, gpu="1(A100)")
    # A Job without labels gets those of its template.
    body["metadata"] = {"name": "train", "labels": {"app": "train"}}
    body["spec"] |= {"completionMode": "Indexed", "scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    body["spec"]["template"]["metadata"]["labels"] = {names.LABEL_QUEUE: "default"}
    await gangs.make(body, resource=JOBS)
    (group,) = await until_made(gangs)
    told = await gangs.until_told(group, status="False")
    assert told["message"].startswith("Need 2 GPUs, only 1 available")
    assert all(map(is_gated, members(await gangs.pods())))
    await jobs.delete("first")
    await gangs.until_pods(lambda pods: all_run(members(pods), count=2))
    await gangs.until_told(group, status="True")


async def until_made(gangs: Gangs) -> list[str]:
    """The names of the PodGroups, once there is one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found, _ = await gangs.client.list(POD_GROUPS, as_type=dict[str, Any], namespace=gangs.namespace)
            if found:
                return [each["metadata"]["name"] for each in found]
            await asyncio.sleep(0.05)


async def test_a_pod_cannot_change_its_group_and_cannot_say_it_itself(gangs: Gangs, mallory: Client) -> None:
    await gangs.gang("pair", least=2, pods=1)
    where: dict[str, Any] = {"as_type": Pod, "namespace": gangs.namespace}
    other = {"metadata": {"annotations": {names.GANG: "PodGroup.scheduling.k8s.io/other"}}}
    with pytest.raises(StatusError, match=r"dovetail\.dev/gang of a pod in the queue never changes"):
        await mallory.patch(PODS, name="pair-0", patch=other, **where)
    body = {**template(gpu="1(A100)"), "metadata": {"name": "forged", "labels": {names.LABEL_QUEUE: "default"}}}
    body["metadata"]["annotations"] = {names.REQUEST: "1(A100)", **other["metadata"]["annotations"]}
    gangs.made.append((PODS, "forged"))
    made = await mallory.create(PODS, body=body, **where)
    assert names.GANG not in made.metadata.annotations
    assert made.metadata.labels[names.RUN].startswith("pod-")
