"""Informers that keep the cluster view current, and the bind, which is the one write.

They watch nodes, GPUNodes, pods, GPUJobs, GPUQuotas, PodDisruptionBudgets and ResourceSlices. The view is usable once
all of them are listed. While the API server is silent the view keeps its last state, and `ages_seconds` grows.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from dovetail import names
from dovetail.api.builtin import Node, Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, GPUNODES, GPUQUOTAS, NODES, PODDISRUPTIONBUDGETS, PODS
from dovetail.cluster.view import ClusterView
from dovetail.kube.client import Client
from dovetail.kube.reflector import KubeObject, Reflector
from dovetail.kube.resource_slices import SliceWatch
from dovetail.pods.assumed_allocation import assumed_pod
from dovetail_extender.holds.planned_workers import PlannedJob


def is_noise(old: Pod, *, new: Pod, view: ClusterView) -> bool:
    """Whether no handler has to see the change from `old` to `new`, two states of one pod.

    That is so if the pod was bound before, has not ended, differs only in status fields that no handler reads, and if
    the ledger has its claim. If the claim was dropped for whatever reason, the next change brings it back.
    """
    return (
        bool(new.spec.node_name)
        and not is_terminated(old)
        and not is_terminated(new)
        and old.spec == new.spec
        and _said(old) == _said(new)
        and view.has_claim(new)
    )


def _said(pod: Pod) -> tuple[object, ...]:
    """What handlers read of a bound pod besides its spec and whether it has ended."""
    meta = pod.metadata
    claims = pod.status.extended_resource_claim_status
    return meta.uid, meta.deletion_timestamp, meta.annotations, meta.labels, meta.owner_references, claims


T = TypeVar("T", bound=KubeObject)


class Watching:
    """Feeds a `ClusterView` from the API server, and serves pods and GPUJobs to binds."""

    def __init__(
        self,
        client: Client,
        *,
        view: ClusterView,
        on_pod: Callable[[EventType, Pod], None],
        on_job: Callable[[EventType, PlannedJob], None],
        on_quota: Callable[[EventType, GPUQuota], None],
    ) -> None:
        """Set up the informers; `on_pod` is called after the view has taken in the pod's change."""
        self._client = client
        self._nodes = Reflector(
            client,
            resource=NODES,
            as_type=Node,
            on_event=_feed(view.node_changed, gone=lambda node: view.node_gone(node.metadata.name)),
        )
        self._gpunodes = Reflector(
            client,
            resource=GPUNODES,
            as_type=GPUNode,
            on_event=_feed(view.gpunode_changed, gone=lambda gpunode: view.gpunode_gone(gpunode.metadata.name)),
        )
        into_view = _feed(view.pod_changed, gone=view.pod_gone)

        # The versions of pods that the view has already, by UID: a page computes each of its nodes once, where pods one
        # by one compute a node of 100 pods 100 times.
        in_view: dict[str, str] = {}

        def on_page(pods: Sequence[Pod]) -> None:
            in_view.clear()
            bound = [pod for pod in pods if pod.spec.node_name and not is_terminated(pod)]
            view.pods_listed(bound)
            in_view.update((pod.metadata.uid, pod.metadata.resource_version) for pod in bound)

        def on_pod_event(event: EventType, pod: Pod) -> None:
            if event == "DELETED" or in_view.pop(pod.metadata.uid, None) != pod.metadata.resource_version:
                into_view(event, pod)
            on_pod(event, pod)

        self._pods = Reflector(
            client,
            resource=PODS,
            as_type=Pod,
            on_event=on_pod_event,
            on_page=on_page,
            stand_in=assumed_pod,
            matters=lambda old, new: not is_noise(old, new=new, view=view),
        )
        self._jobs = Reflector(client, resource=GPUJOBS, as_type=PlannedJob, on_event=on_job)
        self._quotas = Reflector(client, resource=GPUQUOTAS, as_type=GPUQuota, on_event=on_quota)
        self._budgets = Reflector(client, resource=PODDISRUPTIONBUDGETS, as_type=PodDisruptionBudget)
        self._slices = SliceWatch(
            client, drivers=names.GPU_DRIVERS, on_event=_feed(view.slice_changed, gone=view.slice_gone)
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")
            group.create_task(self._slices.run(), name="watch resourceslices")

    @property
    def missing(self) -> list[str]:
        """The resources that are not listed yet; empty when the view is usable."""
        missing = [reflector.resource.plural for reflector in self._reflectors if not reflector.synced.is_set()]
        return missing if self._slices.settled.is_set() else [*missing, "resourceslices"]

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the API server last sent anything about each resource."""
        return {reflector.resource.plural: reflector.age_seconds for reflector in self._reflectors}

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        """The pod in the cache, or None."""
        return self._pods.store.get(f"{namespace}/{name}")

    def pods(self) -> Collection[Pod]:
        """All pods in the cache."""
        return self._pods.store.values()

    def budgets(self) -> Collection[PodDisruptionBudget]:
        """All PodDisruptionBudgets in the cache."""
        return self._budgets.store.values()

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        """Read the pod from the API server. Raises `KubeError`."""
        return await self._client.get(
            PODS, name=name, as_type=Pod, namespace=namespace, deadline_seconds=deadline_seconds
        )

    async def read_job(self, *, namespace: str, name: str, deadline_seconds: float) -> PlannedJob:
        """Read the GPUJob from the API server. Raises `KubeError`."""
        return await self._client.get(
            GPUJOBS, name=name, as_type=PlannedJob, namespace=namespace, deadline_seconds=deadline_seconds
        )

    async def read_gpunode(self, *, name: str, deadline_seconds: float) -> GPUNode:
        """Read the GPUNode from the API server. Raises `KubeError`."""
        return await self._client.get(GPUNODES, name=name, as_type=GPUNode, deadline_seconds=deadline_seconds)

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        """Create the Binding with these annotations. Raises `KubeError`."""
        await self._client.bind(pod, node=node, annotations=annotations, deadline_seconds=deadline_seconds)

    @property
    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return self._nodes, self._gpunodes, self._pods, self._jobs, self._quotas, self._budgets


def _feed(changed: Callable[[T], object], *, gone: Callable[[T], object]) -> Callable[[EventType, T], None]:
    def on_event(event: EventType, subject: T) -> None:
        (gone if event == "DELETED" else changed)(subject)

    return on_event
