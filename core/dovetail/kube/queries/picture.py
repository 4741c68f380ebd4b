"""What the doctor judges, read with one user's rights: each by itself, so that a missing one hides nothing else."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from dovetail import names
from dovetail.api.access_reviews import Act, Review
from dovetail.api.builtin import ConfigMap, EnvVar, Lease, Namespace, Node, Resources, is_terminal
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
    PODS,
    PRIORITYCLASSES,
    RUNTIMECLASSES,
    Resource,
)
from dovetail.cluster.picture import (
    LEASED,
    READS_TENANTS,
    RIGHTS,
    BuiltContainer,
    Object,
    Picture,
    Right,
    Unseen,
)
from dovetail.gpu import cuda
from dovetail.gpu.device_plugins import is_nvidias
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, NotFound, Status
from dovetail.kube.resource_slices import list_slices

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


async def read_picture(
    client: Client, *, release: str, namespace: str, crds: Iterable[str], now: Callable[[], datetime]
) -> Picture:
    """Read everything with the rights of `client`. Raises `KubeError` only if the API server does not answer at all.

    `release` is the namespace of the chart's own objects, `namespace` one of the user's own, and `crds` are those of
    other projects to look for.
    """

    async def one(resource: Resource, *, name: str, type_: type[T]) -> T | Unseen:
        namespace = release if resource.namespaced else None
        return await seen(client.get(resource, name=name, as_type=type_, namespace=namespace))

    leases = await asyncio.gather(*(one(LEASES, name=f"dovetail-{each}", type_=Lease) for each in LEASED))
    agents = await seen(_agents(client))
    homes = {"agent": release if isinstance(agents, Unseen) else agents["metadata"]["namespace"]}
    rights = await asyncio.gather(
        *(seen(_allowed(client, right=right, home=homes.get(right.account, release))) for right in RIGHTS)
    )
    pods = await seen(read_pods(client))
    return Picture(
        now=now(),
        release=release,
        kinds=await _kinds(client, namespace=namespace),
        nodes=await seen(listed(client, resource=NODES, type_=Node)),
        gpunodes=await seen(listed(client, resource=GPUNODES, type_=GPUNode)),
        leases=dict(zip(LEASED, leases, strict=True)),
        config=await one(CONFIGMAPS, name=names.CONFIG, type_=ConfigMap),
        runtime_class=await one(RUNTIMECLASSES, name="nvidia", type_=Object),
        priority_class=await one(PRIORITYCLASSES, name=names.PRIORITY_CLASS, type_=Object),
        webhook=await one(_WEBHOOKS, name="dovetail", type_=Object),
        policies=await seen(_names(client, resource=_POLICIES)),
        bound_policies=await seen(_names(client, resource=_BINDINGS)),
        webhook_pods=await one(_DEPLOYMENTS, name="dovetail-webhook", type_=Object),
        agents=agents,
        workloads=await seen(_workloads(client)),
        rights=dict(zip(RIGHTS, rights, strict=True)),
        cluster_policies=await seen(listed(client, resource=_CLUSTER_POLICIES, type_=Object)),
        slices=await seen(list_slices(client, drivers=names.GPU_DRIVERS)),
        namespaces=await seen(listed(client, resource=NAMESPACES, type_=Namespace)),
        resources_asked=pods if isinstance(pods, Unseen) else pods.resources_asked,
        resources_waited_for=pods if isinstance(pods, Unseen) else pods.resources_waited_for,
        built_containers=pods if isinstance(pods, Unseen) else pods.built_containers,
        job_namespaces=await seen(job_namespaces(client)),
        storage_classes=await seen(listed(client, resource=_STORAGE_CLASSES, type_=Object)),
        pod_monitors=await seen(listed(client, resource=_POD_MONITORS, type_=Object)),
        neighbours=await seen(_installed(client, crds=crds)),
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


async def listed(client: Client, *, resource: Resource, type_: type[T]) -> Sequence[T]:
    """All objects of a kind, of all namespaces."""
    return (await client.list(resource, as_type=type_)).items


async def _names(client: Client, *, resource: Resource) -> Sequence[str]:
    return [each["metadata"]["name"] for each in await listed(client, resource=resource, type_=Object)]


async def job_namespaces(client: Client) -> AbstractSet[str]:
    """The namespaces with GPUJobs."""
    # Their templates may be long, and only where they are is of interest.
    pages = client.pages(GPUJOBS, as_type=_Located)
    return {job.metadata.namespace async for page in pages for job in page.items or ()}


async def _installed(client: Client, *, crds: Iterable[str]) -> AbstractSet[str]:
    """Which of these CRDs the cluster has. Raises `Forbidden`."""
    found = set[str]()
    for crd in crds:
        with suppress(NotFound):
            found.add((await client.get(CRDS, name=crd, as_type=_Located)).metadata.name)
    return found


async def _workloads(client: Client) -> Sequence[Object]:
    """The chart's Deployments and DaemonSets; a list's items have no kind."""
    found: list[Object] = []
    for resource in (_DEPLOYMENTS, _DAEMONSETS):
        items = (await client.list(resource, as_type=Object, label_selector=_OURS)).items
        found += [{**each, "kind": resource.kind} for each in items]
    return found


async def _agents(client: Client) -> Object:
    """The DaemonSet of the agents, in any namespace. Raises `NotFound` if there is none."""
    found = (await client.list(_DAEMONSETS, as_type=Object, label_selector=_AGENTS)).items
    if not found:
        raise NotFound(Status(code=404, reason="NotFound", message="there is no DaemonSet of agents"))
    return found[0]


async def _allowed(client: Client, *, right: Right, home: str) -> bool:
    """Whether a component's account, in the namespace `home`, has a right or its substitute."""
    instead = _INSTEAD.get(right)
    return await _has(client, right=right, home=home) or (
        instead is not None and await _has(client, right=instead, home=home)
    )


async def _has(client: Client, *, right: Right, home: str) -> bool:
    account = f"system:serviceaccount:{home}:dovetail-{right.account}"
    spec = {"user": account, "resourceAttributes": right.act.attributes}
    return (await client.create(_REVIEWS, body={"spec": spec}, as_type=Review)).status.allowed


async def _kinds(client: Client, *, namespace: str) -> dict[str, Unseen | None]:
    """Our kinds, each with why it cannot be listed; None where it can."""
    kinds = (GPUJOBS, GPUNODES, GPUNODETENANTS, GPUQUOTAS, HISTORYQUERIES)
    counted = await asyncio.gather(*(seen(_count(client, resource=each, namespace=namespace)) for each in kinds))
    return {
        kind.plural: found if isinstance(found, Unseen) else None for kind, found in zip(kinds, counted, strict=True)
    }


async def _count(client: Client, *, resource: Resource, namespace: str) -> int:
    where = namespace if resource.namespaced else None
    return len((await client.list(resource, as_type=Object, namespace=where)).items)


class _Container(Described, frozen=True, kw_only=True):
    image: str = ""
    env: list[EnvVar] = []
    resources: Resources = Resources()


class _Spec(Described, frozen=True, kw_only=True):
    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class _Status(Described, frozen=True, kw_only=True):
    phase: str = ""


class _Pod(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class PodFacts(NamedTuple):
    """What pods request and are built for.

    `resources_asked` are the extended resources that pods request above 0, by namespace, and `resources_waited_for`
    those of pods without a node.
    """

    resources_asked: Mapping[str, AbstractSet[str]]
    resources_waited_for: Mapping[str, AbstractSet[str]]
    built_containers: Sequence[BuiltContainer]


async def read_pods(client: Client) -> PodFacts:
    """The facts of all pods. Each page of pods is dropped once it is read."""
    asked: dict[str, set[str]] = defaultdict(set)
    waited: dict[str, set[str]] = defaultdict(set)
    built: list[BuiltContainer] = []
    async for page in client.pages(PODS, as_type=_Pod):
        for pod in page.items or ():
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                asked[pod.metadata.namespace] |= _asked(container)
                if not pod.spec.node_name and not is_terminal(pod.status.phase):
                    waited[pod.metadata.namespace] |= _asked(container)
            built += _built(pod)
    return PodFacts(resources_asked=asked, resources_waited_for=waited, built_containers=built)


def _asked(container: _Container) -> set[str]:
    limits = container.resources.limits
    return {each for each in limits if "/" in each and str(limits[each]) != "0"}


def _built(pod: _Pod) -> Iterator[BuiltContainer]:
    """The containers of a live pod with an NVIDIA GPU that say which CUDA they are built for."""
    if not pod.spec.node_name or is_terminal(pod.status.phase):
        return
    for container in pod.spec.containers:
        if not any(name in names.MANAGED_RESOURCES or is_nvidias(name) for name in _asked(container)):
            continue
        variables = {each.name: each.value for each in container.env}
        if built := cuda.built_for(image=container.image, variables=variables):
            yield BuiltContainer(
                namespace=pod.metadata.namespace, pod=pod.metadata.name, node=pod.spec.node_name, built=built
            )
