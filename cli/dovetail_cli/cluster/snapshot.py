"""The whole cluster as it is now: its objects, read side by side, and the view of them that the engine judges by."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dovetail import names
from dovetail.api.builtin import Node, Pod, ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import key_of
from dovetail.api.resources import GPUNODES, GPUQUOTAS, NODES, PODS, Resource
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.request import RequestError
from dovetail.jobs.plan import nodes_by_worker, worker_of_plan
from dovetail.jobs.runs import workers_of
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.resource_slices import list_slices
from dovetail.pods.alternatives import asks_by_kind
from dovetail.pods.demand import ask_of_job, ask_of_pod, estimated, written_spec
from dovetail.queue.limits.pools import pools_of
from dovetail.queue.limits.quotas import spec_in_pools, subject_of
from dovetail.queue.model.candidates import Candidate, claim_on_the_way, way_of
from dovetail_cli.cluster.configuration import settings_of
from dovetail_cli.cluster.connection import Cluster, read_jobs
from dovetail_cli.ui.errors import MissingError
from dovetail_cli.ui.progress import Say

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What was read. `quotas` are None where the user may not see them: nothing is known of limits then.

    `slices` are those of GPU vendors' DRA drivers, none where the user may not see them.
    """

    nodes: Sequence[Node]
    gpunodes: Sequence[GPUNode]
    pods: Sequence[Pod]
    jobs: Sequence[GPUJob]
    settings: Settings
    quotas: Sequence[GPUQuota] | None = ()
    slices: Sequence[ResourceSlice] = ()

    def view(self) -> ClusterView:
        """Nodes, devices and what bound pods hold."""
        settings = self.settings
        ledger = Ledger(limits=settings.limits, weights=settings.weights)
        freshness = Freshness(max_age_seconds=settings.measurement_max_age, clock=time.monotonic)
        view = ClusterView(ledger=ledger, vendors=settings.vendors, freshness=freshness)
        for each in self.slices:
            view.slice_changed(each)
        for node in self.nodes:
            view.node_changed(node)
        for gpunode in self.gpunodes:
            view.gpunode_changed(gpunode)
        for pod in self.pods:
            view.pod_changed(pod)
        return view

    def pods_by_job(self) -> Mapping[str, Sequence[Pod]]:
        """The pods of each GPUJob, by `namespace/name`."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if job := pod.metadata.labels.get(names.LABEL_JOB):
                found.setdefault(f"{pod.metadata.namespace}/{job}", []).append(pod)
        return found


async def take(cluster: Cluster, *, say: Say) -> Picture:
    """Read it all. Raises `MissingError` where Dovetail is not installed."""
    counts: dict[str, int] = {}

    def noted(kind: str, more: int) -> None:
        counts[kind] = counts.get(kind, 0) + more
        say("Reading " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) + " …")

    async def read(resource: Resource, as_type: type[T]) -> list[T]:
        items: list[T] = []
        async for page in cluster.client.pages(resource, as_type=as_type):
            items += page.items or ()
            noted(resource.plural, len(page.items or ()))
        return items

    try:
        # Pods first, as the audit does: a device that is reported later than the pod that holds it is none too few.
        pods = await read(PODS, Pod)
        nodes, gpunodes, jobs, settings, quotas, slices = await asyncio.gather(
            read(NODES, Node),
            read(GPUNODES, GPUNode),
            read_jobs(cluster),
            settings_of(cluster),
            _quotas_of(cluster),
            _slices_of(cluster),
        )
    except NotFound as error:
        raise MissingError("this cluster has no GPUNodes: install Dovetail's chart, or name another cluster") from error
    return Picture(
        nodes=nodes, gpunodes=gpunodes, pods=pods, jobs=jobs, settings=settings, quotas=quotas, slices=slices
    )


async def _quotas_of(cluster: Cluster) -> list[GPUQuota] | None:
    try:
        return list((await cluster.client.list(GPUQUOTAS, as_type=GPUQuota)).items)
    except Forbidden:
        return None


async def _slices_of(cluster: Cluster) -> list[ResourceSlice]:
    try:
        return await list_slices(cluster.client, drivers=names.GPU_DRIVERS)
    except Forbidden:
        return []


def asks_of_pods(pods: Iterable[Pod], *, settings: Settings) -> Iterator[tuple[str, Ask | None]]:
    """What each pod asks that has not ended, by UID and in the order in which they were made; None where that is
    nothing of ours, or cannot be read."""
    living = (pod for pod in pods if pod.status.phase not in {"Succeeded", "Failed"})
    for pod in sorted(living, key=lambda pod: pod.metadata.creation_timestamp):
        policy = settings.policy_in(pod.metadata.namespace)
        try:
            ask = ask_of_pod(pod, default_policy=policy, vendors=settings.vendors)
        except (RequestError, QuantityError):
            ask = None
        yield pod.metadata.uid, ask


def claim_for_starting(picture: Picture, view: ClusterView, *, but: str = "") -> Mapping[str, GPUJob]:
    """Set room aside in the view for workers that were admitted and have no node yet, as the queue does.

    `but` is the UID of a job that is left out. Returns the job of each claim that was made.
    """
    candidates, sites, starting = [], {}, {}
    pods_of = picture.pods_by_job()
    for job in picture.jobs:
        uid = job.metadata.uid
        missing = workers_without_node(job, pods_of.get(key_of(job.metadata), ()))
        if job.status.phase != "Starting" or uid == but or not missing:
            continue
        if job.status.tasks is not None or job.status.device == "cpu":
            # The tasks of an array are jobs of their own; and what runs on the CPU holds no device.
            continue
        try:
            ask = ask_of_job(job, default_policy=picture.settings.policy_in(job.metadata.namespace))
            ask = estimated(ask, use=job.status.memory)
        except RequestError:
            continue
        sites[uid] = its_nodes(job, picture=picture, view=view)
        ask = in_one_way(ask, workers=missing, nodes=sites[uid], view=view)
        starting.update({f"{uid}/{worker}": job for worker in range(missing)})
        candidates.append(
            Candidate(
                key=uid,
                ask=ask,
                workers=missing,
                priority=job.spec.priority,
                created=job.metadata.creation_timestamp,
                name=key_of(job.metadata),
                site=uid,
                nodes=_planned_nodes(job, pods=pods_of.get(key_of(job.metadata), ()), workers=missing),
            )
        )
    claim_on_the_way(candidates, ledger=view.ledger, sites=sites)
    return starting


def _planned_nodes(job: GPUJob, *, pods: Sequence[Pod], workers: int) -> tuple[str, ...]:
    """The nodes of the plan that wait for a worker yet; empty where nothing is planned."""
    placement = job.status.placement
    if placement is None:
        return ()
    bound = {said.worker for pod in pods if pod.spec.node_name and (said := worker_of_plan(pod)) is not None}
    left = [node for worker, node in enumerate(nodes_by_worker(placement)) if worker not in bound]
    return tuple(left[:workers])


def its_nodes(job: GPUJob, *, picture: Picture, view: ClusterView) -> list[str]:
    """The nodes that the job's pods may go to: in the pools that it asks for, or that its quotas keep it to."""
    pools = pools_of(picture.quotas or (), subject_of(job), asked=job.spec.pool)
    return view.eligible_nodes(spec_in_pools(written_spec(job), pools))


def in_one_way(ask: Ask, *, workers: int, nodes: Sequence[str], view: ClusterView) -> Ask:
    """A job's ask in the way in which the queue would meet it: on managed nodes or by a vendor's plugin."""
    try:
        first, *others = asks_by_kind(ask, vendors=view.vendors)
    except RequestError:
        return ask
    job = Candidate(key="", ask=first, others=tuple(others), workers=workers, site="its")
    return way_of(job, ledger=view.ledger, sites={"its": nodes})


def workers_without_node(job: GPUJob, pods: Sequence[Pod]) -> int:
    """How many of a job's workers have no pod that is bound."""
    bound = sum(bool(pod.spec.node_name) and pod.status.phase != "Failed" for pod in pods)
    return max(0, workers_of(job) - max(bound, job.status.workers_succeeded))
