"""The cluster as the informers have it, indexed for answers, and which of it changed."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from dovetail import names
from dovetail.answers.inventory import NodeReader, NodeUse
from dovetail.api.builtin import ConfigMap, Job, Node, Pod, ResourceSlice, RoleBinding
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import CONFIGMAPS, GPUJOBS, GPUNODES, GPUQUOTAS, JOBS, NODES, PODS, ROLEBINDINGS
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.staleness import Freshness
from dovetail.config.settings import Settings
from dovetail.decoding import UnreadableError
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP, MixRecord, record_in
from dovetail.gpu.device_indexes import CONFIGMAP_NAME, NodeDevice, read_indexes
from dovetail.jobs.device_totals import with_figures_so_far
from dovetail.jobs.runs import is_of_earlier_job
from dovetail.kube.client import Client
from dovetail.kube.queries.node_pools import watch_node_pools
from dovetail.kube.reflector import Reflector
from dovetail.kube.resource_slices import SliceWatch
from dovetail.pods.assumed_allocation import assumed_pod
from dovetail.pods.tenancy import job_of
from dovetail_gateway.access.callers import Caller
from dovetail_gateway.access.reviews import ALLOWED_SECONDS, Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.bindings import Bindings

T = TypeVar("T", GPUJob, GPUNode)
# Answers about a cluster that has been silent for longer would be about another cluster.
OLDEST_SECONDS: Final = 300.0
# The level of the network by which people look for a node.
RACK: Final = "rack"


@dataclass(slots=True)
class Changes:
    """What changed since the last look: GPUJobs by `namespace/name`, nodes by name. Mutable: the cache fills it."""

    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes)


class ClusterCache:
    """Follows the cluster with the gateway's own account; `run()` does so until it is cancelled."""

    def __init__(
        self, client: Client, *, settings: Settings, reviews: Reviews, namespace: str, allocation_namespace: str
    ) -> None:
        """`namespace` is that of the release, `allocation_namespace` that of v1's allocations and v2's tasks."""
        self.settings = settings
        self._version = 0
        self._reviews = reviews
        self._changes = Changes()
        self._node_uses: dict[str, NodeUse] = {}
        self._pods_on: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._node_of: dict[str, str] = {}
        # Of which an answer could show something: how many GPUJobs, pods with devices and quotas each has.
        self._namespaces: Counter[str] = Counter([allocation_namespace])
        self._shown: dict[tuple[str, str], frozenset[str]] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._freshness = Freshness(max_age_seconds=settings.measurement_max_age, clock=time.monotonic)
        self._reader = self.node_reader()
        self._device_indexes: Mapping[int, NodeDevice] = {}
        # What prices have learned, by the name of the ConfigMap.
        self._mixes: dict[str, MixRecord] = {}
        self._estimates: dict[str, str] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._bindings = Bindings(changed=reviews.rights_changed)
        # Optional: a user's own gateway may lack the right. Its callers are then asked about in another order.
        self._role_bindings = Reflector(
            client, resource=ROLEBINDINGS, as_type=RoleBinding, on_event=self._bindings.on_binding
        )
        self._nodes = Reflector(client, resource=NODES, as_type=Node, on_event=self._on_node)
        self._gpunodes = Reflector(client, resource=GPUNODES, as_type=GPUNode, on_event=self._on_gpunode)
        self._pods = Reflector(client, resource=PODS, as_type=Pod, on_event=self._on_pod, stand_in=assumed_pod)
        self._jobs = Reflector(client, resource=GPUJOBS, as_type=GPUJob, on_event=self._on_job)
        self._quotas = Reflector(client, resource=GPUQUOTAS, as_type=GPUQuota, on_event=self._on_quota)
        self._batch_jobs = Reflector(
            client, resource=JOBS, as_type=Job, on_event=self._on_other, label_selector=names.LABEL_JOB
        )
        # The account may read these ConfigMaps by name, so each has its own watch.
        *self._configmaps, self._learned = (
            Reflector(
                client,
                resource=CONFIGMAPS,
                as_type=ConfigMap,
                on_event=self._on_configmap,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
            )
            # The last one is optional too: an earlier chart allows the others alone.
            for name in (CONFIGMAP_NAME, QUEUE_CONFIGMAP, EXTENDER_CONFIGMAP, names.ESTIMATES)
        )
        self._node_pools: dict[str, NodePool] = {}
        self._node_pool_watch = watch_node_pools(client, on_event=self._on_node_pool)
        self._slice_watch = SliceWatch(client, drivers=names.GPU_DRIVERS, on_event=self._on_slice)

    def configure(self, settings: Settings) -> None:
        """Answer by other settings from now on."""
        self.settings = settings
        self._version += 1
        # Their racks, and when a report is too old, follow from the settings.
        self._freshness = Freshness(max_age_seconds=settings.measurement_max_age, clock=time.monotonic)
        self._reader = self.node_reader()
        self._touch(list(self._gpunodes.store))

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")
            group.create_task(self._role_bindings.run(), name="watch rolebindings")
            group.create_task(self._learned.run(), name="watch estimates")
            group.create_task(self._slice_watch.run(), name="watch resourceslices")
            group.create_task(self._node_pool_watch.run(), name="watch nodepools")

    @property
    def version(self) -> int:
        """Counts changes, so that an answer can be kept while nothing has changed."""
        self._let_reports_age()
        return self._version

    @property
    def obstacle(self) -> str:
        """Why no answer is possible; empty when everything is listed and not too old."""
        missing = [each.resource.plural for each in self._reflectors if not each.synced.is_set()]
        if not self._slice_watch.settled.is_set():
            missing.append("resourceslices")
        if not self._node_pool_watch.settled.is_set():
            missing.append("nodepools")
        if missing:
            return f"not listed yet: {', '.join(missing)}"
        age = self.age_seconds
        if age > OLDEST_SECONDS:
            return f"the API server has sent nothing for {age:.0f} s, more than {OLDEST_SECONDS:g} s"
        return ""

    async def complete(self) -> None:
        """Return once everything is listed."""
        for reflector in self._reflectors:
            await reflector.synced.wait()
        await self._slice_watch.settled.wait()
        await self._node_pool_watch.settled.wait()

    @property
    def age_seconds(self) -> float:
        """Seconds since the quietest watch last heard from the API server; infinite before the first list."""
        return max(each.age_seconds for each in self._reflectors)

    @property
    def reachable(self) -> bool:
        """Whether no watch has an error now."""
        return all(each.last_error is None for each in self._reflectors)

    async def seen_by(
        self, caller: Caller, *, named: Sequence[str] = (), oldest: float = ALLOWED_SECONDS
    ) -> Visibility:
        """The namespaces whose GPUJobs the caller may see, by reviews of the last `oldest` seconds.

        The API server is asked about the namespaces that the request has `named`, those in which RoleBindings name the
        caller, and those of which an answer could show something. Raises `KubeError` and `CrowdedError`.
        """
        identity = await self._reviews.identities.of(caller, oldest=oldest)
        likely = [*named, *self._bindings.namespaces_of(identity)]
        return await self._reviews.visibility(caller, likely=likely, others=self._namespaces, oldest=oldest)

    @property
    def jobs(self) -> Mapping[str, GPUJob]:
        """All GPUJobs by `namespace/name`. A live view: it changes only while the caller awaits."""
        return self._jobs.store

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name. A live view."""
        return self._nodes.store

    @property
    def gpunodes(self) -> Mapping[str, GPUNode]:
        """All GPUNodes by name. A live view."""
        return self._gpunodes.store

    @property
    def quotas(self) -> Collection[GPUQuota]:
        """All GPUQuotas. A live view."""
        return self._quotas.store.values()

    @property
    def device_indexes(self) -> Mapping[int, NodeDevice]:
        """The devices by their numbers over the cluster, as the operator's ConfigMap has them."""
        return self._device_indexes

    def pods_on(self, node: str) -> Collection[Pod]:
        """The pods that are bound to a node. A live view."""
        return self._pods_on.get(node, {}).values()

    def pods_of(self, job: GPUJob) -> list[Pod]:
        """The pods of a job, also of its earlier attempts."""
        meta = job.metadata
        return [
            pod
            for pod in self._pods.store.values()
            if pod.metadata.namespace == meta.namespace
            and pod.metadata.labels.get(names.LABEL_JOB) == meta.name
            and not is_of_earlier_job(pod, number=job.status.number)
        ]

    def with_figures(self, job: GPUJob, *, now: datetime) -> GPUJob:
        """The job with the figures of its current run, which its status gets at the end of the run."""
        return _with_figures(job, pods_on=self._pods_on, gpunodes=self._gpunodes.store, now=now)

    def all_with_figures(self, *, now: datetime) -> Callable[[], list[GPUJob]]:
        """All jobs of this moment with these figures, for another thread to compute."""
        jobs, gpunodes = list(self._jobs.store.values()), dict(self._gpunodes.store)
        pods_on = {node: dict(pods) for node, pods in self._pods_on.items()}
        return lambda: [_with_figures(job, pods_on=pods_on, gpunodes=gpunodes, now=now) for job in jobs]

    def node_use(self, name: str) -> NodeUse | None:
        """A node with GPUs and who holds them; None for another node."""
        self._let_reports_age()
        if (known := self._node_uses.get(name)) is not None:
            return known
        gpunode = self._gpunodes.store.get(name)
        if gpunode is None:
            return None
        node = self._nodes.store.get(name)
        found = self._reader.node_use(gpunode, node=node, pods=self.pods_on(name), rack=self._rack_of(node))
        self._node_uses[name] = found
        return found

    def _rack_of(self, node: Node | None) -> str:
        """The node's rack by the configured levels of the network."""
        labels = {} if node is None else node.metadata.labels
        return next((labels.get(level.label, "") for level in self.settings.levels if level.name == RACK), "")

    def node_uses(self) -> list[NodeUse]:
        """All nodes with GPUs, by name."""
        self._let_reports_age()
        found = map(self.node_use, sorted(self._gpunodes.store))
        return [each for each in found if each is not None]

    def objects(self) -> ClusterObjects:
        """Everything at this moment, for `dovetail.query`."""
        return ClusterObjects(
            nodes=list(self._nodes.store.values()),
            gpunodes=list(self._gpunodes.store.values()),
            pods=list(self._pods.store.values()),
            jobs=list(self._jobs.store.values()),
            settings=self.settings,
            quotas=list(self._quotas.store.values()),
            slices=list(self._slices.values()),
            node_pools=list(self._node_pools.values()),
            batch_jobs=list(self._batch_jobs.store.values()),
            job_mix=self._mixes.get(QUEUE_CONFIGMAP),
            pod_mix=self._mixes.get(EXTENDER_CONFIGMAP),
            estimates=self._estimates,
        )

    async def until(self, key: str, *, holds: Callable[[GPUJob | None], bool], seconds: float) -> GPUJob | None:
        """The GPUJob once it is as asked, or as it is after `seconds`; None if there is none."""
        return await self._until(self._jobs, key=key, holds=holds, seconds=seconds)

    async def until_node(self, name: str, *, holds: Callable[[GPUNode | None], bool], seconds: float) -> GPUNode | None:
        """The GPUNode once it is as asked, or as it is after `seconds`; None if there is none."""
        return await self._until(self._gpunodes, key=name, holds=holds, seconds=seconds)

    async def _until(
        self, reflector: Reflector[T], *, key: str, holds: Callable[[T | None], bool], seconds: float
    ) -> T | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds(reflector.store.get(key)):
                    await self._next_change(key)
        return reflector.store.get(key)

    async def _next_change(self, key: str) -> None:
        changed = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(changed)
        try:
            await changed
        finally:
            waiting.discard(changed)
            if not waiting:
                self._waiting.pop(key, None)

    def take_changes(self) -> Changes:
        """What changed since this was last called."""
        self._let_reports_age()
        taken, self._changes = self._changes, Changes()
        return taken

    @property
    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return (
            self._nodes,
            self._gpunodes,
            self._pods,
            self._jobs,
            self._quotas,
            self._batch_jobs,
            *self._configmaps,
        )

    def _on_node(self, _event: EventType, node: Node) -> None:
        self._touch([node.metadata.name])

    def node_reader(self) -> NodeReader:
        """How nodes are read as of now: the freshness of their reports, and who else hands out their devices."""
        return NodeReader(
            freshness=self._freshness, drivers=drivers_now(self._slices.values()), vendors=self.settings.vendors
        )

    def _let_reports_age(self) -> None:
        """A silent agent makes no event: its node is read again once its report is too old."""
        self._touch(self._freshness.grown_old())

    def _on_gpunode(self, event: EventType, gpunode: GPUNode) -> None:
        name = gpunode.metadata.name
        self._touch([name])
        if event == "DELETED":
            self._freshness.forget(name)
        else:
            self._freshness.report(name, status=gpunode.status)
        self._wake(name)

    def _on_configmap(self, event: EventType, configmap: ConfigMap) -> None:
        self._version += 1
        data = {} if event == "DELETED" else configmap.data
        name = configmap.metadata.name
        if name == CONFIGMAP_NAME:
            self._device_indexes = read_indexes(data)
            return
        if name == names.ESTIMATES:
            self._estimates = data
            return
        self._mixes.pop(name, None)
        with suppress(UnreadableError):
            if (record := record_in(data)) is not None:
                self._mixes[name] = record

    def _on_pod(self, event: EventType, pod: Pod) -> None:
        # Also for a pod that waits: the queue counts it.
        self._version += 1
        key, before = key_of(pod.metadata), self._node_of.pop(key_of(pod.metadata), "")
        self._show(
            "pods", key=key, namespaces=[pod.metadata.namespace] if event != "DELETED" and _may_hold(pod) else ()
        )
        if before:
            del self._pods_on[before][key]
            if not self._pods_on[before]:
                del self._pods_on[before]
        now = "" if event == "DELETED" else pod.spec.node_name
        if now:
            self._pods_on[now][key] = pod
            self._node_of[key] = now
        self._touch({before, now} - {""})

    def _on_job(self, event: EventType, job: GPUJob) -> None:
        self._version += 1
        key = key_of(job.metadata)
        self._show("gpujobs", key=key, namespaces=() if event == "DELETED" else [job.metadata.namespace])
        self._changes.jobs.add(key)
        self._wake(key)

    def _wake(self, key: str) -> None:
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(None)

    def _on_other(self, _event: EventType, _subject: object) -> None:
        self._version += 1

    def _on_slice(self, event: EventType, found: ResourceSlice) -> None:
        self._version += 1
        if event == "DELETED":
            self._slices.pop(found.metadata.name, None)
        else:
            self._slices[found.metadata.name] = found
        self._reader = self.node_reader()
        self._touch(list(self._gpunodes.store))

    def _on_node_pool(self, event: EventType, pool: NodePool) -> None:
        self._version += 1
        if event == "DELETED":
            self._node_pools.pop(pool.metadata.name, None)
        else:
            self._node_pools[pool.metadata.name] = pool

    def _touch(self, nodes: Collection[str]) -> None:
        if not nodes:
            return
        self._version += 1
        for name in nodes:
            self._node_uses.pop(name, None)
            self._changes.nodes.add(name)

    def _on_quota(self, event: EventType, quota: GPUQuota) -> None:
        self._version += 1
        self._show("gpuquotas", key=quota.metadata.name, namespaces=() if event == "DELETED" else quota.spec.namespaces)

    def _show(self, kind: str, *, key: str, namespaces: Collection[str]) -> None:
        """Note of which namespaces an object shows something."""
        before = self._shown.pop((kind, key), frozenset())
        if namespaces:
            self._shown[kind, key] = frozenset(namespaces)
        self._namespaces.update(set(namespaces))
        for namespace in before:
            self._namespaces[namespace] -= 1
            if self._namespaces[namespace] <= 0:
                del self._namespaces[namespace]


def _with_figures(
    job: GPUJob, *, pods_on: Mapping[str, Mapping[str, Pod]], gpunodes: Mapping[str, GPUNode], now: datetime
) -> GPUJob:
    """`pods_on` are the pods by node and key."""
    pods = (
        pod
        for node in job.status.nodes
        for pod in pods_on.get(node, {}).values()
        if pod.metadata.namespace == job.metadata.namespace and job_of(pod) == job.metadata.name
    )
    return with_figures_so_far(job, pods=pods, gpunodes=gpunodes, now=now)


def _may_hold(pod: Pod) -> bool:
    """Whether the pod may hold devices: Dovetail promised it some, or it asks for an extended resource."""
    if names.ALLOCATION in pod.metadata.annotations:
        return True
    return any("/" in resource for each in pod.spec.containers for resource in each.resources.limits)
