"""The cluster's objects, read at one moment, and what follows from them alone. Pure."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api.builtin import Job, Node, Pod, ResourceSlice, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.karpenter import NodePool
from dovetail.api.meta import key_of
from dovetail.cluster.batch_jobs import inferred_batch_job
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.mix_record import MixRecord
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_child, is_guests
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.tenancy import job_it_was_of, run_of


@dataclass(frozen=True, kw_only=True)
class ClusterObjects:
    """The objects of the whole cluster."""

    nodes: Sequence[Node]
    gpunodes: Sequence[GPUNode]
    pods: Sequence[Pod]
    jobs: Sequence[GPUJob]
    # The configuration of the cluster's components.
    settings: Settings
    # None where the reader has no access: then limits are unknown.
    quotas: Sequence[GPUQuota] | None = ()
    # The slices of GPU vendors' DRA drivers; empty where the reader has no access.
    slices: Sequence[ResourceSlice] = ()
    # Karpenter's NodePools; empty without Karpenter, and where the reader has no access.
    node_pools: Sequence[NodePool] = ()
    # The batch Jobs with our label. None where the reader has no access: then status and pods imply them.
    batch_jobs: Sequence[Job] | None = None
    # What the queue's and the extender's prices have learned; None where nothing can be read.
    job_mix: MixRecord | None = None
    pod_mix: MixRecord | None = None
    # What the operator has learned of missed estimates, as its ConfigMap has it; empty where nothing can be read.
    estimates: Mapping[str, str] = field(default_factory=dict)

    def view(self) -> ClusterView:
        """Nodes, devices and what bound pods hold."""
        settings = self.settings
        ledger = Ledger(limits=settings.limits)
        view = ClusterView(ledger=ledger, vendors=settings.vendors, freshness=self.freshness())
        for each in self.slices:
            view.slice_changed(each)
        for node in self.nodes:
            view.node_changed(node)
        for gpunode in self.gpunodes:
            view.gpunode_changed(gpunode)
        view.pods_listed(self.pods)
        return view

    def freshness(self) -> Freshness:
        """A judge of the reports' ages by the settings, which has seen none of them yet."""
        return Freshness(max_age_seconds=self.settings.measurement_max_age, clock=time.monotonic)

    def pods_by_job(self) -> Mapping[str, Sequence[Pod]]:
        """The pods that provably belong to each GPUJob, by `namespace/name`.

        A label alone is not proof.
        """
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if (job := job_it_was_of(pod)) and run_of(pod):
                found.setdefault(f"{pod.metadata.namespace}/{job}", []).append(pod)
        return found

    def batch_job_of(self, jobs: Iterable[GPUJob]) -> Mapping[str, Job]:
        """Each job's own batch Job, by the GPUJob's UID; jobs without one are left out."""
        known = list(jobs)
        # A guest is no batch Job with the label by which those are read.
        unread = known if self.batch_jobs is None else [job for job in known if is_guests(job)]
        pods = self.pods_by_job() if unread else {}
        inferred = ((job, inferred_batch_job(job, pods=pods.get(key_of(job.metadata), ()))) for job in unread)
        found = {job.metadata.uid: child for job, child in inferred if child is not None}
        if self.batch_jobs is None:
            return found
        by_key = {key_of(child.metadata): child for child in self.batch_jobs}
        named = ((job, by_key.get(key_of(job.metadata))) for job in known)
        return found | {
            job.metadata.uid: child for job, child in named if child is not None and is_child(child, job=job)
        }

    def asks_of_pods(self) -> Iterator[tuple[str, Ask | None]]:
        """What each pod that has not ended requests, by UID, the oldest first.

        None for a pod that requests nothing of ours, or whose request cannot be read.
        """
        rankings = self.settings.rankings
        living = (pod for pod in self.pods if not is_terminated(pod))
        for pod in sorted(living, key=lambda pod: pod.metadata.creation_timestamp):
            ranking = rankings.of(pod.metadata.namespace)
            try:
                ask = ask_of_pod(pod, ranking=ranking, vendors=self.settings.vendors)
            except (RequestError, QuantityError):
                ask = None
            yield pod.metadata.uid, ask
