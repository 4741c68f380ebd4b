"""The store of observed objects and indexes over them. Only watch events change it. No I/O."""

import time
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

import msgspec

from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import NO_TEMPLATE, GPUJob, Measured
from dovetail.api.gpunode import GPUNode, TenantTotal
from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Claim
from dovetail.formats.durations import moment
from dovetail.jobs.batch_job import is_child
from dovetail.jobs.device_totals import combined
from dovetail.jobs.memory_use import Learning, peaks_in, with_peak
from dovetail.jobs.plan import with_carried
from dovetail.jobs.size_limits import JobLimits, refusal_of_job, without_bulk
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.reshaping.cards import Card, cards_of
from dovetail_operator.arrays.task_index import TaskIndex, parent_key
from dovetail_operator.devices.bad_devices import BadDevices
from dovetail_operator.devices.enforcement import Enforcements
from dovetail_operator.devices.idleness import reports_utilization
from dovetail_operator.devices.memory_overuse import Overuses
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.state.dependency_index import Dependencies
from dovetail_operator.state.pods import JobPods
from dovetail_operator.state.refused_pods import RefusedPods

# Agents report at least every 300 s. An older report does not show what a device does now.
_MAX_REPORT_AGE_SECONDS: Final = 660.0


@dataclass(slots=True)
class _Hold:
    """A device in the hands of a pod: utilization times seconds, seconds, and the last report with its time."""

    weighted: float = 0.0
    seconds: float = 0.0
    last: tuple[float, float] | None = None

    def count(self, *, until: float) -> None:
        if self.last is not None:
            value, since = self.last
            self.weighted += value * (until - since)
            self.seconds += until - since
            self.last = (value, until)

    def resume(self, total: TenantTotal) -> None:
        """Continue from what the agent has seen, if that is more: this process may have started later."""
        if total.seconds > self.seconds:
            self.weighted, self.seconds = total.mean_utilization * total.seconds, total.seconds


@dataclass(slots=True)
class _Job:
    """What the status had of ended runs when this process saw the job first, and each (pod, device) since."""

    before: Measured | None
    holds: dict[tuple[str, str], _Hold] = field(default_factory=dict)


class Utilization:
    """The mean utilization of each job's devices while it ran, by its UID. `clock` is monotonic, in seconds.

    A report counts until the next one. The job's status has the mean so far, and a restarted operator continues from
    it. Only what came after the last status write is lost.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, _Job] = {}

    def reported(self, gpunode: GPUNode, *, claims: Iterable[Claim], jobs: Mapping[str, GPUJob]) -> None:
        """Add an agent's report.

        `claims` are those on its node, `jobs` the GPUJobs by their pods' UIDs.
        """
        now = self._clock()
        devices = {device.uuid: device for device in gpunode.status.devices}
        for claim in claims:
            job = jobs.get(claim.key)
            if job is None:
                continue
            known = self._jobs.setdefault(job.metadata.uid, _Job(job.status.measured))
            for uuid in (device.uuid for device in claim.devices):
                hold = known.holds.setdefault((claim.key, uuid), _Hold())
                hold.count(until=now)
                device = devices.get(uuid)
                hold.last = None if device is None else (device.utilization, now)
                for total in () if device is None else device.totals:
                    if total.uid == claim.key:
                        hold.resume(total)

    def measure(self, job: GPUJob, *, running: bool) -> Measured | None:
        """The mean utilization (0-1) so far. Once the pods have ended, nothing more is added."""
        known = self._jobs.get(job.metadata.uid)
        if known is None:
            return job.status.measured
        now = self._clock()
        weighted = seconds = 0.0
        for hold in known.holds.values():
            hold.count(until=now)
            if not running:
                hold.last = None
            weighted += hold.weighted
            seconds += hold.seconds
        if seconds <= 0:
            return job.status.measured
        total = TenantTotal(uid="", mean_utilization=min(1.0, max(0.0, weighted / seconds)), seconds=seconds)
        return combined(known.before, totals=[total])

    def drop(self, job: GPUJob) -> None:
        """Drop a deleted job."""
        self._jobs.pop(job.metadata.uid, None)


class Footprint:
    """Reduces jobs before they are stored: versions share a template, and jobs that exceed a limit have none."""

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        # By UID: the generation that exceeds a limit, and the message.
        self._refused: dict[str, tuple[int, str]] = {}

    def lean(self, job: GPUJob, *, known: GPUJob | None) -> GPUJob:
        """The job in its stored form. `known` is the version that is stored under its name.

        Each status update brings the template again: versions with an equal template share one copy.
        """
        if known is None or not _is_same_spec(job.metadata, known=known.metadata):
            self._judge(job)
        if self.refusal_of(job) is not None:
            return _stripped(job)
        return job if known is None else _sharing(job, known=known)

    def refusal_of(self, job: GPUJob) -> str | None:
        """Why this generation of the job exceeds the limits; None if it does not."""
        generation, refusal = self._refused.get(job.metadata.uid, (0, None))
        return refusal if generation == job.metadata.generation else None

    def forget(self, uid: str) -> None:
        """Drop a deleted job."""
        self._refused.pop(uid, None)

    def _judge(self, job: GPUJob) -> None:
        if self.refusal_of(job) is not None:
            # The watch has stripped the job already before the store receives it.
            return
        self.forget(job.metadata.uid)
        if (refusal := refusal_of_job(job, limits=self._limits)) is not None:
            self._refused[job.metadata.uid] = (job.metadata.generation, refusal.message)


def _is_same_spec(new: ObjectMeta, *, known: ObjectMeta) -> bool:
    # The API server increments the generation with each change of the spec.
    return (new.uid, new.generation) == (known.uid, known.generation)


def _sharing(job: GPUJob, *, known: GPUJob) -> GPUJob:
    new, old = job.spec.template, known.spec.template
    if new is old or bytes(new.spec) != bytes(old.spec) or new.metadata != old.metadata:
        return job
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=old))


def _stripped(job: GPUJob) -> GPUJob:
    spec = msgspec.structs.replace(job.spec, template=NO_TEMPLATE)
    return msgspec.structs.replace(job, spec=spec, metadata=without_bulk(job.metadata))


class JobFollower(Protocol):
    """Receives each version and each deletion of a GPUJob from the store."""

    def observe(self, job: GPUJob) -> None:
        """Take a new version of a GPUJob."""

    def drop(self, job: GPUJob) -> None:
        """Take the deletion of a GPUJob. `job` is its last version."""


class Store:
    """GPUJobs, batch Jobs with our label, pods, nodes and quotas.

    Keys are the GPUJob's `namespace/name`.

    The `controller` package passes every watch event to it and is its only writer. Any module may read.
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
        # Those of the jobs that run, have run or were preempted: of thousands that wait, few.
        self.jobs_that_ran: dict[str, GPUJob] = {}
        # Those that count for others without any quota: in a group, or never to be ended for another one.
        self.jobs_that_count: dict[str, GPUJob] = {}
        self.pods = JobPods()
        self.refused_pods = RefusedPods()
        self.tasks = TaskIndex()
        self.dependencies = Dependencies(self.jobs)
        self.learning = learning or Learning()
        self.expectations = Expectations()
        self.measured = Utilization()
        self.bad_cards = BadDevices()
        self.overuses = Overuses(endings or EndingRules())
        self.enforcements = Enforcements()
        self.footprint = Footprint(job_limits or JobLimits())
        self._followers: list[JobFollower] = [self.learning, self.expectations, self.dependencies, self.tasks]
        self._children: dict[str, Job] = {}
        # As the API server has them: the jobs whose plan is in their batch Job and not in their status yet.
        self._written: dict[str, GPUJob] = {}
        # Why the newest version of a job cannot be read, by UID. `jobs` has the previous version.
        self._unreadable: dict[str, str] = {}
        self._gpunodes: dict[str, GPUNode] = {}
        # GPUs in MIG mode that their agents can partition again, by node.
        self.cards: dict[str, tuple[Card, ...]] = {}
        # By `namespace/name`.
        self.budgets: dict[str, PodDisruptionBudget] = {}
        # The GPUNodes with requests to partition GPUs again, by node.
        self.reshaped: dict[str, GPUNode] = {}

    def follow(self, follower: JobFollower) -> None:
        """Pass every version and every deletion of a GPUJob to `follower` from now on."""
        self._followers.append(follower)

    # --- events ------------------------------------------------------------------------------------------------

    def lean(self, job: GPUJob) -> GPUJob:
        """The job without the parts that the operator does not keep.

        Versions share an equal template.
        """
        return self.footprint.lean(job, known=self.jobs.get(key_of(job.metadata)))

    def job_changed(self, job: GPUJob) -> bool:
        """Store a GPUJob. False if it is not newer than the stored version."""
        key, job = key_of(job.metadata), self.lean(job)
        known = self.jobs.get(key)
        if known is not None and not is_newer(job.metadata, known=known.metadata):
            return False
        if known is not None and known.metadata.uid != job.metadata.uid:
            self._forget(known)
        self._unreadable.pop(job.metadata.uid, None)
        self._put(key, job=job)
        return True

    def _put(self, key: str, *, job: GPUJob) -> None:
        """Store a version of a job, with the plan that its batch Job carries."""
        written, child = job, self.child_of(job)
        self._written.pop(key, None)
        if child is not None and (job := with_carried(written, child=child)) is not written:
            self._written[key] = written
        self.jobs[key] = job
        has_run = job.status.start_time is not None or job.status.preemption is not None
        counts = bool(job.spec.group) or not job.spec.preemptible
        for index, belongs in ((self.jobs_that_ran, has_run), (self.jobs_that_count, counts)):
            if belongs:
                index[key] = job
            else:
                index.pop(key, None)
        for follower in self._followers:
            follower.observe(job)

    def job_unreadable(self, meta: ObjectMeta, *, message: str) -> bool:
        """Record that the newest version of a GPUJob cannot be read. False if no version is stored."""
        known = self.jobs.get(key_of(meta))
        if known is None or known.metadata.uid != meta.uid:
            return False
        self._unreadable[meta.uid] = message
        return True

    def job_deleted(self, key: str, *, uid: str) -> None:
        """Remove a deleted GPUJob. A job with the same name and another UID stays."""
        known = self.jobs.get(key)
        if known is not None and known.metadata.uid == uid:
            del self.jobs[key]
            self._written.pop(key, None)
            self.jobs_that_ran.pop(key, None)
            self.jobs_that_count.pop(key, None)
            self._forget(self._with_figures(known))

    def child_changed(self, child: Job) -> None:
        """Store a batch Job, unless the stored version is newer.

        What a guest's record sees of it may change without a new version: its workers also follow from its pods.
        """
        key = key_of(child.metadata)
        known = self._children.get(key)
        if known is None or (child != known and not is_newer(known.metadata, known=child.metadata)):
            self._children[key] = child
            self._take_plan(key)

    def child_event(self, type_: EventType, child: Job) -> str:
        """Record an event of a batch Job with our label. Returns the key of its GPUJob."""
        key = key_of(child.metadata)
        if type_ != "DELETED":
            self.child_changed(child)
        elif key in self._children and self._children[key].metadata.uid == child.metadata.uid:
            del self._children[key]
            self._take_plan(key)
        return key

    def _take_plan(self, key: str) -> None:
        """Store a job again whose plan may have come or gone with its batch Job."""
        written = self._written.get(key) or self.jobs.get(key)
        if written is not None and not written.status.plans:
            self._put(key, job=written)

    def pod_event(self, type_: EventType, pod: Pod) -> str | None:
        """Record a pod event. Returns the key of the pod's GPUJob, None for a pod of no GPUJob."""
        if type_ == "DELETED":
            self.view.pod_gone(pod)
            self.quotas.pod_gone(pod.metadata.uid)
        else:
            self.view.pod_changed(pod)
            self.quotas.pod_changed(pod, ledger=self.view.ledger)
        key = self.pods.changed(type_, pod=pod)
        node = self._gpunodes.get(pod.spec.node_name)
        if key is not None and type_ != "DELETED":
            self.pods.note_given([pod.metadata.uid], ledger=self.view.ledger)
            if node is not None:
                # The node's agent may have reported the pod's memory before this event arrived.
                self._measure(node)
        return key

    def budget_event(self, type_: EventType, budget: PodDisruptionBudget) -> None:
        """Record an event of a PodDisruptionBudget."""
        if type_ == "DELETED":
            self.budgets.pop(key_of(budget.metadata), None)
        else:
            self.budgets[key_of(budget.metadata)] = budget

    def budgets_of(self, namespace: str) -> list[PodDisruptionBudget]:
        """The PodDisruptionBudgets of a namespace."""
        return [each for each in self.budgets.values() if each.metadata.namespace == namespace]

    def gpunode_changed(self, gpunode: GPUNode) -> list[str]:
        """Store a GPUNode. Returns the keys of the GPUJobs that the report changes something for."""
        self._gpunodes[gpunode.metadata.name] = gpunode
        self.cards[gpunode.metadata.name] = cards_of(gpunode)
        if gpunode.spec.reshape:
            self.reshaped[gpunode.metadata.name] = gpunode
        else:
            self.reshaped.pop(gpunode.metadata.name, None)
        given = self.view.gpunode_changed(gpunode)
        self.quotas.devices_changed(gpunode.metadata.name, ledger=self.view.ledger)
        self.pods.note_given(given, ledger=self.view.ledger)
        uids = {*given, *self._holders_of(self.bad_cards.changed(gpunode), node=gpunode.metadata.name)}
        uids |= self.overuses.changed(gpunode)
        if self.enforcements.changed(gpunode):
            every = {device.uuid for device in gpunode.status.devices}
            uids |= set(self._holders_of(every, node=gpunode.metadata.name))
        jobs = [key for uid in uids if (key := self.pods.job_of(uid)) is not None]
        return list(dict.fromkeys([*jobs, *self._measure(gpunode)]))

    def gpunode_deleted(self, name: str) -> None:
        """Remove a deleted GPUNode."""
        self._gpunodes.pop(name, None)
        self.cards.pop(name, None)
        self.reshaped.pop(name, None)
        self.bad_cards.gone(name)
        self.overuses.gone(name)
        self.enforcements.gone(name)
        self.view.gpunode_gone(name)
        self.quotas.devices_changed(name, ledger=self.view.ledger)

    def node_changed(self, node: Node) -> None:
        """Store a Node. Without an agent, its labels say which devices it has."""
        self.view.node_changed(node)
        self.quotas.devices_changed(node.metadata.name, ledger=self.view.ledger)

    # --- reading -----------------------------------------------------------------------------------------------

    def gpunode(self, name: str) -> GPUNode | None:
        """The GPUNode of a node."""
        return self._gpunodes.get(name)

    def children(self) -> Iterator[Job]:
        """The batch Jobs that belong to their GPUJobs."""
        for key, child in self._children.items():
            job = self.jobs.get(key)
            if job is not None and is_child(child, job=job):
                yield child

    def child_named(self, key: str) -> Job | None:
        """The batch Job with this key, whether or not it belongs to the GPUJob with this key."""
        return self._children.get(key)

    def child_of(self, job: GPUJob) -> Job | None:
        """The job's own batch Job; None if it has none, or its name belongs to another owner."""
        child = self.child_named(key_of(job.metadata))
        return child if child is not None and is_child(child, job=job) else None

    @property
    def keys_of_children(self) -> KeysView[str]:
        """The keys of all batch Jobs with our label."""
        return self._children.keys()

    @property
    def unreadable(self) -> KeysView[str]:
        """The UIDs of the GPUJobs whose newest version cannot be read."""
        return self._unreadable.keys()

    def unreadable_message(self, uid: str) -> str | None:
        """Why the newest version of a GPUJob cannot be read; None if it was read."""
        return self._unreadable.get(uid)

    def is_unreadable(self, key: str) -> bool:
        """Whether the API server has a newer version of this GPUJob that cannot be read."""
        known = self.jobs.get(key)
        return known is not None and known.metadata.uid in self._unreadable

    def is_unnoted_task(self, job: GPUJob) -> bool:
        """Whether the job is a task whose end is not yet in its array's status."""
        parent = self.jobs.get(parent_key(job) or "")
        return parent is not None and self.tasks.is_unnoted(job, parent=parent)

    def is_of_a_job(self, uid: str) -> bool:
        """Whether this pod belongs to a GPUJob's own batch Job, so that evicting it ends the GPUJob."""
        job = self._job_of_pod(uid)
        return job is not None and any(pod.metadata.uid == uid for pod in self.pods.pods_of(self.child_of(job)))

    def utilization_of(self, job: GPUJob, *, now: datetime) -> float | None:
        """Utilization (0-1) of the job's busiest device; None if a device has no recent measurement."""
        found = []
        for held in job.status.devices:
            status = getattr(self._gpunodes.get(held.node), "status", None)
            if status is None or not status.observed_at:
                return None
            if (now - moment(status.observed_at)).total_seconds() > _MAX_REPORT_AGE_SECONDS:
                return None
            (device,) = [each for each in status.devices if each.uuid == held.uuid] or [None]
            if device is None or not reports_utilization(device):
                return None
            found.append(device.utilization)
        return max(found, default=None)

    def _job_of_pod(self, uid: str) -> GPUJob | None:
        return self.jobs.get(self.pods.job_of(uid) or "")

    def _holders_of(self, uuids: set[str], *, node: str) -> list[str]:
        """UIDs of the pods that hold one of these devices on a node."""
        claims = self.view.ledger.claims_on(node) if uuids else ()
        return [claim.key for claim in claims if any(device.uuid in uuids for device in claim.devices)]

    def _measure(self, gpunode: GPUNode) -> list[str]:
        """Add a report to the jobs' measurements. Returns the keys of jobs with a new memory peak."""
        claims = list(self.view.ledger.claims_on(gpunode.metadata.name))
        owners = {claim.key: self._job_of_pod(claim.key) for claim in claims}
        self.measured.reported(gpunode, claims=claims, jobs={uid: job for uid, job in owners.items() if job})
        jobs = ((self._job_of_pod(uid), peak) for uid, peak in peaks_in(gpunode, claims=claims))
        return [
            key_of(job.metadata) for job, peak in jobs if job is not None and self.learning.measured(job, peak=peak)
        ]

    def _with_figures(self, job: GPUJob) -> GPUJob:
        """The job with what was measured of its last run: its status has that only after an end."""
        if job.status.phase != "Running":
            return job
        memory = with_peak(job, mib=self.learning.peak_of(job))
        status = msgspec.structs.replace(job.status, measured=self.measured.measure(job, running=False), memory=memory)
        return msgspec.structs.replace(job, status=status)

    def _forget(self, job: GPUJob) -> None:
        self.footprint.forget(job.metadata.uid)
        self.measured.drop(job)
        self._unreadable.pop(job.metadata.uid, None)
        for follower in self._followers:
            follower.drop(job)


def is_newer(new: ObjectMeta, *, known: ObjectMeta) -> bool:
    """Whether `new` is a later version of the object than `known`."""
    # KEP-5504: versions of one resource compare as numbers. Lists and watches may deliver them out of order.
    return int(new.resource_version) > int(known.resource_version)
