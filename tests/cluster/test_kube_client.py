"""The client and the reflector against a real API server: what the scripted one in tests/core/kube only plays."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dovetail.api.builtin import ConfigMap, Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS, GPUJOBS, NODES, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, Unreachable
from dovetail.kube.reflector import Reflector

pytestmark = pytest.mark.cluster


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def create_pod(client: Client, *, namespace: str) -> Pod:
    """A pod that no scheduler takes."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}
    body = {"metadata": {"generateName": "bind-"}, "spec": spec}
    return await client.create(PODS, body=body, as_type=Pod, namespace=namespace)


async def any_node(client: Client) -> str:
    return (await client.list(NODES, as_type=Node)).items[0].metadata.name


async def test_every_verb_and_its_refusal(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, body=config_map("a", k="1"), as_type=ConfigMap, namespace=namespace)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIGMAPS, body=config_map("a"), as_type=ConfigMap, namespace=namespace)
    patched = await client.patch(
        CONFIGMAPS, name="a", patch={"data": {"k": "2"}}, as_type=ConfigMap, namespace=namespace
    )
    assert patched.data == {"k": "2"}
    stale = {"metadata": {"name": "a", "resourceVersion": made.metadata.resource_version}}
    with pytest.raises(Conflict):
        await client.update(CONFIGMAPS, name="a", body=stale, as_type=ConfigMap, namespace=namespace)
    with pytest.raises(Conflict):
        await client.delete(CONFIGMAPS, name="a", namespace=namespace, uid=str(uuid.uuid4()))
    await client.delete(CONFIGMAPS, name="a", namespace=namespace, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, name="a", as_type=ConfigMap, namespace=namespace)


async def test_apply_gives_way_to_another_owner_unless_forced(client: Client, namespace: str) -> None:
    async def apply(value: str, *, manager: str, force: bool = False) -> ConfigMap:
        body = config_map("owned", k=value)
        return await client.apply(
            CONFIGMAPS,
            name="owned",
            body=body,
            as_type=ConfigMap,
            field_manager=manager,
            force=force,
            namespace=namespace,
        )

    await apply("1", manager="first")
    with pytest.raises(Conflict, match="first"):
        await apply("2", manager="second")
    assert (await apply("2", manager="second", force=True)).data == {"k": "2"}


async def test_an_api_server_that_cannot_be_trusted_is_not_talked_to(sandbox: Any) -> None:
    distrustful = dataclasses.replace(load_connection(sandbox.kubeconfig), ca=None)
    async with Client(distrustful, deadline_seconds=5) as client:
        with pytest.raises(Unreachable, match="its certificate is not trusted"):
            await client.delete(NODES, name="no-such-node")


async def test_a_dry_run_stores_nothing(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, body=config_map("dry"), as_type=ConfigMap, namespace=namespace, dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, name="dry", as_type=ConfigMap, namespace=namespace)


async def test_a_refused_job_names_its_field(client: Client, namespace: str) -> None:
    spec = {"gpu": "0", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    with pytest.raises(Invalid) as error:
        await client.create(
            GPUJOBS,
            body={"metadata": {"name": "zero"}, "spec": spec},
            as_type=GPUJob,
            namespace=namespace,
            dry_run=True,
        )
    assert error.value.details.causes[0].field == "spec.gpu"


async def test_pages_of_a_real_list_add_up(client: Client, namespace: str) -> None:
    names = {f"page-{number}" for number in range(25)}
    await asyncio.gather(
        *(client.create(CONFIGMAPS, body=config_map(name), as_type=ConfigMap, namespace=namespace) for name in names)
    )
    pages = [page async for page in client.pages(CONFIGMAPS, as_type=ConfigMap, namespace=namespace, page_size=10)]
    assert len(pages) == 3
    assert names <= {item.metadata.name for page in pages for item in page.items or ()}


async def test_a_binding_carries_the_annotations_into_the_pod_once(client: Client, namespace: str) -> None:
    pod, node = await create_pod(client, namespace=namespace), await any_node(client)
    await client.bind(pod, node=node, annotations={"example.com/k": "v"}, deadline_seconds=60)
    bound = await client.get(PODS, name=pod.metadata.name, as_type=Pod, namespace=namespace)
    assert (bound.spec.node_name, bound.metadata.annotations["example.com/k"]) == (node, "v")
    with pytest.raises(Conflict):
        await client.bind(pod, node=node, annotations={}, deadline_seconds=60)


async def test_a_binding_of_a_pod_that_was_replaced_is_refused(client: Client, namespace: str) -> None:
    pod = await create_pod(client, namespace=namespace)
    await client.delete(PODS, name=pod.metadata.name, namespace=namespace, grace_period_seconds=0)
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}
    body = {"metadata": {"name": pod.metadata.name}, "spec": spec}
    await client.create(PODS, body=body, as_type=Pod, namespace=namespace)
    with pytest.raises(Conflict):
        await client.bind(pod, node=await any_node(client), annotations={}, deadline_seconds=60)


class Follower:
    """The reported changes of the namespace's ConfigMaps that begin with `f-`."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._changes: asyncio.Queue[tuple[EventType, ConfigMap]] = asyncio.Queue()
        self.reflector = Reflector(
            client, resource=CONFIGMAPS, as_type=ConfigMap, namespace=namespace, on_event=self._record
        )

    def _record(self, kind: EventType, found: ConfigMap) -> None:
        if found.metadata.name.startswith("f-"):
            self._changes.put_nowait((kind, found))

    async def next(self) -> tuple[EventType, ConfigMap]:
        return await asyncio.wait_for(self._changes.get(), timeout=60)


@asynccontextmanager
async def following(client: Client, *, namespace: str) -> AsyncIterator[Follower]:
    follower = Follower(client, namespace=namespace)
    task = asyncio.create_task(follower.reflector.run())
    await asyncio.wait_for(follower.reflector.synced.wait(), timeout=60)
    yield follower
    task.cancel()
    await asyncio.wait([task])


async def test_a_reflector_follows_what_happens(client: Client, namespace: str) -> None:
    async with following(client, namespace=namespace) as follower:
        await client.create(CONFIGMAPS, body=config_map("f-a", k="1"), as_type=ConfigMap, namespace=namespace)
        await client.patch(CONFIGMAPS, name="f-a", patch={"data": {"k": "2"}}, as_type=ConfigMap, namespace=namespace)
        await client.delete(CONFIGMAPS, name="f-a", namespace=namespace)
        seen = [await follower.next() for _ in range(3)]
        assert [(kind, found.data) for kind, found in seen] == [
            ("ADDED", {"k": "1"}),
            ("MODIFIED", {"k": "2"}),
            ("DELETED", {"k": "2"}),
        ]
        assert f"{namespace}/f-a" not in follower.reflector.store


async def test_the_largest_object_that_is_allowed_comes_through_a_watch(client: Client, namespace: str) -> None:
    async with following(client, namespace=namespace) as follower:
        body = config_map("f-large", k="x" * 1_000_000)
        await client.create(CONFIGMAPS, body=body, as_type=ConfigMap, namespace=namespace)
        _, found = await follower.next()
        assert len(found.data["k"]) == 1_000_000
