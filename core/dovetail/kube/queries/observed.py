"""Reads for a look at a cluster: lists only, each separate, so that a missing right hides nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from dovetail.api.builtin import Event, Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.kueue import CLUSTERQUEUES, WORKLOADS, ClusterQueue, Workload
from dovetail.api.resources import EVENTS, GPUNODES, NODES, PODS, RESOURCEQUOTAS, Resource
from dovetail.cluster.observed import PlacedPod, ResourceQuota, Seen
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, NotFound

T = TypeVar("T")
_REFUSED: Final = "reason=FailedCreate"


async def read_observed(client: Client, *, namespace: str) -> Seen:
    """Read what may be read; without the pods of all namespaces, those of `namespace`."""
    # Pods first: a device that is promised after its pod was read can only look free.
    pods = await _listed(client, resource=PODS, as_type=PlacedPod)
    own = await _listed(client, resource=PODS, as_type=PlacedPod, namespace=namespace) if pods is None else pods
    nodes, gpunodes, quotas, events, workloads, queues = await asyncio.gather(
        _listed(client, resource=NODES, as_type=Node),
        _listed(client, resource=GPUNODES, as_type=GPUNode),
        _listed(client, resource=RESOURCEQUOTAS, as_type=ResourceQuota),
        _listed(client, resource=EVENTS, as_type=Event, field_selector=_REFUSED),
        _of_kueue(client, versions=WORKLOADS, as_type=Workload),
        _of_kueue(client, versions=CLUSTERQUEUES, as_type=ClusterQueue),
    )
    lists = {
        PODS: pods, NODES: nodes, GPUNODES: gpunodes, RESOURCEQUOTAS: quotas, EVENTS: events, WORKLOADS[0]: workloads,
        CLUSTERQUEUES[0]: queues,
    }  # fmt: skip
    return Seen(
        nodes=nodes,
        pods=own or (),
        everywhere=pods is not None,
        gpunodes=gpunodes or (),
        quotas=quotas or (),
        events=events or (),
        workloads=workloads or (),
        clusterqueues=queues or (),
        unlisted=[resource for resource, found in lists.items() if found is None],
        blind=nodes is None and own is None,
    )


async def _listed(
    client: Client,
    *,
    resource: Resource,
    as_type: type[T],
    namespace: str | None = None,
    field_selector: str | None = None,
) -> Sequence[T] | None:
    """All objects of a kind; empty where the cluster does not have the kind, None where they may not be listed."""
    try:
        return (await client.list(resource, as_type=as_type, namespace=namespace, field_selector=field_selector)).items
    except NotFound:
        return ()
    except Forbidden:
        return None


async def _of_kueue(client: Client, *, versions: Sequence[Resource], as_type: type[T]) -> Sequence[T] | None:
    """A kind of Kueue's in the first version that the cluster has; None where it may not be listed."""
    found: Sequence[T] | None = ()
    for resource in versions:
        found = await _listed(client, resource=resource, as_type=as_type)
        if found:
            break
    return found
