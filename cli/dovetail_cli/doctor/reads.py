"""The doctor's reads, each separate, so that a missing permission hides nothing else."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, TypeVar

from dovetail import names
from dovetail.api.access_reviews import Act, Review
from dovetail.api.builtin import ConfigMap, Lease, Namespace, Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import (
    CONFIGMAPS,
    CRDS,
    GPUJOBS,
    GPUNODES,
    GPUNODETENANTS,
    GPUQUOTAS,
    HISTORYQUERIES,
    LEASES,
    NAMESPACES,
    NODES,
    PRIORITYCLASSES,
    RUNTIMECLASSES,
    Resource,
)
from dovetail.kube.errors import Forbidden, NotFound, Status
from dovetail.kube.resource_slices import list_slices
from dovetail.query.doctor import guests
from dovetail.query.doctor.findings import Unseen
from dovetail.query.doctor.neighbours import NEIGHBOURS
from dovetail.query.doctor.picture import LEASED, READS_TENANTS, RIGHTS, Object, Picture, Right
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.doctor.pods import read_pods
from dovetail_cli.ui.times import utc_now

T = TypeVar("T")

_FORBIDDEN: Final = re.compile(r'cannot (\w+) resource "([^"]+)"')
_WEBHOOKS: Final = Resource(
    group="admissionregistration.k8s.io", plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration", namespaced=False,
)  # fmt: skip
_POLICIES: Final = Resource(
    group="admissionregistration.k8s.io", plural="validatingadmissionpolicies",
    kind="ValidatingAdmissionPolicy", namespaced=False,
)  # fmt: skip
_BINDINGS: Final = Resource(
    group="admissionregistration.k8s.io", plural="validatingadmissionpolicybindings",
    kind="ValidatingAdmissionPolicyBinding", namespaced=False,
)  # fmt: skip
_DEPLOYMENTS: Final = Resource(group="apps", plural="deployments", kind="Deployment")
_DAEMONSETS: Final = Resource(group="apps", plural="daemonsets", kind="DaemonSet")
_REVIEWS: Final = Resource(
    group="authorization.k8s.io", plural="subjectaccessreviews", kind="SubjectAccessReview", namespaced=False
)
# NVIDIA's GPU operator says by these how containers get devices.
_CLUSTER_POLICIES: Final = Resource(
    group="nvidia.com", plural="clusterpolicies", kind="ClusterPolicy", namespaced=False
)
_STORAGE_CLASSES: Final = Resource(
    group="storage.k8s.io", plural="storageclasses", kind="StorageClass", namespaced=False
)
_POD_MONITORS: Final = Resource(group="monitoring.coreos.com", plural="podmonitors", kind="PodMonitor")


class _Located(Described, frozen=True, kw_only=True):
    """Any object, of which only the namespace is read."""

    metadata: ObjectMeta = ObjectMeta()


# With agent.readPods agents have the one in the place of the other.
_INSTEAD: Final = {READS_TENANTS: Right("agent", Act(verb="list", group="", resource="pods"))}
# The chart's DaemonSet is in a namespace of its own where agent.namespace names one.
_OURS: Final = "app.kubernetes.io/name=dovetail"
_AGENTS: Final = f"{_OURS},app.kubernetes.io/component=agent"


async def read_all(cluster: Cluster) -> Picture:
    """Read everything. Raises `KubeError` only if the API server does not answer at all."""
    release = await release_namespace(cluster)

    async def one(resource: Resource, *, name: str, type_: type[T]) -> T | Unseen:
        namespace = release if resource.namespaced else None
        return await seen(cluster.client.get(resource, name=name, as_type=type_, namespace=namespace))

    leases = await asyncio.gather(*(one(LEASES, name=f"dovetail-{each}", type_=Lease) for each in LEASED))
    agents = await seen(_agents(cluster))
    homes = {"agent": release if isinstance(agents, Unseen) else agents["metadata"]["namespace"]}
    rights = await asyncio.gather(
        *(seen(_allowed(cluster, right=right, home=homes.get(right.account, release))) for right in RIGHTS)
    )
    pods = await seen(read_pods(cluster))
    return Picture(
        now=utc_now(),
        release=release,
        kinds=await _kinds(cluster),
        nodes=await seen(listed(cluster, resource=NODES, type_=Node)),
        gpunodes=await seen(listed(cluster, resource=GPUNODES, type_=GPUNode)),
        leases=dict(zip(LEASED, leases, strict=True)),
        config=await one(CONFIGMAPS, name=names.CONFIG, type_=ConfigMap),
        runtime_class=await one(RUNTIMECLASSES, name="nvidia", type_=Object),
        priority_class=await one(PRIORITYCLASSES, name=names.PRIORITY_CLASS, type_=Object),
        webhook=await one(_WEBHOOKS, name="dovetail", type_=Object),
        policies=await seen(_names(cluster, resource=_POLICIES)),
        bound_policies=await seen(_names(cluster, resource=_BINDINGS)),
        webhook_pods=await one(_DEPLOYMENTS, name="dovetail-webhook", type_=Object),
        agents=agents,
        workloads=await seen(_workloads(cluster)),
        rights=dict(zip(RIGHTS, rights, strict=True)),
        cluster_policies=await seen(listed(cluster, resource=_CLUSTER_POLICIES, type_=Object)),
        slices=await seen(list_slices(cluster.client, drivers=names.GPU_DRIVERS)),
        namespaces=await seen(listed(cluster, resource=NAMESPACES, type_=Namespace)),
        resources_asked=pods if isinstance(pods, Unseen) else pods.resources_asked,
        resources_waited_for=pods if isinstance(pods, Unseen) else pods.resources_waited_for,
        built_containers=pods if isinstance(pods, Unseen) else pods.built_containers,
        job_namespaces=await seen(job_namespaces(cluster)),
        storage_classes=await seen(listed(cluster, resource=_STORAGE_CLASSES, type_=Object)),
        pod_monitors=await seen(listed(cluster, resource=_POD_MONITORS, type_=Object)),
        neighbours=await seen(_installed(cluster)),
    )


async def seen(reading: Awaitable[T]) -> T | Unseen:
    """What is read, or why it cannot be."""
    try:
        return await reading
    except NotFound as error:
        return Unseen(why=error.message or "it is not there", missing=True)
    except Forbidden as error:
        return Unseen(why=_in_short(error.message), missing=False)


def _in_short(message: str) -> str:
    """Shorten the API server's message about a missing permission to verb and resource."""
    found = _FORBIDDEN.search(message)
    return f"you may not {found[1]} {found[2]}" if found else message


async def listed(cluster: Cluster, *, resource: Resource, type_: type[T]) -> Sequence[T]:
    """All objects of a kind, of all namespaces."""
    return (await cluster.client.list(resource, as_type=type_)).items


async def _names(cluster: Cluster, *, resource: Resource) -> Sequence[str]:
    return [each["metadata"]["name"] for each in await listed(cluster, resource=resource, type_=Object)]


async def job_namespaces(cluster: Cluster) -> AbstractSet[str]:
    """The namespaces with GPUJobs."""
    # Their templates may be long, and only where they are is of interest.
    pages = cluster.client.pages(GPUJOBS, as_type=_Located)
    return {job.metadata.namespace async for page in pages for job in page.items or ()}


async def _installed(cluster: Cluster) -> AbstractSet[str]:
    """The CRDs of neighbours and of guests' kinds that the cluster has. Raises `Forbidden`."""
    found = set[str]()
    for crd in (*(each.crd for each in NEIGHBOURS), *guests.CRDS):
        with suppress(NotFound):
            found.add((await cluster.client.get(CRDS, name=crd, as_type=_Located)).metadata.name)
    return found


async def _workloads(cluster: Cluster) -> Sequence[Object]:
    """The chart's Deployments and DaemonSets; a list's items have no kind."""
    found: list[Object] = []
    for resource in (_DEPLOYMENTS, _DAEMONSETS):
        items = (await cluster.client.list(resource, as_type=Object, label_selector=_OURS)).items
        found += [{**each, "kind": resource.kind} for each in items]
    return found


async def _agents(cluster: Cluster) -> Object:
    """The DaemonSet of the agents, in any namespace. Raises `NotFound` if there is none."""
    found = (await cluster.client.list(_DAEMONSETS, as_type=Object, label_selector=_AGENTS)).items
    if not found:
        raise NotFound(Status(code=404, reason="NotFound", message="there is no DaemonSet of agents"))
    return found[0]


async def _allowed(cluster: Cluster, *, right: Right, home: str) -> bool:
    """Whether a component's account, in the namespace `home`, has a right or its substitute."""
    instead = _INSTEAD.get(right)
    return await _has(cluster, right=right, home=home) or (
        instead is not None and await _has(cluster, right=instead, home=home)
    )


async def _has(cluster: Cluster, *, right: Right, home: str) -> bool:
    account = f"system:serviceaccount:{home}:dovetail-{right.account}"
    spec = {"user": account, "resourceAttributes": right.act.attributes}
    return (await cluster.client.create(_REVIEWS, body={"spec": spec}, as_type=Review)).status.allowed


async def _kinds(cluster: Cluster) -> dict[str, Unseen | None]:
    """Our kinds, each with why it cannot be listed; None where it can."""
    kinds = (GPUJOBS, GPUNODES, GPUNODETENANTS, GPUQUOTAS, HISTORYQUERIES)
    counted = await asyncio.gather(*(seen(_count(cluster, resource=each)) for each in kinds))
    return {
        kind.plural: found if isinstance(found, Unseen) else None for kind, found in zip(kinds, counted, strict=True)
    }


async def _count(cluster: Cluster, *, resource: Resource) -> int:
    namespace = cluster.namespace if resource.namespaced else None
    return len((await cluster.client.list(resource, as_type=Object, namespace=namespace)).items)
