"""Plain pods in the queue, on a real control plane: a group starts together, is preempted whole, and ends."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import StatusError
from dovetail.pods.allocation import allocation_in
from tests.cluster.conftest import PREEMPTING
from tests.cluster.jobs import FOR_EVER, Jobs
from tests.cluster.test_guests import Guests, template
from tests.core.jobs.guests.examples import FOLDER

pytestmark = pytest.mark.cluster


class Pods(Guests):
    """The plain pods of one namespace, without controllers."""

    async def group(self, name: str, *, size: int, pods: int | None = None, said: dict[str, str] | None = None) -> None:
        """Create `pods` pods, or all, of a group of that size; `said` are more annotations."""
        for index in range(size if pods is None else pods):
            await self.member(name, index=index, size=size, said=said)

    async def member(self, group: str, *, index: int, size: int, said: dict[str, str] | None = None) -> dict[str, Any]:
        """Create one pod of a group."""
        body = template(gpu="1(A100)")
        labels = {names.LABEL_QUEUE: "default", names.POD_GROUP: group}
        annotations = {**body["metadata"]["annotations"], names.POD_GROUP_SIZE: str(size), **(said or {})}
        metadata = {"name": f"{group}-{index}", "labels": labels, "annotations": annotations}
        return await self.make({**body, "metadata": metadata}, resource=PODS)


@pytest.fixture
async def guests(client: Client, jobs: Jobs) -> AsyncIterator[Pods]:
    made = Pods(client, namespace=jobs.namespace)
    yield made
    await made.clear()


def all_run(pods: list[Pod], *, count: int) -> bool:
    return len(pods) == count and all(pod.status.phase == "Running" for pod in pods)


def members(pods: list[Pod]) -> list[Pod]:
    """Those of the pods that are in the queue by themselves."""
    return [pod for pod in pods if names.RUN in pod.metadata.labels]


def is_gated(pod: Pod) -> bool:
    return any(gate.name == names.QUEUE_GATE for gate in pod.spec.scheduling_gates)


async def test_a_group_is_planned_whole_starts_together_and_ends(guests: Pods, jobs: Jobs, client: Client) -> None:
    await guests.group("pair", size=2, pods=1)
    assert all(map(is_gated, await guests.pods()))
    await guests.member("pair", index=1, size=2)
    await jobs.there(GPUJOBS, "podgroup-pair")
    running = await jobs.until("podgroup-pair", lambda status: status.workers_ready == 2)
    assert {device.worker for device in running.devices} == {0, 1}
    pods = await guests.until_pods(lambda pods: all_run(pods, count=2))
    assert {allocation_in(pod.metadata.annotations).job for pod in pods} == {"podgroup-pair"}  # type: ignore[union-attr]
    assert all(names.PLAN in pod.metadata.annotations for pod in pods)
    record = await client.get(GPUJOBS, name="podgroup-pair", as_type=GPUJob, namespace=guests.namespace)
    assert {owner.uid for owner in record.metadata.owner_references} == {pod.metadata.uid for pod in pods}
    await jobs.end("podgroup-pair")
    done = await jobs.phase("Succeeded", "podgroup-pair")
    assert done.workers_succeeded == 2


async def test_a_group_waits_says_why_and_is_preempted_whole(guests: Pods, jobs: Jobs) -> None:
    low, high = PREEMPTING
    await jobs.submit("first", gpu="2(A100)", priority=high)
    await jobs.phase("Running", "first")
    await guests.group("pair", size=2, said={names.PRIORITY: str(low)})
    await jobs.there(GPUJOBS, "podgroup-pair")
    waits = await jobs.phase("Queued", "podgroup-pair", reason="Resources")
    assert waits.message.startswith("Need 2 GPUs, only 0 available")
    event = await guests.announced("Resources", kind="Pod", name="pair-0")
    assert event.message.startswith("Need 2 GPUs")
    assert all(map(is_gated, members(await guests.pods())))
    await jobs.delete("first")
    await guests.until_pods(lambda pods: all_run(members(pods), count=2))
    await jobs.submit("high", gpu="1(A100)", priority=high)
    await jobs.phase("Running", "high")
    await guests.until_pods(lambda pods: not members(pods))
    await jobs.gone(GPUJOBS, "podgroup-pair")


async def test_a_group_of_which_a_pod_fails_goes_on_and_its_replacement_takes_the_seat(
    guests: Pods, jobs: Jobs
) -> None:
    await guests.group("pair", size=2)
    await jobs.there(GPUJOBS, "podgroup-pair")
    await jobs.until("podgroup-pair", lambda status: status.workers_ready == 2)
    (failing, _) = await guests.until_pods(lambda pods: all_run(pods, count=2))
    await jobs.end_pod(failing, exit_code=3)
    await jobs.until("podgroup-pair", lambda status: status.workers_ready == 1)
    await guests.member("pair", index=2, size=2)
    await jobs.until("podgroup-pair", lambda status: status.workers_ready == 2)
    await guests.client.delete(PODS, name=failing.metadata.name, namespace=guests.namespace)
    pods = await guests.until_pods(lambda pods: all_run(pods, count=2))
    await jobs.end_pod(pods[0], exit_code=0)
    await jobs.end_pod(pods[1], exit_code=7)
    failed = await jobs.phase("Failed", "podgroup-pair")
    assert "exit code 7" in failed.message


async def test_a_surplus_pod_stays_gated_and_an_event_says_so(guests: Pods, jobs: Jobs) -> None:
    await guests.group("pair", size=1, pods=2)
    await jobs.there(GPUJOBS, "podgroup-pair")
    await jobs.until("podgroup-pair", lambda status: status.workers_ready == 1)
    event = await guests.announced("NotQueued", kind="Pod", name="pair-0")
    assert event.message.endswith(
        "it has 2 pods, and annotation dovetail.dev/pod-group-size says 1: pod pair-1 stays gated, so delete it or "
        "give it another group"
    )
    assert [is_gated(pod) for pod in await guests.pods()] == [False, True]


async def test_a_pod_of_its_own_is_queued_and_its_group_cannot_change(
    guests: Pods, jobs: Jobs, mallory: Client
) -> None:
    body = {**template(gpu="1(A100)"), "metadata": {"name": "alone", "labels": {names.LABEL_QUEUE: "default"}}}
    body["metadata"]["annotations"] = {names.REQUEST: "1(A100)", names.RUN_SECONDS: str(FOR_EVER)}
    await guests.make(body, resource=PODS)
    await jobs.there(GPUJOBS, "pod-alone")
    await jobs.phase("Running", "pod-alone")
    with pytest.raises(StatusError, match=r"dovetail\.dev/user of a pod in the queue never changes"):
        await mallory.patch(
            PODS,
            name="alone",
            patch={"metadata": {"annotations": {names.USER: "root"}}},
            as_type=Pod,
            namespace=guests.namespace,
        )


async def test_a_pod_cannot_say_whose_it_is(guests: Pods, mallory: Client, client: Client) -> None:
    """Neither at its creation, nor by becoming a pod of the queue later."""
    forged = {names.LABEL_QUEUE: "default", names.RUN: "pod-anything"}
    roots = {names.REQUEST: "1(A100)", names.USER: "root"}
    where: dict[str, Any] = {"as_type": Pod, "namespace": guests.namespace}
    guests.made += [(PODS, "forged"), (PODS, "late")]
    body = {**template(gpu="1(A100)"), "metadata": {"name": "forged", "labels": forged, "annotations": roots}}
    made = await mallory.create(PODS, body=body, **where)
    assert made.metadata.annotations[names.USER].startswith("system:serviceaccount:")
    assert made.metadata.labels[names.RUN] != forged[names.RUN]
    assert is_gated(made)
    late = {**template(gpu="1(A100)"), "metadata": {"name": "late", "labels": {names.RUN: "pod-anything"}}}
    late["metadata"]["annotations"] = roots
    await mallory.create(PODS, body=late, **where)
    for labels in ({names.LABEL_QUEUE: "default"}, forged):
        with pytest.raises(StatusError, match=r"dovetail\.dev/queue of a pod in the queue never changes"):
            await mallory.patch(PODS, name="late", patch={"metadata": {"labels": labels}}, **where)
    with pytest.raises(StatusError, match=r"dovetail\.dev/queue of a pod is no part of its status"):
        await client.patch(PODS, name="late", patch={"metadata": {"labels": forged}}, subresource="status", **where)


async def test_a_wrong_size_is_refused_in_one_sentence(guests: Pods) -> None:
    with pytest.raises(StatusError, match=r"annotation dovetail\.dev/pod-group-size is 'two': it must be a whole"):
        await guests.group("pair", size=2, pods=1, said={names.POD_GROUP_SIZE: "two"})


async def test_the_example_of_a_group_runs(guests: Pods, jobs: Jobs) -> None:
    for body in yaml.safe_load_all(FOLDER.joinpath("pod-group.yaml").read_text(encoding="utf-8")):
        body["metadata"]["annotations"][names.RUN_SECONDS] = str(FOR_EVER)
        await guests.make(body, resource=PODS)
    await jobs.there(GPUJOBS, "podgroup-pair")
    await jobs.until("podgroup-pair", lambda status: status.workers_ready == 2)
