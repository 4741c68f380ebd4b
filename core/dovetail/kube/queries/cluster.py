"""Reads what `dovetail.query` needs: the whole cluster at one moment, and the settings."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import yaml

from dovetail import names
from dovetail.api.builtin import ConfigMap, Job, Node, Pod, ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import CONFIGMAPS, GPUJOBS, GPUNODES, GPUQUOTAS, JOBS, NODES, PODS, Resource
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import UnreadableError
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP, MixRecord, record_in
from dovetail.formats.yaml_text import QUICK_LOADER
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.queries.node_pools import list_node_pools
from dovetail.kube.resource_slices import list_slices

T = TypeVar("T")
# Called for each page, with the kind's plural and the number of objects on the page.
OnPage = Callable[[str, int], None]


async def read_settings(client: Client, *, namespace: str) -> Settings:
    """Read the settings of a release; the defaults if its ConfigMap is absent or forbidden."""
    try:
        found = await client.get(CONFIGMAPS, name=names.CONFIG, as_type=ConfigMap, namespace=namespace)
    except (NotFound, Forbidden):
        return Settings()
    text = found.data.get(names.CONFIG_FILE, "")
    return Settings.model_validate(yaml.load(text, Loader=QUICK_LOADER) or {})  # noqa: S506 - a safe loader


async def read_cluster(client: Client, *, release_namespace: str, on_page: OnPage) -> ClusterObjects:
    """Read the whole cluster.

    Raises `NotFound` where Dovetail is not installed, and `Forbidden` for nodes, pods or jobs. Other kinds that are
    forbidden are None or empty in the result.
    """

    async def read(resource: Resource, *, as_type: type[T], label_selector: str | None = None) -> list[T]:
        items: list[T] = []
        async for page in client.pages(resource, as_type=as_type, label_selector=label_selector):
            items += page.items or ()
            on_page(resource.plural, len(page.items or ()))
        return items

    async def read_batch_jobs() -> list[Job] | None:
        try:
            return await read(JOBS, as_type=Job, label_selector=names.LABEL_JOB)
        except Forbidden:
            return None

    # Pods first, as in the audit: a device reported after its pod was read can only add capacity.
    pods = await read(PODS, as_type=Pod)
    (
        (nodes, gpunodes, jobs, batch_jobs),
        (settings, quotas, slices, node_pools),
        (job_mix, pod_mix, estimates),
    ) = await asyncio.gather(
        asyncio.gather(
            read(NODES, as_type=Node), read(GPUNODES, as_type=GPUNode), read(GPUJOBS, as_type=GPUJob), read_batch_jobs()
        ),
        asyncio.gather(
            read_settings(client, namespace=release_namespace),
            _quotas(client),
            _slices(client),
            list_node_pools(client),
        ),
        asyncio.gather(
            _mix(client, name=QUEUE_CONFIGMAP, namespace=release_namespace),
            _mix(client, name=EXTENDER_CONFIGMAP, namespace=release_namespace),
            _estimates(client, namespace=release_namespace),
        ),
    )
    return ClusterObjects(
        nodes=nodes,
        gpunodes=gpunodes,
        pods=pods,
        jobs=jobs,
        settings=settings,
        quotas=quotas,
        slices=slices,
        node_pools=node_pools,
        batch_jobs=batch_jobs,
        job_mix=job_mix,
        pod_mix=pod_mix,
        estimates=estimates,
    )


async def _quotas(client: Client) -> list[GPUQuota] | None:
    try:
        return list((await client.list(GPUQUOTAS, as_type=GPUQuota)).items)
    except Forbidden:
        return None


async def _mix(client: Client, *, name: str, namespace: str) -> MixRecord | None:
    try:
        found = await client.get(CONFIGMAPS, name=name, as_type=ConfigMap, namespace=namespace)
        return record_in(found.data)
    except (NotFound, Forbidden, UnreadableError):
        return None


async def _estimates(client: Client, *, namespace: str) -> dict[str, str]:
    try:
        return (await client.get(CONFIGMAPS, name=names.ESTIMATES, as_type=ConfigMap, namespace=namespace)).data
    except (NotFound, Forbidden):
        return {}


async def _slices(client: Client) -> list[ResourceSlice]:
    try:
        return await list_slices(client, drivers=names.GPU_DRIVERS)
    except Forbidden:
        return []
