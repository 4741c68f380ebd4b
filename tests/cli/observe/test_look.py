"""A look at a cluster: it only lists, and what may not be read is named and hides nothing else."""

import asyncio

import pytest

from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.observe.look import look
from dovetail_cli.ui.errors import CommandError
from tests.core.kube.api import Answer, Api, refusal

LISTS = {
    "pods": "/api/v1/pods",
    "own pods": "/api/v1/namespaces/default/pods",
    "nodes": "/api/v1/nodes",
    "quotas": "/api/v1/resourcequotas",
    "events": "/api/v1/events",
    "gpunodes": "/apis/dovetail.dev/v1beta1/gpunodes",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2/workloads",
    "older workloads": "/apis/kueue.x-k8s.io/v1beta1/workloads",
    "clusterqueues": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "older clusterqueues": "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
}


def scripted(api: Api, **codes: int) -> None:
    """Every list is there and empty but those with a code of refusal, by `LISTS`."""
    for name, path in LISTS.items():
        code = codes.get(name.replace(" ", "_"))
        empty = Answer(body={"metadata": {}, "items": []})
        api.answer(f"GET {path}", *[empty if code is None else refusal(code)] * 3)


async def test_a_look_lists_and_does_nothing_else(api: Api, cluster: Cluster) -> None:
    scripted(api)
    found = await look(cluster)
    assert (found.pods, found.nodes, found.unread, found.notes) == ([], [], [], [])
    assert {each.method for each in api.seen} == {"GET"}


async def test_a_cluster_with_none_of_our_kinds_and_no_kueue_misses_nothing(api: Api, cluster: Cluster) -> None:
    scripted(api, gpunodes=404, workloads=404, older_workloads=404)
    assert (await look(cluster)).unread == []


async def test_an_older_kueue_is_read_too(api: Api, cluster: Cluster) -> None:
    scripted(api, workloads=404)
    await look(cluster)
    assert len(api.of(f"GET {LISTS['older workloads']}")) == 1


async def test_without_the_pods_of_all_namespaces_those_of_the_own_one_are_read(api: Api, cluster: Cluster) -> None:
    scripted(api, pods=403)
    found = await look(cluster)
    assert len(found.notes) == 1
    assert [(each.verb, each.resource, each.group) for each in found.unread] == [("list", "pods", "")]
    assert len(api.of(f"GET {LISTS['own pods']}")) == 1


async def test_each_missing_right_is_named_with_what_is_missing_for_it(api: Api, cluster: Cluster) -> None:
    scripted(api, nodes=403, quotas=403, events=403, gpunodes=403, workloads=403, older_workloads=403)
    found = await look(cluster)
    assert [(each.resource, each.group) for each in found.unread] == [
        ("nodes", ""), ("gpunodes", "dovetail.dev"), ("resourcequotas", ""), ("events", ""),
        ("workloads", "kueue.x-k8s.io"),
    ]  # fmt: skip
    assert all(each.missing for each in found.unread)


async def test_without_nodes_and_pods_there_is_nothing_to_show(api: Api, cluster: Cluster) -> None:
    scripted(api, nodes=403, pods=403, own_pods=403)
    with pytest.raises(
        CommandError, match="you may list neither nodes nor pods, not even the pods of namespace default"
    ):
        await asyncio.wait_for(look(cluster), timeout=60)
