"""JobSets, Ray and MPI jobs in the queue, on a real control plane: the examples, with controllers of the test's own."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.resources import GPUJOBS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import FOR_EVER, Jobs
from tests.cluster.kinds import (
    JOBSETS,
    KINDS,
    MPIJOBS,
    RAYCLUSTERS,
    RAYJOBS,
    RULES,
    Controller,
    is_suspended,
)
from tests.cluster.mallory import an_account
from tests.cluster.projects import JOBSET, KUBERAY, MPI_OPERATOR, installed
from tests.cluster.test_guests import Guests, guests
from tests.core.jobs.guests.examples import EXPECTED, Expected, example, kind_named

pytestmark = pytest.mark.cluster

__all__ = ["guests"]


@pytest.fixture
async def controller(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Controller]:
    # It has an account of its own, as in a cluster.
    async with (
        installed(client, projects=(JOBSET, KUBERAY, MPI_OPERATOR)),
        an_account("kinds", client, rules=RULES, namespace=namespace, sandbox=sandbox) as its,
    ):
        made = Controller(its, namespace=namespace)
        async with made.at_work():
            yield made


def written(kind: Resource) -> dict[str, Any]:
    """The example of a kind, whose pods run until they are ended."""
    body = example(kind_named(kind.kind))

    def templates(found: Any) -> list[dict[str, Any]]:
        if isinstance(found, list):
            return [each for part in found for each in templates(part)]
        if not isinstance(found, dict):
            return []
        inner = [each for part in found.values() for each in templates(part)]
        return [found, *inner] if "containers" in found.get("spec", {}) else inner

    for template in templates(body["spec"]):
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[names.RUN_SECONDS] = str(FOR_EVER)
    return body


def has_workers(status: GPUJobStatus, *, count: int) -> bool:
    """Whether as many workers of a record run."""
    return status.workers_ready == count


def is_at_work(pods: list[Pod], *, count: int) -> bool:
    """Whether all pods of a guest run."""
    return len(pods) == count and all(pod.status.phase == "Running" for pod in pods)


async def test_each_example_runs_on_its_plan_is_held_runs_again_and_ends(
    guests: Guests, jobs: Jobs, controller: Controller, client: Client
) -> None:
    """One after the other: what one holds is free for the next once it has ended."""
    # Those two have their own controllers in other tests.
    assert EXPECTED.keys() - {"Job", "TrainJob"} == KINDS.keys()
    for kind in (JOBSETS, MPIJOBS, RAYJOBS, RAYCLUSTERS):
        expected = EXPECTED[kind.kind]
        made = await guests.make(written(kind), resource=kind)
        assert is_suspended({**made, "kind": kind.kind})
        await jobs.there(GPUJOBS, expected.name)
        running = await jobs.until(expected.name, partial(has_workers, count=expected.workers))
        assert len({(device.node, device.uuid) for device in running.devices}) == expected.workers
        pods = await guests.until_pods(partial(is_at_work, count=expected.pods))
        allocated = [found for pod in pods if (found := allocation_in(pod.metadata.annotations)) is not None]
        assert [found.job for found in allocated] == [expected.name] * expected.workers
        records, _ = await client.list(GPUJOBS, as_type=GPUJob, namespace=guests.namespace)
        assert [each.metadata.name for each in records] == [expected.name], "its parts have no record of their own"
        await hold_and_release(guests, jobs, expected=expected)
        name = made["metadata"]["name"]
        if kind != RAYCLUSTERS:
            await controller.end(kind, name=name)
            await jobs.phase("Succeeded", expected.name)
        await client.delete(kind, name=name, namespace=guests.namespace)
        await guests.until_pods(lambda pods: not pods)
        with suppress(NotFound):
            # The garbage collector may have been quicker.
            await jobs.delete(expected.name)
        await jobs.gone(GPUJOBS, expected.name)


async def hold_and_release(guests: Guests, jobs: Jobs, *, expected: Expected) -> None:
    """Its controller ends all pods, and creates them again for another plan."""
    await jobs.change(expected.name, suspend=True)
    await jobs.phase("Suspended", expected.name, reason="Held")
    await guests.until_pods(lambda pods: not pods)
    await jobs.change(expected.name, suspend=False)
    await jobs.until(expected.name, lambda status: status.plans == 2 and status.workers_ready == expected.workers)
