"""A pod's rank among the tenants of its devices, verified against GPUJobs and quotas. Pure.

A module of its own: an index of GPUJobs and quotas kept by events, where `filter_score` answers one request.
"""

from dataclasses import dataclass, field

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType, ObjectMeta, key_of
from dovetail.gpu.request import RequestError
from dovetail.jobs.plan import worker_of_plan
from dovetail.jobs.seat import seat_of
from dovetail.pods.options.annotations import priority_in
from dovetail.pods.tenancy import DEFAULT_PRIORITY, Tenancy, job_of
from dovetail.queue.limits.priorities import bound_of, within
from dovetail.queue.limits.subjects import Subject
from dovetail_extender.holds.planned_workers import PlannedJob


@dataclass(slots=True, kw_only=True)
class Tenancies:
    """The GPUJobs by `namespace/name`, and the GPUQuotas that bound priorities.

    The caller must pass on every change of both.
    """

    _jobs: dict[str, PlannedJob] = field(default_factory=dict)
    _quotas: dict[str, GPUQuota] = field(default_factory=dict)

    def job_changed(self, job: PlannedJob) -> None:
        """Take in an added or modified GPUJob."""
        self._jobs[key_of(job.metadata)] = job

    def job_gone(self, job: PlannedJob) -> None:
        """Remove a deleted GPUJob, unless a new one of the same name has already replaced it."""
        key = key_of(job.metadata)
        known = self._jobs.get(key)
        if known is not None and known.metadata.uid == job.metadata.uid:
            del self._jobs[key]

    def quota_event(self, event: EventType, quota: GPUQuota) -> None:
        """Take in a change of a GPUQuota."""
        if event == "DELETED" or quota.spec.max_priority is None:
            self._quotas.pop(quota.metadata.name, None)
        else:
            self._quotas[quota.metadata.name] = quota

    def unknown_job_of(self, pod: Pod) -> str:
        """The name of the GPUJob that the pod provably belongs to, if it is not known here; otherwise empty.

        The informer of GPUJobs may lag behind that of pods, or the GPUJob may have been deleted. This cache cannot tell
        which of the two it is.
        """
        return "" if self._job_of(pod) is not None else job_of(pod)

    def tenancy(self, pod: Pod, *, read: PlannedJob | None = None) -> Tenancy:
        """The pod's tenancy from its GPUJob, or else its own annotation, within its quotas' bounds.

        `read` is the GPUJob of the pod's name as the API server has it, for a pod whose GPUJob is not known here.
        """
        job = self._job_of(pod) or (read if read is not None and _is_of(pod, job=read) else None)
        if job is None:
            return Tenancy(priority=self._within_quotas(_priority_in(pod), of=pod.metadata))
        priority = self._within_quotas(
            job.spec.priority, of=job.metadata, user=job.metadata.annotations.get(names.USER, "")
        )
        return Tenancy(job=job.metadata.name, priority=priority, reservation=job.spec.reservation is not None)

    def _within_quotas(self, priority: int, *, of: ObjectMeta, user: str | None = None) -> int:
        """The priority within the bounds of the quotas that apply to a job or a pod; a pod has no user."""
        subject = Subject(namespace=of.namespace, user=user, project=of.labels.get(names.LABEL_PROJECT, ""))
        return within(priority, bound=bound_of(self._quotas.values(), subject=subject))

    def _job_of(self, pod: Pod) -> PlannedJob | None:
        name = job_of(pod)
        job = self._jobs.get(f"{pod.metadata.namespace}/{name}") if name else None
        return job if job is not None and _is_of(pod, job=job) else None


def _is_of(pod: Pod, *, job: PlannedJob) -> bool:
    """Whether the pod is not of an earlier or later GPUJob of that name: its plan or its seat says the UID."""
    planned, seat = worker_of_plan(pod), seat_of(pod)
    said = {planned.plan.job} if planned is not None else set[str]()
    if seat is not None:
        said.add(seat.job_uid)
    return said <= {job.metadata.uid}


def _priority_in(pod: Pod) -> int:
    try:
        said = priority_in(pod.metadata.annotations)
    except RequestError:  # edited after admission
        said = None
    return DEFAULT_PRIORITY if said is None else said
