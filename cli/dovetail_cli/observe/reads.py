"""Reads for a look at a cluster: lists only, each separate, so that a missing right hides nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from dovetail.answers.observe import Observation, Unread
from dovetail.api.builtin import Event, Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.kueue import WORKLOADS, Workload
from dovetail.api.resources import EVENTS, GPUNODES, NODES, PODS, RESOURCEQUOTAS, Resource
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.query.observe.objects import PlacedPod, ResourceQuota, Seen
from dovetail.query.observe.observation import observation
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui.errors import CommandError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

T = TypeVar("T")
# What the answer misses without the right to list a kind.
_MISSING: Final = {
    NODES.plural: "the map of devices, and on which nodes a waiting pod would fit",
    PODS.plural: "what pods of other namespaces wait for and hold, and so what is free",
    RESOURCEQUOTAS.plural: "the limits of GPUs in namespaces",
    EVENTS.plural: "pods that a quota keeps from being created",
    GPUNODES.plural: "what agents measure",
    WORKLOADS[0].plural: "what waits in Kueue's queues",
}
_REFUSED: Final = "reason=FailedCreate"


def look(*, kubeconfig: str | None, context: str | None, namespace: str | None) -> Observation:
    """Look at the cluster that the options name."""

    async def task(cluster: Cluster) -> Observation:
        with patiently() as say:
            say("Reading nodes and pods …")
            return observation(await read(cluster), now=utc_now())

    return work(task, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def read(cluster: Cluster) -> Seen:
    """Read what may be read. Raises `CommandError` where neither nodes nor pods may be listed."""
    # Pods first: a device that is promised after its pod was read can only look free.
    pods = await _listed(cluster, resource=PODS, as_type=PlacedPod)
    everywhere = not isinstance(pods, Unread)
    own = pods if everywhere else await _listed(cluster, resource=PODS, as_type=PlacedPod, namespace=cluster.namespace)
    nodes, gpunodes, quotas, events, workloads = await asyncio.gather(
        _listed(cluster, resource=NODES, as_type=Node),
        _listed(cluster, resource=GPUNODES, as_type=GPUNode),
        _listed(cluster, resource=RESOURCEQUOTAS, as_type=ResourceQuota),
        _listed(cluster, resource=EVENTS, as_type=Event, field_selector=_REFUSED),
        _workloads(cluster),
    )
    if isinstance(nodes, Unread) and isinstance(own, Unread):
        raise CommandError(
            f"you may list neither nodes nor pods, not even the pods of namespace {cluster.namespace}: "
            "examples/observe.yaml has the ClusterRole that a look needs"
        )
    found = (pods, nodes, gpunodes, quotas, events, workloads)
    return Seen(
        nodes=None if isinstance(nodes, Unread) else nodes,
        pods=_known(own),
        everywhere=everywhere,
        gpunodes=_known(gpunodes),
        quotas=_known(quotas),
        events=_known(events),
        workloads=_known(workloads),
        unread=[each for each in found if isinstance(each, Unread)],
    )


def _known(found: Sequence[T] | Unread) -> Sequence[T]:
    return () if isinstance(found, Unread) else found


async def _listed(
    cluster: Cluster,
    *,
    resource: Resource,
    as_type: type[T],
    namespace: str | None = None,
    field_selector: str | None = None,
) -> Sequence[T] | Unread:
    """All objects of a kind; none where the cluster does not have the kind."""
    try:
        return (
            await cluster.client.list(resource, as_type=as_type, namespace=namespace, field_selector=field_selector)
        ).items
    except NotFound:
        return ()
    except Forbidden:
        return _unread(resource)


def _unread(resource: Resource) -> Unread:
    return Unread(verb="list", resource=resource.plural, group=resource.group, missing=_MISSING[resource.plural])


async def _workloads(cluster: Cluster) -> Sequence[Workload] | Unread:
    """Kueue's Workloads in the first version that the cluster has."""
    found: Sequence[Workload] | Unread = ()
    for resource in WORKLOADS:
        try:
            return (await cluster.client.list(resource, as_type=Workload)).items
        except NotFound:
            continue
        except Forbidden:
            found = _unread(resource)
    return found
