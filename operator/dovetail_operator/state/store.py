"""The store of what was observed: objects and indexes over them. Watch events alone change it. No I/O."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.cluster.view import ClusterView
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import is_child
from dovetail.jobs.memory_use import Learning, peaks_in
from dovetail.jobs.size_limits import JobLimits
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.limits.quotas import Quotas
from dovetail_operator.arrays.task_index import TaskIndex, parent_key
from dovetail_operator.devices.bad_devices import BadCards
from dovetail_operator.devices.enforcement import Enforcements
from dovetail_operator.devices.idleness import tells_utilization
from dovetail_operator.devices.memory_overuse import Overuses
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.footprint import Footprint
from dovetail_operator.learning.utilization import Utilization
from dovetail_operator.state.dependency_index import Dependencies
from dovetail_operator.state.pods import JobPods
from dovetail_operator.state.refused_pods import RefusedPods

# Agents report every 300 s at least: an older report does not say what a device does now.
_MAX_REPORT_AGE_SECONDS: Final = 660.0


class JobFollower(Protocol):
    """Follows GPUJobs as the store observes them."""

    def put(self, job: GPUJob) -> None:
        """A version of a GPUJob was observed."""

    def drop(self, job: GPUJob) -> None:
        """A GPUJob's object is deleted; `job` is its last version."""


class Store:
    """GPUJobs, the batch Jobs that carry our label, pods, nodes and quotas, by `namespace/name` of the GPUJob.

    The `controller` package feeds it every watch event, and nothing else writes to it. Everybody may read.
    """

    def __init__(
        self,
        view: ClusterView,
        *,
        learning: Learning | None = None,
        quotas: Quotas | None = None,
        endings: EndingRules | None = None,
        job_limits: JobLimits | None = None,
    ) -> None:
        self.view = view
        self.quotas = quotas or Quotas()
        self.jobs: dict[str, GPUJob] = {}
        self.pods = JobPods()
        self.refused_pods = RefusedPods()
        self.tasks = TaskIndex()
        self.dependencies = Dependencies(self.jobs)
        self.learning = learning or Learning()
        self.expectations = Expectations()
        self.measured = Utilization()
        self.bad_cards = BadCards()
        self.overuses = Overuses(endings or EndingRules())
        self.enforcements = Enforcements()
        self.footprint = Footprint(job_limits or JobLimits())
        self._followers: list[JobFollower] = [self.learning, self.expectations, self.dependencies, self.tasks]
        self._children: dict[str, Job] = {}
        # Why the newest version of a job cannot be read, by UID. `jobs` has the version before.
        self._unreadable: dict[str, str] = {}
        self._gpunodes: dict[str, GPUNode] = {}

    def follow(self, follower: JobFollower) -> None:
        """Tell `follower` every version and every deletion of a GPUJob from now on."""
        self._followers.append(follower)

    # --- events ------------------------------------------------------------------------------------------------

    def lean(self, job: GPUJob) -> GPUJob:
        """The job without what the operator does not keep; versions with the same template share it."""
        return self.footprint.lean(job, known=self.jobs.get(key_of(job.metadata)))

    def job_changed(self, job: GPUJob) -> bool:
        """Store a GPUJob; False for one that is older than the known one, or the same."""
        key, job = key_of(job.metadata), self.lean(job)
        known = self.jobs.get(key)
        if known is not None and not is_newer(job.metadata, known.metadata):
            return False
        if known is not None and known.metadata.uid != job.metadata.uid:
            self._forget(known)
        self.jobs[key] = job
        self._unreadable.pop(job.metadata.uid, None)
        for follower in self._followers:
            follower.put(job)
        return True

    def job_unreadable(self, meta: ObjectMeta, *, message: str) -> bool:
        """The newest version of a GPUJob cannot be read. False for a job of which no version was read."""
        known = self.jobs.get(key_of(meta))
        if known is None or known.metadata.uid != meta.uid:
            return False
        self._unreadable[meta.uid] = message
        return True

    def job_deleted(self, key: str, *, uid: str) -> None:
        """A GPUJob is deleted; one of the same name with another UID stays."""
        known = self.jobs.get(key)
        if known is not None and known.metadata.uid == uid:
            del self.jobs[key]
            self._forget(known)

    def child_changed(self, child: Job) -> None:
        """Store a batch Job, unless the known one is newer."""
        key = key_of(child.metadata)
        known = self._children.get(key)
        if known is None or is_newer(child.metadata, known.metadata):
            self._children[key] = child

    def child_event(self, type_: EventType, child: Job) -> str:
        """A batch Job with our label has changed; the key of its GPUJob."""
        key = key_of(child.metadata)
        if type_ != "DELETED":
            self.child_changed(child)
        elif key in self._children and self._children[key].metadata.uid == child.metadata.uid:
            del self._children[key]
        return key

    def pod_event(self, type_: EventType, pod: Pod) -> str | None:
        """A pod has changed; the key of its GPUJob, None for a pod of none."""
        if type_ == "DELETED":
            self.view.pod_gone(pod)
            self.quotas.pod_gone(pod.metadata.uid)
        else:
            self.view.pod_changed(pod)
            self.quotas.pod_changed(pod, ledger=self.view.ledger)
        key = self.pods.changed(type_, pod)
        node = self._gpunodes.get(pod.spec.node_name)
        if key is not None and type_ != "DELETED":
            self.pods.note_given([pod.metadata.uid], ledger=self.view.ledger)
            if node is not None:
                # The node's agent may have reported the pod's memory before this event.
                self._measure(node)
        return key

    def gpunode_changed(self, gpunode: GPUNode) -> list[str]:
        """A GPUNode has changed; the keys of the GPUJobs that the report has news about."""
        self._gpunodes[gpunode.metadata.name] = gpunode
        given = self.view.gpunode_changed(gpunode)
        self.pods.note_given(given, ledger=self.view.ledger)
        uids = {*given, *self._holders_of(self.bad_cards.changed(gpunode), node=gpunode.metadata.name)}
        uids |= self.overuses.changed(gpunode)
        if self.enforcements.changed(gpunode):
            every = {device.uuid for device in gpunode.status.devices}
            uids |= set(self._holders_of(every, node=gpunode.metadata.name))
        jobs = [key for uid in uids if (key := self.pods.job_of(uid)) is not None]
        return list(dict.fromkeys([*jobs, *self._measure(gpunode)]))

    def gpunode_deleted(self, name: str) -> None:
        """A GPUNode is deleted."""
        self._gpunodes.pop(name, None)
        self.bad_cards.gone(name)
        self.overuses.gone(name)
        self.enforcements.gone(name)
        self.view.gpunode_gone(name)

    # --- reading -----------------------------------------------------------------------------------------------

    def children(self) -> Iterator[Job]:
        """The batch Jobs that belong to their GPUJobs."""
        for key, child in self._children.items():
            job = self.jobs.get(key)
            if job is not None and is_child(child, job=job):
                yield child

    def child_named(self, key: str) -> Job | None:
        """The batch Job of that name, whether or not it belongs to the GPUJob of that name."""
        return self._children.get(key)

    def child_of(self, job: GPUJob) -> Job | None:
        """The job's own batch Job; None also where the batch Job of its name belongs to something else."""
        child = self.child_named(key_of(job.metadata))
        return child if child is not None and is_child(child, job=job) else None

    def unreadable_message(self, uid: str) -> str | None:
        """Why the newest version of a GPUJob cannot be read; None where it was read."""
        return self._unreadable.get(uid)

    def is_unreadable(self, key: str) -> bool:
        """Whether the API server has a version of this GPUJob that cannot be read, newer than the known one."""
        known = self.jobs.get(key)
        return known is not None and known.metadata.uid in self._unreadable

    def is_unnoted_task(self, job: GPUJob) -> bool:
        """Whether the job is a task whose end its array's status does not show yet."""
        parent = self.jobs.get(parent_key(job) or "")
        return parent is not None and self.tasks.is_unnoted(job, parent=parent)

    def is_of_a_job(self, uid: str) -> bool:
        """Whether this pod belongs to a GPUJob's own batch Job, so that the GPUJob ends when the pod has to."""
        job = self._job_of_pod(uid)
        return job is not None and any(pod.metadata.uid == uid for pod in self.pods.of(self.child_of(job)))

    def utilization_of(self, job: GPUJob, *, now: datetime) -> float | None:
        """Utilization (0-1) of the job's busiest device; None where a device has no fresh measurement."""
        found = []
        for held in job.status.devices:
            status = getattr(self._gpunodes.get(held.node), "status", None)
            if status is None or not status.observed_at:
                return None
            if (now - moment(status.observed_at)).total_seconds() > _MAX_REPORT_AGE_SECONDS:
                return None
            (device,) = [each for each in status.devices if each.uuid == held.uuid] or [None]
            if device is None or not tells_utilization(device):
                return None
            found.append(device.utilization)
        return max(found, default=None)

    def _job_of_pod(self, uid: str) -> GPUJob | None:
        return self.jobs.get(self.pods.job_of(uid) or "")

    def _holders_of(self, uuids: set[str], *, node: str) -> list[str]:
        """UIDs of the pods that hold one of these devices of a node."""
        claims = self.view.ledger.claims_on(node) if uuids else ()
        return [claim.key for claim in claims if any(device.uuid in uuids for device in claim.devices)]

    def _measure(self, gpunode: GPUNode) -> list[str]:
        """Add a report to what jobs have used; the keys of jobs with a new memory peak."""
        claims = list(self.view.ledger.claims_on(gpunode.metadata.name))
        owners = {claim.key: self._job_of_pod(claim.key) for claim in claims}
        self.measured.reported(gpunode, claims=claims, jobs={uid: job for uid, job in owners.items() if job})
        jobs = ((self._job_of_pod(uid), peak) for uid, peak in peaks_in(gpunode, claims=claims))
        return [key_of(job.metadata) for job, peak in jobs if job is not None and self.learning.measured(job, peak)]

    def _forget(self, job: GPUJob) -> None:
        self.footprint.forget(job.metadata.uid)
        self.measured.drop(job)
        self._unreadable.pop(job.metadata.uid, None)
        for follower in self._followers:
            follower.drop(job)


def is_newer(new: ObjectMeta, known: ObjectMeta) -> bool:
    """Whether an object is a later version than the known one."""
    # KEP-5504: versions of one resource compare as numbers. Lists and streams may arrive out of order.
    return int(new.resource_version) > int(known.resource_version)
