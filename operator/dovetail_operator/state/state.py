"""All that the operator knows of the cluster, in memory and derived from the API server's objects alone. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, MemoryUse, Policy
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import GUARD_FRACTIONS, Ask
from dovetail.formats.durations import moment
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_child, is_ours, is_parent, wants_admission
from dovetail.jobs.memory_use import Learning, peaks_in
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.size_limits import JobLimits
from dovetail.jobs.start_times import resting, too_early
from dovetail.pods.alternatives import asks_by_kind
from dovetail.pods.demand import ask_of_job, estimated
from dovetail.queue.estimates.expectations import Expectations
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.inputs.ways import fell_back, on_cpu
from dovetail.queue.inputs.workers import sized
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.verdicts import Admitted, Verdict
from dovetail_operator.arrays.task_index import TaskIndex, parent_key
from dovetail_operator.devices.bad_devices import BadCards
from dovetail_operator.devices.enforcement import Enforcements
from dovetail_operator.devices.idleness import tells_utilization
from dovetail_operator.devices.memory_overuse import Overuses
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.footprint import Footprint
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.job.plan import left_behind, unrest
from dovetail_operator.job.status_pacing import refresh_seconds
from dovetail_operator.learning.utilization import Utilization
from dovetail_operator.state.dependency_index import Dependencies
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.failing_jobs import Failing
from dovetail_operator.state.pods import JobPods
from dovetail_operator.state.refused_pods import RefusedPods

# A report that is older says nothing of what a device does now: agents report every 300 s at least.
_STALE: Final = 660.0


class FollowsJobs(Protocol):
    """Follows the versions of GPUJobs as they are observed, such as the notifier."""

    def put(self, job: GPUJob) -> None:
        """A version of a GPUJob was observed."""

    def drop(self, job: GPUJob) -> None:
        """A GPUJob's object is deleted; `job` is its last version."""


class State:
    """GPUJobs, the batch Jobs that carry our label, and pods, by `namespace/name` of the job; and the ledger's view."""

    def __init__(
        self,
        view: ClusterView,
        *,
        default_policy: Policy,
        namespace_policies: Mapping[str, Policy] | None = None,
        learning: Learning | None = None,
        run_times: RunTimes | None = None,
        quotas: Quotas | None = None,
        preemption: Rules | None = None,
        endings: EndingRules | None = None,
        job_limits: JobLimits | None = None,
    ) -> None:
        self.view = view
        self._footprint = Footprint(job_limits or JobLimits())
        self.quotas = quotas or Quotas()
        self.preemption = preemption or Rules()
        # What jobs that make way are told, by UID: the queue's finding, as the verdicts are.
        self.notices: dict[str, Notice] = {}
        self.run_times = run_times or RunTimes()
        self.learning = learning or Learning()
        self.expectations = Expectations()
        self.jobs: dict[str, GPUJob] = {}
        self.pods = JobPods()
        self.dependencies = Dependencies(self.jobs)
        # Records of jobs that are due; None where nobody keeps any.
        self.dues: Dues | None = None
        # Who tells people what becomes of jobs; None where nobody does.
        self.notifier: FollowsJobs | None = None
        self.verdicts: dict[str, Verdict] = {}
        # How many jobs run or start, as the queue last saw them.
        self.at_work = 0
        # Why Kueue has not let batch Jobs go, by their UID, in Kueue's words.
        self.kueue: dict[str, str] = {}
        # Why plans do not hold any more, by UID: the queue's finding, as the verdicts are.
        self.overtaken: dict[str, str] = {}
        self.refused_pods = RefusedPods()
        # Whether jobs are started anew elsewhere when a device of theirs is bad.
        self.leaves_bad_cards = False
        self._bad_cards = BadCards()
        # Whether reports of memory overuse end pods and jobs.
        self.endings = endings or EndingRules()
        self._overuses = Overuses(self.endings)
        # Since when jobs do no GPU work, by UID: those that are told so.
        self.idle: dict[str, datetime] = {}
        self._enforcements = Enforcements()
        self.numbers: dict[str, int] = {}
        self._tasks = TaskIndex()
        self._utilization = Utilization()
        self._default_policy = default_policy
        self._namespace_policies = dict(namespace_policies or {})
        self._children: dict[str, Job] = {}
        self._asks: dict[str, tuple[int, tuple[Ask, ...], Obstacle | None]] = {}
        self._refused: dict[str, tuple[int, Obstacle]] = {}
        self._failing = Failing()
        # Why the newest version of a job cannot be read, by UID: what is known is the version before.
        self._unread: dict[str, str] = {}
        self._gpunodes: dict[str, GPUNode] = {}

    # --- changes -----------------------------------------------------------------------------------------------

    def lean(self, job: GPUJob) -> GPUJob:
        """The job without what the operator does not keep; its template is that of the version before, if the same."""
        return self._footprint.lean(job, known=self.jobs.get(key_of(job.metadata)))

    def put_job(self, job: GPUJob) -> bool:
        """Take over a GPUJob; False for one that is older than what is known, or the same."""
        key, job = key_of(job.metadata), self.lean(job)
        known = self.jobs.get(key)
        if known is not None and not _is_newer(job.metadata, known.metadata):
            return False
        if known is not None and known.metadata.uid != job.metadata.uid:
            self._forget(known)
        self.jobs[key] = job
        self._unread.pop(job.metadata.uid, None)
        self.learning.put(job)
        self.expectations.put(job)
        self.dependencies.put(job)
        self._tasks.put(job)
        if self.dues is not None:
            self.dues.put(job)
        if self.notifier is not None:
            self.notifier.put(job)
        return True

    def job_unreadable(self, meta: ObjectMeta, *, message: str) -> None:
        """The newest version of a GPUJob cannot be read: the one before is no word on what is to start."""
        known = self.jobs.get(key_of(meta))
        if known is not None and known.metadata.uid == meta.uid:
            self._unread[meta.uid] = message
            self.verdicts.pop(meta.uid, None)

    def is_unreadable(self, key: str) -> bool:
        """Whether what is known of a GPUJob is older than it is, as its newest version cannot be read."""
        known = self.jobs.get(key)
        return known is not None and known.metadata.uid in self._unread

    def drop_job(self, key: str, *, uid: str) -> None:
        """A GPUJob is gone; not so if another one has its name by now."""
        known = self.jobs.get(key)
        if known is not None and known.metadata.uid == uid:
            del self.jobs[key]
            self._forget(known)

    def put_child(self, child: Job) -> None:
        """Take over a batch Job, unless what is known is newer."""
        key = key_of(child.metadata)
        known = self._children.get(key)
        if known is None or _is_newer(child.metadata, known.metadata):
            self._children[key] = child

    def child_changed(self, type_: EventType, child: Job) -> str:
        """A batch Job with our label has changed; the key of its GPUJob."""
        key = key_of(child.metadata)
        if type_ != "DELETED":
            self.put_child(child)
        elif key in self._children and self._children[key].metadata.uid == child.metadata.uid:
            del self._children[key]
        return key

    def pod_changed(self, type_: EventType, pod: Pod) -> str | None:
        """A pod has changed; the key of its GPUJob, None for a pod that belongs to none."""
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
                # What it uses may have been reported before it was seen here.
                self._measured(node)
        return key

    def gpunode_changed(self, gpunode: GPUNode) -> list[str]:
        """A GPUNode has changed; the keys of the GPUJobs of which it brings news."""
        self._gpunodes[gpunode.metadata.name] = gpunode
        given = self.view.gpunode_changed(gpunode)
        self.pods.note_given(given, ledger=self.view.ledger)
        uids = {*given, *self._holders_of(self._bad_cards.changed(gpunode), node=gpunode.metadata.name)}
        uids |= self._overuses.changed(gpunode)
        if self._enforcements.changed(gpunode):
            every = {device.uuid for device in gpunode.status.devices}
            uids |= set(self._holders_of(every, node=gpunode.metadata.name))
        jobs = [key for uid in uids if (key := self.pods.job_of(uid)) is not None]
        return list(dict.fromkeys([*jobs, *self._measured(gpunode)]))

    def gpunode_gone(self, name: str) -> None:
        """A GPUNode is gone."""
        self._gpunodes.pop(name, None)
        self._bad_cards.gone(name)
        self._overuses.gone(name)
        self._enforcements.gone(name)
        self.view.gpunode_gone(name)

    def refuse(self, job: GPUJob, obstacle: Obstacle) -> None:
        """Remember that this generation of the job cannot be started, until `relent`."""
        self._refused[job.metadata.uid] = (job.metadata.generation, obstacle)
        self.verdicts.pop(job.metadata.uid, None)

    def relent(self, job: GPUJob) -> None:
        """Let the job be tried again."""
        self._refused.pop(job.metadata.uid, None)

    def fails_on(self, job: GPUJob, error: Exception) -> bool:
        """Our own code fails on this generation of the job: it is told so, and stops nobody else. False if not news."""
        if not self._failing.note(job, error):
            return False
        self.verdicts.pop(job.metadata.uid, None)
        return True

    # --- reading -----------------------------------------------------------------------------------------------

    def observe(self, key: str, *, now: datetime) -> Observed | None:
        """All that bears on one GPUJob; None when there is none of that name."""
        job = self.jobs.get(key)
        if job is None or not is_ours(job):
            return None
        child = self.child_of(job)
        pods = self.pods.of(child)
        verdict = self.verdicts.get(job.metadata.uid)
        return Observed(
            job=sized(job, child=child, verdict=verdict),
            asked_workers=job.spec.workers,
            now=now,
            cluster_nodes=len(self.view.nodes),
            child=child,
            pods=pods,
            given=self.pods.given(pods),
            ask=self.ask_of(job),
            memory=self.memory_of(job),
            dependencies=tuple(self.dependencies.states_of(job)),
            awaited=self.dependencies.is_awaited(job) or self._is_unnoted_task(job),
            tasks=self._tasks.of(job) if is_parent(job) else (),
            in_the_way=self._tasks.in_the_way(job, jobs=self.jobs) if is_parent(job) else {},
            refresh_seconds=refresh_seconds(running=self.at_work),
            measured=self._utilization.of(job, running=any(pod.status.phase == "Running" for pod in pods)),
            recorded=self.dues is None or self.dues.is_kept(job),
            number=self.number_of(job),
            verdict=verdict,
            obstacle=self.obstacle_of(job, now=now),
            overtaken=self.overtaken.get(job.metadata.uid, ""),
            bad_cards=self._bad_cards.of(pods, ledger=self.view.ledger),
            leaves_bad_cards=self.leaves_bad_cards,
            overuses=self._overuses.of(pods),
            idle_since=self.idle.get(job.metadata.uid),
            enforcement=self._enforcements.of(pods),
            notice=self.notices.get(job.metadata.uid),
            kueue=self.kueue.get(child.metadata.uid, "") if child is not None else "",
        )

    def _is_unnoted_task(self, job: GPUJob) -> bool:
        parent = self.jobs.get(parent_key(job) or "")
        return parent is not None and self._tasks.is_unnoted(job, parent=parent)

    def waits_for_name(self, key: str) -> str | None:
        """The key of an array that cannot make a task because the GPUJob of that key has its name."""
        return self._tasks.waiting_for(key)

    def children(self) -> Iterator[Job]:
        """The batch Jobs that are jobs' own."""
        for key, child in self._children.items():
            job = self.jobs.get(key)
            if job is not None and is_child(child, job=job):
                yield child

    def child_named(self, key: str) -> Job | None:
        """The batch Job of that name, whosever it is."""
        return self._children.get(key)

    def child_of(self, job: GPUJob) -> Job | None:
        """The job's own batch Job; None also when one of its name is another's."""
        child = self.child_named(key_of(job.metadata))
        return child if child is not None and is_child(child, job=job) else None

    def is_left_to_itself(self, uid: str, *, key: str) -> bool:
        """Whether a job has neither batch Job nor plan, and nothing was found that keeps it from starting."""
        if (
            key in self._children
            or uid in self._refused
            or uid in self._failing
            or uid in self._unread
            or self.pods.are_there(key)
        ):
            return False
        return not isinstance(self.verdicts.get(uid), Admitted)

    def ask_of(self, job: GPUJob) -> Ask | None:
        """What each worker asks in the way in which the job was let go, else in the preferred one.

        None where the request cannot be read.
        """
        return self.chosen_of(job, self.ways_of(job))

    def chosen_of(self, job: GPUJob, ways: Sequence[Ask]) -> Ask | None:
        """That of the job's `ways` in which it was let go, else the first."""
        child = self.child_of(job)
        if not ways:
            return None
        if fell_back(child):
            return on_cpu(ways[0])
        if child is not None:
            return replace(ways[0], resource=child.metadata.annotations.get(names.GPU_RESOURCE, ""))
        verdict = self.verdicts.get(job.metadata.uid)
        chosen = verdict.ask if isinstance(verdict, Admitted) else None
        return next((way for way in ways if chosen is not None and way.resource == chosen.resource), ways[0])

    def ways_of(self, job: GPUJob) -> list[Ask]:
        """What each worker asks with the memory that was estimated, in all ways in which it may be met."""
        use = self.memory_of(job)
        return [estimated(ask, use=use) for ask in self._read(job)[0]]

    def memory_of(self, job: GPUJob) -> MemoryUse | None:
        """What the job uses and what was learned for it; None where there is nothing to say."""
        return self.learning.use_of(
            job, next(iter(self._read(job)[0]), None), child=self.child_of(job), most_mib=self._most_mib
        )

    def estimate_of(self, job: GPUJob) -> int | None:
        """The memory in MiB that was learned for the job; None where its strategy goes by none, or nothing is known."""
        use = self.memory_of(job) if self.learning.estimates(job) else None
        return None if use is None else use.estimate_mib

    def obstacle_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        """Why the job cannot be started as it stands; of several causes the first by precedence."""
        if (message := self._unread.get(job.metadata.uid)) is not None:
            return Obstacle(message=message)
        failing = self._failing.obstacle_of(job, now=now)
        if failing is not None:
            return failing
        _, obstacle = self._read(job)
        if (failing := self._failing.obstacle_of(job, now=now)) is not None:
            return failing
        refusal = self._refusal_of(job, now=now)
        return (
            too_early(job, now=now)
            or resting(job, now=now)
            or self.dependencies.obstacle_of(job)
            or obstacle
            or refusal
            or unrest(job, (child := self.child_of(job)), self.pods.of(child))
            or left_behind(self._left_over(job, child=child))
        )

    def _left_over(self, job: GPUJob, *, child: Job | None) -> list[Pod]:
        """Pods of a run before that are there although nothing is to run."""
        number, key = self.number_of(job), key_of(job.metadata)
        # A Job of its name that is not its own stands in its way, and of that it is told.
        is_free = child is not None or key not in self._children
        if number is None or not is_free or not wants_admission(job, child):
            return []
        return self.pods.left_over(key, number=number, child=child)

    def _refusal_of(self, job: GPUJob, *, now: datetime) -> Obstacle | None:
        generation, refusal = self._refused.get(job.metadata.uid, (0, None))
        if refusal is None or generation != job.metadata.generation:
            return None
        if refusal.until is not None and refusal.until <= now:
            self.relent(job)
            return None
        return refusal

    def utilization_of(self, job: GPUJob, *, now: datetime) -> float | None:
        """That of the job's busiest device as measured (0-1); None where a device of it is not known as of late."""
        found = []
        for held in job.status.devices:
            status = getattr(self._gpunodes.get(held.node), "status", None)
            if status is None or not status.observed_at or (now - moment(status.observed_at)).total_seconds() > _STALE:
                return None
            (device,) = [each for each in status.devices if each.uuid == held.uuid] or [None]
            if device is None or not tells_utilization(device):
                return None
            found.append(device.utilization)
        return max(found, default=None)

    def number_of(self, job: GPUJob) -> int | None:
        """The job's short number, if it has one."""
        return job.status.number or self.numbers.get(job.metadata.uid)

    def unnumbered(self) -> list[GPUJob]:
        """Jobs that wait for their number."""
        return [job for job in self.jobs.values() if self.number_of(job) is None and is_ours(job)]

    def _most_mib(self) -> int:
        return int(self.view.ledger.largest_mib * GUARD_FRACTIONS["Aggressive"])

    def _read(self, job: GPUJob) -> tuple[tuple[Ask, ...], Obstacle | None]:
        generation, asks, obstacle = self._asks.get(job.metadata.uid, (-1, (), None))
        # What could not be read is no reading that stands.
        unread = not asks and obstacle is None and self._failing.is_tried(job)
        if generation != job.metadata.generation or unread:
            refusal = self._footprint.refusal_of(job)
            policy = self._namespace_policies.get(job.metadata.namespace, self._default_policy)
            try:
                asks, obstacle = _read_job(job, refusal=refusal, default_policy=policy, vendors=self.view.vendors)
            except Exception as error:  # noqa: BLE001 - one job stops nobody else
                self.fails_on(job, error)
                asks, obstacle = (), None
            self._asks[job.metadata.uid] = (job.metadata.generation, asks, obstacle)
        return asks, obstacle

    def _holders_of(self, uuids: set[str], *, node: str) -> list[str]:
        """UIDs of the pods that hold one of these devices of a node."""
        claims = self.view.ledger.claims_on(node) if uuids else ()
        return [claim.key for claim in claims if any(device.uuid in uuids for device in claim.devices)]

    def _measured(self, gpunode: GPUNode) -> list[str]:
        claims = list(self.view.ledger.claims_on(gpunode.metadata.name))
        owners = {claim.key: self._job_of(claim.key) for claim in claims}
        self._utilization.reported(gpunode, claims=claims, jobs={uid: job for uid, job in owners.items() if job})
        jobs = ((self._job_of(uid), peak) for uid, peak in peaks_in(gpunode, claims=claims))
        return [key_of(job.metadata) for job, peak in jobs if job is not None and self.learning.measured(job, peak)]

    def is_of_a_job(self, uid: str) -> bool:
        """Whether that is a pod of a GPUJob's own batch Job, so that the job ends where the pod has to."""
        job = self._job_of(uid)
        return job is not None and any(pod.metadata.uid == uid for pod in self.pods.of(self.child_of(job)))

    def _job_of(self, uid: str) -> GPUJob | None:
        """The GPUJob whose pod that is."""
        return self.jobs.get(self.pods.job_of(uid) or "")

    def _forget(self, job: GPUJob) -> None:
        self._failing.forget(job.metadata.uid)
        self._footprint.forget(job.metadata.uid)
        self._tasks.drop(job)
        self._utilization.drop(job)
        self.learning.drop(job)
        self.expectations.drop(job)
        self.dependencies.drop(job)
        if self.dues is not None:
            self.dues.drop(job)
        if self.notifier is not None:
            self.notifier.drop(job)
        for memory in (
            self._asks,
            self._refused,
            self._unread,
            self.verdicts,
            self.overtaken,
            self.notices,
            self.numbers,
        ):
            memory.pop(job.metadata.uid, None)


def _read_job(
    job: GPUJob, *, refusal: str | None, default_policy: Policy, vendors: Vendors
) -> tuple[tuple[Ask, ...], Obstacle | None]:
    """The ways in which what each worker asks may be met, and what is wrong with the job as it is written.

    Of a job with a `refusal` the template is not kept.
    """
    if refusal is not None:
        return (), Obstacle(message=refusal)
    try:
        ask = ask_of_job(job, default_policy=default_policy, vendors=vendors)
        return asks_by_kind(ask, vendors=vendors), None
    except RequestError as error:
        return (), Obstacle(message=str(error))


def _is_newer(new: ObjectMeta, known: ObjectMeta) -> bool:
    # Versions of one resource can be compared as numbers (KEP-5504); streams and our own writes arrive out of order.
    return int(new.resource_version) > int(known.resource_version)
