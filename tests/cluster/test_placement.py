"""Where the live policy puts pods, on real API objects from the agent's report to the allocation."""

from collections import Counter

import pytest

from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.test_extender import Scene

pytestmark = pytest.mark.cluster


async def test_two_gpus_are_the_linked_pair_that_is_whole(sandbox: Cluster, client: Client, namespace: str) -> None:
    scene = Scene(client, namespace=namespace, sandbox=sandbox)
    on_one = {"kubernetes.io/hostname": "v100-0"}
    try:
        await scene.create("first", "1@cuda:1", milli=1000, nodeSelector=on_one)
        await scene.is_bound("first")
        await scene.create("pair", "2", milli=2000, nodeSelector=on_one)
        await scene.is_bound("pair")
        devices = [[device.index for device in allocation.devices] for allocation in await scene.bound(2)]
    finally:
        await scene.clear()
    assert sorted(devices) == [[1], [2, 3]]


async def test_pods_that_spread_lie_on_as_many_nodes_as_there_are(
    sandbox: Cluster, client: Client, namespace: str
) -> None:
    scene = Scene(client, namespace=namespace, sandbox=sandbox)
    try:
        for number in range(4):
            await scene.create(f"spread-{number}", "0.25", milli=250, model="V100", policy="Spread")
        nodes = Counter(allocation.node for allocation in await scene.bound(4))
    finally:
        await scene.clear()
    assert nodes == {"v100-0": 2, "v100-1": 2}
