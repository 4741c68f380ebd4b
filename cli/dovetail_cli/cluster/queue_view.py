"""The queue as the operator sees it, over the cluster as it was read: who waits, what ends when, what limits and
reservations say. Pure: the clock is an argument."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.cluster.view import ClusterView
from dovetail.formats.timestamps import moment
from dovetail.gpu.request import RequestError
from dovetail.jobs.plan import nodes_by_worker
from dovetail.pods.alternatives import asks_by_kind
from dovetail.pods.demand import ask_of_job, estimated
from dovetail.pods.tenancy import Child, child_of, job_of
from dovetail.queue.cycle import Look
from dovetail.queue.limits.limits import LimitGate, milli_of
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas, subject_of
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.preemption.policy import Evictor
from dovetail_cli.cluster.snapshot import Picture, claim_for_starting, its_nodes

# The job that is asked about: no other has this key.
ASKED: Final = "the job that is asked about"
# Words for jobs that stand in the queue; the others are not in its way.
_IN_THE_QUEUE: Final = frozenset(
    {"Priority", "Resources", "Fragmentation", "MemoryGuard", "Reserved", "NodeUnhealthy", "Quota", ""}
)
# What Kubernetes gives a container to end when its time is over, and the least of one that runs longer than it may.
_GRACE_SECONDS: Final = 30
_SOON_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Its view has the room of those that were let go set aside. `counted` is what others take of the limits."""

    now: datetime
    view: ClusterView
    sites: dict[str, list[str]]
    waiting: Sequence[Candidate]
    leaving: Sequence[Leaving]
    quotas: Quotas
    counted: Sequence[Counted]
    children: frozenset[Child]

    def gate(self, asked: Counted) -> LimitGate | None:
        """The limits, with one more who asks; None where nothing is limited."""
        return self.quotas.gate([*self.counted, asked], children=self.children)

    def look(self, asked: Counted, *, gate: LimitGate | None = None, evictor: Evictor | None = None) -> Look:
        """A look at the queue with one more who asks. `gate` is one that has been asked about others already."""
        ledger, counted = self.view.ledger.copy(), [*self.counted, asked]
        windows = windows_of(self.quotas, counted, view=self.view, ledger=ledger, leaving=self.leaving, now=self.now)
        gate = gate or self.gate(asked)
        return Look(ledger, sites=self.sites, leaving=self.leaving, gate=gate, windows=windows, evictor=evictor)


def queue_of(picture: Picture, *, now: datetime, but: str = "") -> Queue:
    """The queue now, without the job of the UID `but`."""
    view, sites = picture.view(), dict[str, list[str]]()
    quotas = Quotas(half_life_seconds=picture.settings.fair_share_half_life)
    for quota in picture.quotas or ():
        quotas.put(quota)
    for pod in picture.pods:
        quotas.pod_changed(pod, ledger=view.ledger)
    claim_for_starting(picture, view, but=but)
    jobs = [job for job in picture.jobs if job.metadata.uid != but]
    counted = [each for job in jobs if (each := counted_as(job, picture=picture, quotas=quotas)) is not None]
    children = frozenset(_children(picture))
    quotas.reckon(counted, now=now, children=children)
    waiting = list(_waiting(jobs, picture=picture, view=view, sites=sites, quotas=quotas))
    return Queue(
        now=now,
        view=view,
        sites=sites,
        waiting=waiting,
        leaving=_leaving(jobs, picture=picture, now=now),
        quotas=quotas,
        counted=counted,
        children=children,
    )


def asked_as(job: GPUJob, *, picture: Picture, queue: Queue) -> tuple[Candidate, Counted]:
    """The job that is asked about, as the queue would see and count it. Raises `RequestError`."""
    candidate = _candidate(
        job, key=ASKED, created="9", picture=picture, view=queue.view, sites=queue.sites, quotas=queue.quotas
    )
    milli = milli_of(candidate.ask, workers=candidate.workers)
    return candidate, _counted(job, uid=ASKED, milli=milli, queued=True, quotas=queue.quotas)


def counted_as(job: GPUJob, *, picture: Picture, quotas: Quotas) -> Counted | None:
    """What a job of the cluster takes of limits; None for one that takes nothing now."""
    on_the_way = job.status.phase in {"Starting", "Running"}
    if job.status.tasks is not None or not (on_the_way or _stands_in_the_queue(job)):
        # The tasks of an array are jobs of their own.
        return None
    try:
        ask = ask_of_job(job, default_policy=picture.settings.policy_in(job.metadata.namespace))
    except RequestError:
        return None
    placement = job.status.placement if on_the_way else None
    workers = job.spec.workers if placement is None else len(list(nodes_by_worker(placement)))
    milli = 0 if job.status.device == "cpu" else milli_of(ask, workers=workers)
    return _counted(job, uid=job.metadata.uid, milli=milli, queued=not on_the_way, quotas=quotas)


def _counted(job: GPUJob, *, uid: str, milli: int, queued: bool, quotas: Quotas) -> Counted:
    start = job.status.start_time
    return Counted(
        uid=uid,
        subject=subject_of(job),
        milli=milli,
        start=None if start is None else moment(start),
        queued=queued,
        workers=job.spec.workers,
        least=job.spec.min_workers,
        group=job.spec.group or "",
        max_concurrent=job.spec.max_concurrent,
        refused=quotas.refusal_of(job),
    )


def _children(picture: Picture) -> Iterator[Child]:
    """The batch Jobs that are GPUJobs' own: those of their names."""
    jobs = {key_of(job.metadata) for job in picture.jobs}
    for pod in picture.pods:
        child = child_of(pod)
        if child is not None and f"{pod.metadata.namespace}/{job_of(pod)}" in jobs:
            yield child


def _stands_in_the_queue(job: GPUJob) -> bool:
    # Who made way for another is back in the queue.
    queued = job.status.phase in {"Queued", "Preempted"}
    return queued and job.status.reason in _IN_THE_QUEUE and job.status.tasks is None


def _waiting(
    jobs: Sequence[GPUJob], *, picture: Picture, view: ClusterView, sites: dict[str, list[str]], quotas: Quotas
) -> Iterator[Candidate]:
    for job in jobs:
        if _stands_in_the_queue(job):
            key, created = job.metadata.uid, job.metadata.creation_timestamp
            try:
                yield _candidate(job, key=key, created=created, picture=picture, view=view, sites=sites, quotas=quotas)
            except RequestError:
                continue


def _candidate(
    job: GPUJob,
    *,
    key: str,
    created: str,
    picture: Picture,
    view: ClusterView,
    sites: dict[str, list[str]],
    quotas: Quotas,
) -> Candidate:
    """The job as the queue sees it. Raises `RequestError`."""
    ask = ask_of_job(job, default_policy=picture.settings.policy_in(job.metadata.namespace), vendors=view.vendors)
    first, *others = asks_by_kind(estimated(ask, use=job.status.memory), vendors=view.vendors)
    rank = quotas.rank_of(job)
    sites[key] = its_nodes(job, picture=picture, view=view)
    return Candidate(
        key=key,
        ask=first,
        others=tuple(others),
        workers=job.spec.workers,
        least=job.spec.min_workers,
        priority=rank.priority,
        may_preempt=rank.may_preempt,
        created=created,
        number=job.status.number or 0,
        name=key_of(job.metadata),
        site=key,
        run_seconds=_run_seconds(job, picture=picture),
        limited=_limit_seconds(job) is not None,
        share=quotas.level_of(job),
    )


def _run_seconds(job: GPUJob, *, picture: Picture) -> float:
    limit = _limit_seconds(job)
    if limit is not None:
        return limit + _GRACE_SECONDS
    if job.spec.reservation is not None:
        return job.spec.reservation.duration_seconds + _GRACE_SECONDS
    settings = picture.settings
    return float(settings.namespace_time_limits.get(job.metadata.namespace, settings.default_time_limit))


def _limit_seconds(job: GPUJob) -> int | None:
    """After how long a run of the job ends whatever happens; None where nothing ends it: a lease may be renewed."""
    in_all = job.spec.maximum_execution_time_seconds
    left = None if in_all is None else max(1, in_all - job.status.earlier_run_seconds)
    return min((limit for limit in (job.spec.active_deadline_seconds, left) if limit is not None), default=None)


def _leaving(jobs: Sequence[GPUJob], *, picture: Picture, now: datetime) -> list[Leaving]:
    """When what running jobs hold is taken to end."""
    pods_of = picture.pods_by_job()
    found = []
    for job in jobs:
        start = job.status.start_time
        if job.status.phase != "Running" or start is None:
            continue
        limited = _limit_seconds(job) is not None
        run = (now - moment(start)).total_seconds()
        at = _run_seconds(job, picture=picture) - run
        if at <= 0:
            at = _SOON_SECONDS if limited else max(_SOON_SECONDS, run)
        found += [
            Leaving(key=pod.metadata.uid, job=job.metadata.uid, at_seconds=at, assumed=not limited)
            for pod in pods_of.get(key_of(job.metadata), ())
            if holds(pod)
        ]
    return found


def holds(pod: Pod) -> bool:
    """Whether the pod has a node, and what it asked for there."""
    return bool(pod.spec.node_name) and pod.status.phase not in {"Succeeded", "Failed"}
