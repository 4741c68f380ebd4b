"""The machine of guests on a real control plane: the steps that it draws, with each kind's own controller.

Jobs, Deployments, StatefulSets and what owns them have kube-controller-manager, of the version that has PodGroups.
JobSets, TrainJobs, LeaderWorkerSets, RayClusters, RayJobs and MPIJobs have their projects' controllers, built from
their Go modules. No container runs: kubelet is kwok, and Ray's dashboard has a stand-in. Nothing plays a controller.

`DOVETAIL_HELD_SEEDS=4:20` takes the steps of other seeds.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail.api.resources import NAMESPACES
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import OVERRIDES
from tests.cluster.held_world import RUNTIME, RealWorld, take_all
from tests.cluster.projects import ray_and_mpi
from tests.cluster.sandboxes import sandbox_with
from tests.cluster.test_gangs import GATES
from tests.cluster.test_trainer import RUNTIMES, runtime
from tests.world.guests import NAMESPACE
from tests.world.steps import drawn
from tests.world.test_held_machine import GPUS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_FIXED: Final = (1, 2, 3)


def seeds() -> list[int]:
    """Those of `DOVETAIL_HELD_SEEDS`, or the fixed ones."""
    first, _, end = os.environ.get("DOVETAIL_HELD_SEEDS", "").partition(":")
    return list(range(int(first), int(end or int(first) + 1))) if first else list(_FIXED)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A sandbox with the machine's nodes, and the controllers that have charts."""
    nodes = tmp_path_factory.mktemp("held") / "nodes.yaml"
    # The sandbox numbers the nodes of a set.
    sets = [{"name": name, "count": 1, "model": "V100", "devices": gpus} for name, gpus in GPUS.items()]
    nodes.write_text(yaml.safe_dump([*sets, {"name": "cpu", "count": 1}]), encoding="utf-8")
    with sandbox_with(nodes_file=nodes, overrides=OVERRIDES, with_=["jobset", "trainer", "lws"], **GATES) as found:
        yield found


@pytest.fixture
async def world(client: Client, sandbox: Cluster, tmp_path: Path) -> AsyncIterator[RealWorld]:
    """The machine's namespace, in which all controllers are at work."""
    await client.apply(
        NAMESPACES, name=NAMESPACE, body={"metadata": {"name": NAMESPACE}}, as_type=dict[str, Any],
        field_manager="test", force=True,
    )  # fmt: skip
    template = runtime()
    template["metadata"]["name"] = RUNTIME
    await client.apply(RUNTIMES, name=RUNTIME, body=template, as_type=dict[str, Any], field_manager="test", force=True)
    async with ray_and_mpi(client, cluster=sandbox, namespace=NAMESPACE, folder=tmp_path):
        loop = asyncio.get_running_loop()
        made = RealWorld(
            client, sandbox=sandbox, run=lambda call: asyncio.run_coroutine_threadsafe(call, loop).result()
        )
        yield made
        await asyncio.to_thread(made.close)


async def test_what_is_held_is_what_is_asked_after_each_drawn_step(world: RealWorld) -> None:
    for seed in seeds():
        steps = await asyncio.to_thread(drawn, seed)
        print(f"seed {seed}", flush=True)
        await asyncio.to_thread(take_all, steps, world=world, said=partial(print, "   ", flush=True))
