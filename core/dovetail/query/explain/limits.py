"""Limits, pools and reservations that keep a subject back even if there is room. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.answers.explain.answer import Answer, change
from dovetail.answers.explain.nodes import closed
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.api.reasons import explain as explains
from dovetail.api.reasons import queue as says
from dovetail.api.reasons import remedies
from dovetail.api.reasons.catalog import about_pod
from dovetail.api.reasons.clause import Sentence
from dovetail.cluster.objects import ClusterObjects
from dovetail.gpu.request import RequestError
from dovetail.jobs.cpu_fallback import cpu_after_seconds
from dovetail.query.dry_run import verdict_on
from dovetail.query.explain.subjects import Subject
from dovetail.query.growing_rules import growing_rules_of
from dovetail.query.preemption import preemption_view
from dovetail.query.queue_view import ASKED, QueueView, queue_view
from dovetail.queue.limits import limits, subjects
from dovetail.queue.limits.pools import in_pools, pools_of
from dovetail.queue.limits.priorities import bound_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import subject_of, weight_refusal
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.model.gate import Refused
from dovetail.queue.verdicts import Verdict, Waits, why_of

# Reasons to wait that more room alone does not end.
_NOT_ROOM: Final = frozenset({"Quota", "Reserved", "Priority"})
_NEVER: Final = frozenset({says.NEVER_FITS.code, says.NEVER_FITS_AT_LEAST.code})


def kept_to_pools(subject: Subject, *, objects: ClusterObjects) -> Subject:
    """The subject on the nodes of the pool that it asks for, or to which quotas keep it."""
    if _is_admitted(subject, objects=objects):
        return subject
    pools = _pools(subject, objects=objects)
    return subject if isinstance(pools, Refused) else replace(subject, pod_spec=in_pools(subject.pod_spec, pools=pools))


def with_pool_reasons(found: Answer, *, subject: Subject, objects: ClusterObjects) -> Answer:
    """The answer with the pool, not the node affinity, as the reason of nodes outside it."""
    pools = () if _is_admitted(subject, objects=objects) else _pools(subject, objects=objects)
    if isinstance(pools, Refused) or not pools:
        return found
    wanted = " or ".join(pools)
    outside = explains.NOT_IN_POOLS(pools=wanted)
    inside = {node.metadata.name for node in objects.nodes if node.metadata.labels.get(names.LABEL_POOL) in pools}
    nodes = tuple(
        closed(node.node, reason=node.reason, says=outside)
        if node.reason == "NodeAffinity" and node.node not in inside
        else node
        for node in found.nodes
    )
    changes = tuple(each for each in found.changes if each.kind != "NodeAffinity" or each.node in inside)
    sentence = found.sentence if found.fits else found.sentence + explains.SEARCHED_POOLS(pools=wanted)
    clauses = {**found.clauses, outside.message: outside.clauses}
    return replace(found, nodes=nodes, changes=changes, sentence=sentence, clauses=clauses)


def limited(found: Answer, *, subject: Subject, nodes: Sequence[str], objects: ClusterObjects, now: datetime) -> Answer:
    """The answer after limits and reservations, which may keep back a subject that has room."""
    concerned = subject.kind == "GPUJob" or bool(objects.quotas)
    hopeless = found.reason == "ExceedsCapacity" and not _may_start_otherwise(subject, objects=objects)
    if not concerned or hopeless or _is_admitted(subject, objects=objects):
        return found
    kept = _kept_back(subject, nodes=nodes, objects=objects, now=now, fits=found.fits)
    if kept is None:
        return found
    why = about_pod(why_of(kept)) if subject.kind == "Pod" else why_of(kept)
    # Changes that only make room would not suffice.
    helps = change("Limit", says=_what_helps(kept))
    return replace(found, fits=False, sentence=why, reason=kept.reason, changes=(helps,))


def _may_start_otherwise(subject: Subject, *, objects: ClusterObjects) -> bool:
    """Whether the subject is a job that can start although no node could serve it: on the CPU, or on new nodes."""
    job = _job_of(subject, objects=objects)
    if job is None:
        return False
    runs_on_cpu = cpu_after_seconds(job, by_namespace=objects.settings.namespace_cpu_fallback) is not None
    return runs_on_cpu or bool(growing_rules_of(objects.settings, node_pools=objects.node_pools).pools)


def _is_admitted(subject: Subject, *, objects: ClusterObjects) -> bool:
    """Whether the queue has admitted the subject, as it has all pods of GPUJobs."""
    if subject.kind == "GPUJob":
        job = _job_of(subject, objects=objects)
        return job is not None and job.status.phase == "Starting"
    name = subject.pods[0].metadata.labels.get(names.LABEL_JOB) if subject.pods else None
    return any(key_of(job.metadata) == f"{subject.namespace}/{name}" for job in objects.jobs)


def _job_of(subject: Subject, *, objects: ClusterObjects) -> GPUJob | None:
    if subject.kind != "GPUJob":
        return None
    return next((job for job in objects.jobs if job.metadata.uid == subject.uid), None)


def _quota_subject(subject: Subject, *, objects: ClusterObjects) -> subjects.Subject:
    """The quota's subject: a job's user; a pod has no user, and a request's user is unknown."""
    job = _job_of(subject, objects=objects)
    if job is not None:
        return subject_of(job)
    return subjects.Subject(namespace=subject.namespace, user=None if subject.kind == "Pod" else "")


def _pools(subject: Subject, *, objects: ClusterObjects) -> tuple[str, ...] | Refused:
    job = _job_of(subject, objects=objects)
    asked = None if job is None else job.spec.pool
    return pools_of(objects.quotas or (), subject=_quota_subject(subject, objects=objects), asked=asked)


def _refused(subject: Subject, *, objects: ClusterObjects) -> Refused | None:
    """Why its quotas keep a pod or a request back whatever is free."""
    bound = bound_of(objects.quotas or (), subject=_quota_subject(subject, objects=objects))
    if subject.kind == "Pod" and subject.ask is not None:
        for pod in subject.pods:
            if (beyond := weight_refusal(pod.metadata.annotations, ask=subject.ask, bound=bound)) is not None:
                return beyond
    pools = _pools(subject, objects=objects)
    return pools if isinstance(pools, Refused) else None


def _kept_back(
    subject: Subject, *, nodes: Sequence[str], objects: ClusterObjects, now: datetime, fits: bool
) -> Waits | None:
    """What the queue says against a start now, where that is not the room itself."""
    job = _job_of(subject, objects=objects)
    verdict = (
        _verdict_on_others(subject, nodes=nodes, objects=objects, now=now)
        if job is None
        else _verdict_on_job(job, objects=objects, now=now)
    )
    if not isinstance(verdict, Waits):
        return None
    if job is None:
        return verdict if verdict.reason in _NOT_ROOM else None
    return verdict if fits or verdict.reason in {*_NOT_ROOM, "Provisioning"} else None


def _verdict_on_job(job: GPUJob, *, objects: ClusterObjects, now: datetime) -> Verdict | None:
    """The operator's verdict after all jobs before this one; None for an unreadable request."""
    queue = queue_view(objects, now=now, without=job.metadata.uid)
    try:
        asked, counted = queue.asked_as(job, submitted=True)
    except RequestError:
        return None
    evictor = preemption_view(objects, queue=queue).evictor()
    return verdict_on(asked, counted=counted, queue=queue, evictor=evictor)[1]


def _verdict_on_others(subject: Subject, *, nodes: Sequence[str], objects: ClusterObjects, now: datetime) -> Verdict:
    """The verdict on a pod or a request, which is not in the queue.

    Of the waiting jobs, only the limits count those before it.
    """
    queue = queue_view(objects, now=now)
    asked, counted = _asked(subject, nodes=nodes, objects=objects, queue=queue)
    gate = queue.gate(counted)
    if gate is not None:
        for before in queue.waiting:
            gate.refusal(before)
    return queue.cycle(counted, gate=gate).at(asked)


def _asked(
    subject: Subject, *, nodes: Sequence[str], objects: ClusterObjects, queue: QueueView
) -> tuple[Candidate, Counted]:
    assert subject.ask is not None, "what asks nothing is not limited"
    queue.sites[ASKED] = list(nodes)
    candidate = Candidate(key=ASKED, ask=subject.ask, workers=subject.workers, created="9", name="it", site=ASKED)
    return candidate, Counted(
        uid=ASKED,
        subject=_quota_subject(subject, objects=objects),
        milli=limits.milli_of(subject.ask, workers=subject.workers),
        memory_mib=queue.quotas.memory_of(subject.ask, workers=subject.workers),
        model=limits.model_of(subject.ask),
        queued=True,
        refused=_refused(subject, objects=objects),
    )


def _what_helps(kept: Waits) -> Sentence:
    if kept.reason == "Reserved":
        return remedies.END_BEFORE_RESERVATION()
    if kept.reason == "Provisioning":
        return remedies.WAIT_FOR_NODES()
    codes = {each.code for each in kept.details}
    if not codes.isdisjoint(_NEVER):
        return remedies.ASK_WITHIN_LIMIT()
    if says.POOL_NOT_ALLOWED.code in codes:
        return remedies.ASK_ALLOWED_POOL()
    if kept.reason == "Quota":
        return remedies.WAIT_FOR_LIMIT()
    return remedies.WAIT_FOR_KEPT() if kept.reason == "Priority" else remedies.WAIT_FOR_BEFORE()
