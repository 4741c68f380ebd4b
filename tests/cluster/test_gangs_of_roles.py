"""Prefill and decode as one gang: Grove's PodGangs and DisaggregatedSets, by the examples that these projects publish.

DisaggregatedSets have the real controller of LeaderWorkerSet 0.9. Grove's operator cannot be had here: a stand-in plays
it (`tests/cluster/grove.py`). Manifests, and Grove's CRD, are read from `../shared/foreign`, and the tests are skipped
where that is absent.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import CRDS, GPUJOBS
from dovetail.jobs.guests.record import name_with
from dovetail.jobs.guests.replicas import DISAGGREGATEDSETS
from dovetail.kube.client import Client
from dovetail.pods.allocation import allocation_in
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES, OVERRIDES
from tests.cluster.grove import GPU, GroveStandIn
from tests.cluster.jobs import Jobs
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_guests import Guests
from tests.cluster.test_pod_groups import all_run, is_gated, members
from tests.core.jobs.guests.examples import FOLDER as EXAMPLES

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(os.environ.get("DOVETAIL_FOREIGN") or ROOT.parent / "shared" / "foreign")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the manifests that others published are not here"),
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    """A sandbox with LeaderWorkerSet."""
    with sandbox_with(nodes_file=NODES, overrides=OVERRIDES, with_=["lws"]) as found:
        yield found


@pytest.fixture
async def gangs(client: Client, jobs: Jobs) -> AsyncIterator[Guests]:
    (body,) = published("grove/crd-podgangs.yaml")
    await client.apply(
        CRDS, name=body["metadata"]["name"], body=body, as_type=dict[str, Any], field_manager="test", force=True
    )
    made = Guests(client, namespace=jobs.namespace)
    yield made
    await made.clear()


def published(name: str) -> list[dict[str, Any]]:
    """The documents of a file that others published."""
    return [each for each in yaml.safe_load_all(FOLDER.joinpath(name).read_text(encoding="utf-8")) if each]


def started(pods: list[Pod]) -> list[str]:
    """The names of the pods in the queue whose gates are open."""
    return [pod.metadata.name for pod in members(pods) if not is_gated(pod)]


def records(pods: list[Pod]) -> set[str]:
    """The records by which pods in the queue have devices."""
    found = [allocation_in(pod.metadata.annotations) for pod in members(pods)]
    return {each.job or "" for each in found if each is not None}


@pytest.mark.parametrize(
    ("file", "first", "scaled"),
    [
        ("single-node-disaggregated", 5, {}),
        ("multi-node-disaggregated", 8, {"multinode-disaggregated-0-prefill-1": 5}),
        ("simple1", 9, {}),
    ],
)
async def test_a_podcliqueset_that_grove_publishes_starts_whole_or_not_at_all(
    gangs: Guests, jobs: Jobs, file: str, first: int, scaled: dict[str, int]
) -> None:
    """All but one of the pods of the gang would have a place: none of them starts."""
    await jobs.submit("first", gpu="1", workers=14 - first + 1)
    await jobs.phase("Running", "first")
    grove = GroveStandIn(gangs, *published(f"grove/{file}.yaml"))
    name = await grove.begin()
    await jobs.there(GPUJOBS, f"podgang-{name}")
    waits = await jobs.phase("Queued", f"podgang-{name}", reason="Resources")
    assert waits.message.startswith(f"Need {first} GPUs, only {first - 1} available")
    assert started(await gangs.pods()) == []
    event = await gangs.announced("Resources", kind="PodGang", name=name)
    assert event.message.startswith(f"Need {first} GPUs")
    assert (await grove.until_told(name, status="False"))["reason"] == "Unschedulable"
    await jobs.delete("first")
    await gangs.until_pods(
        lambda pods: all_run([pod for pod in members(pods) if grove.gang_of(pod) == name], count=first)
    )
    await grove.until_told(name, status="True")
    for gang, size in scaled.items():
        await grove.let_scaled(gang)
        await jobs.there(GPUJOBS, f"podgang-{gang}")
        await gangs.until_pods(lambda pods, gang=gang, size=size: all_run(  # type: ignore[misc]
            [pod for pod in members(pods) if grove.gang_of(pod) == gang], count=size
        ))  # fmt: skip
    assert records(await gangs.pods()) == {f"podgang-{each}" for each in (name, *scaled)}


async def test_pods_of_a_podclique_beyond_its_minimum_start_by_themselves(gangs: Guests, jobs: Jobs) -> None:
    (body,) = published("grove/single-node-disaggregated.yaml")
    prefill, decode = body["spec"]["template"]["cliques"]
    prefill["spec"]["minAvailable"] = decode["spec"]["minAvailable"] = 1
    grove = GroveStandIn(gangs, body)
    name = await grove.begin()
    pods = await gangs.until_pods(lambda pods: all_run(pods, count=5))
    together = [pod for pod in pods if pod.metadata.labels[names.LABEL_JOB] == f"podgang-{name}"]
    assert {pod.metadata.labels["grove.io/podclique"].rpartition("-")[2] for pod in together} == {"prefill", "decode"}
    assert len(together) == 2


@pytest.mark.parametrize(
    ("file", "size"), [("disaggregatedset_v1_3role", 12), ("disaggregatedset_v1_disaggregatedset", 4)]
)
async def test_a_disaggregatedset_that_lws_publishes_starts_whole_or_not_at_all(
    gangs: Guests, jobs: Jobs, file: str, size: int
) -> None:
    """LeaderWorkerSet 0.9 knows no slices yet: it makes one."""
    (body,) = published(f"lws/{file}.yaml")
    name = body["metadata"]["name"]
    await jobs.submit("first", gpu="1", workers=14 - size + 1)
    await jobs.phase("Running", "first")
    await gangs.make(in_the_queue(body), resource=DISAGGREGATEDSETS.resource)
    waiting = await gangs.until_pods(lambda pods: len(members(pods)) == size)
    (record,) = {f"disaggregatedset-{name}-0-{revision}" for revision in map(revision_of, members(waiting))}
    record = name_with("disaggregatedset", name=record.removeprefix("disaggregatedset-"))
    await jobs.there(GPUJOBS, record)
    waits = await jobs.phase("Queued", record, reason="Resources")
    assert waits.message.startswith(f"Need {size} GPUs, only {size - 1} available")
    assert started(await gangs.pods()) == []
    event = await gangs.announced("Resources", kind="DisaggregatedSet", name=name)
    assert event.message.startswith(f"Need {size} GPUs")
    await jobs.delete("first")
    pods = await gangs.until_pods(lambda pods: all_run(members(pods), count=size))
    assert records(pods) == {record}


async def test_a_replica_that_is_added_to_a_role_starts_by_itself(gangs: Guests, jobs: Jobs) -> None:
    (body,) = yaml.safe_load_all(EXAMPLES.joinpath("disaggregatedset.yaml").read_text(encoding="utf-8"))
    for role in body["spec"]["roles"]:
        role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"] |= GPU
    await gangs.make(body, resource=DISAGGREGATEDSETS.resource)
    pods = await gangs.until_pods(lambda pods: all_run(pods, count=3))
    (record,) = records(pods)
    body["spec"]["roles"][0]["spec"]["replicas"] = 3
    patch = {"spec": {"roles": body["spec"]["roles"]}}
    await gangs.client.patch(
        DISAGGREGATEDSETS.resource, name="serve", patch=patch, as_type=dict[str, Any], namespace=gangs.namespace
    )
    pods = await gangs.until_pods(lambda pods: all_run(pods, count=4))
    assert records(pods) - {record} == {f"pod-{pods[-1].metadata.name}"}


def in_the_queue(body: dict[str, Any]) -> dict[str, Any]:
    """A published DisaggregatedSet with the label of the queue, each of whose pods requests a GPU."""
    body["metadata"] = {"name": body["metadata"]["name"], "labels": {names.LABEL_QUEUE: "default"}}
    for role in body["spec"]["roles"]:
        templates = role["spec"]["leaderWorkerTemplate"]
        for key in {"leaderTemplate", "workerTemplate"} & templates.keys():
            templates[key].setdefault("metadata", {})["annotations"] = dict(GPU)
    return body


def revision_of(pod: Pod) -> str:
    return pod.metadata.labels["disaggregatedset.x-k8s.io/revision"]
