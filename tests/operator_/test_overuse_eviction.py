"""Pods of no GPUJob that are to end for their memory."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.kube.client import Client
from dovetail_operator.overuse_eviction import PodEvictions
from tests.core.builders import make_gpunode
from tests.core.kube.api import Answer, Api, refusal

EVICTION = "POST /api/v1/namespaces/team/pods/web-0/eviction"
EVICTED = Answer(body={"kind": "Status", "status": "Success"})
OVERUSE = Overuse(
    uid="uid-web", namespace="team", name="web-0", device="GPU-1", index=1, promised_mib=1, used_mib=2, since="then",
    ends=True, evict=True,
)  # fmt: skip


def report(*overuses: Overuse) -> GPUNode:
    gpunode = make_gpunode("n1")
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, overuses=list(overuses)))


def named(name: str, **changes: bool) -> Overuse:
    return msgspec.structs.replace(OVERUSE, name=name, uid=f"uid-{name}", **changes)


@pytest.fixture
async def evictions(client: Client) -> AsyncIterator[PodEvictions]:
    evictions = PodEvictions(client, is_of_a_job=lambda uid: uid == "uid-of-a-job")
    task = asyncio.create_task(evictions.run())
    yield evictions
    task.cancel()


async def test_such_a_pod_is_evicted_and_no_other_of_its_name(api: Api, evictions: PodEvictions) -> None:
    api.answer(EVICTION, EVICTED)
    evictions.changed(report(OVERUSE))
    await api.until(EVICTION, count=1)
    body = api.of(EVICTION)[0].body
    assert (body["kind"], body["deleteOptions"]) == ("Eviction", {"preconditions": {"uid": "uid-web"}})


async def test_a_disruption_budget_that_forbids_it_is_asked_again(api: Api, evictions: PodEvictions) -> None:
    api.answer(EVICTION, refusal(429, reason="TooManyRequests"), EVICTED)
    evictions.changed(report(OVERUSE))
    await api.until(EVICTION, count=2)


async def test_who_is_warned_and_the_pods_of_jobs_are_left_alone(api: Api, evictions: PodEvictions) -> None:
    api.answer(EVICTION, EVICTED)
    evictions.changed(report(named("warned", evict=False), named("of-a-job"), OVERUSE))
    await api.until(EVICTION, count=1)
    assert [seen.path for seen in api.seen] == [EVICTION.removeprefix("POST ")]


async def test_a_pod_that_is_gone_already_is_as_good(api: Api, evictions: PodEvictions) -> None:
    other = "POST /api/v1/namespaces/team/pods/other/eviction"
    api.answer(EVICTION, refusal(404, reason="NotFound"))
    api.answer(other, EVICTED)
    evictions.changed(report(OVERUSE))
    await api.until(EVICTION, count=1)
    evictions.changed(report(named("other")))
    await api.until(other, count=1)
    assert len(api.of(EVICTION)) == 1


async def test_what_a_node_that_is_gone_wanted_is_wanted_no_more(api: Api, evictions: PodEvictions) -> None:
    other = "POST /api/v1/namespaces/team/pods/other/eviction"
    api.answer(other, EVICTED)
    evictions.changed(report(OVERUSE))
    evictions.gone("n1")
    evictions.changed(report(named("other")))
    await api.until(other, count=1)
    assert api.of(EVICTION) == []
