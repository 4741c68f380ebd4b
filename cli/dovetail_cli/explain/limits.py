"""What limits, pools and reservations say of a subject, whether the engine has room for it or not. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.explain.answer import Answer, Change
from dovetail.gpu.request import RequestError
from dovetail.queue.limits import limits
from dovetail.queue.limits.pools import in_pools, pools_of
from dovetail.queue.limits.priorities import bound_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import subject_of, weight_refusal
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.model.gate import Refused
from dovetail.queue.verdicts import Waits
from dovetail_cli.cluster.queue_view import ASKED, Queue, asked_as, queue_of
from dovetail_cli.cluster.snapshot import Picture
from dovetail_cli.explain.subjects import Subject

BLIND: Final = "limits are not counted: that takes the right to list GPUQuotas"


def kept_to_pools(subject: Subject, picture: Picture) -> Subject:
    """The subject on the nodes of the pool that it asks for, or to which quotas keep it."""
    if _is_let_go(subject, picture):
        return subject
    pools = _pools(subject, picture)
    return subject if isinstance(pools, Refused) else replace(subject, pod_spec=in_pools(subject.pod_spec, pools))


def told_of_pools(found: Answer, *, subject: Subject, picture: Picture) -> Answer:
    """The answer in which nodes outside of the subject's pools say so, and the affinity behind it is not named."""
    pools = () if _is_let_go(subject, picture) else _pools(subject, picture)
    if isinstance(pools, Refused) or not pools:
        return found
    where = f"pool {' or '.join(pools)}"
    inside = {node.metadata.name for node in picture.nodes if node.metadata.labels.get(names.LABEL_POOL) in pools}
    nodes = tuple(
        replace(node, message=f"not in {where}", text=f"not in {where}")
        if node.reason == "NodeAffinity" and node.node not in inside
        else node
        for node in found.nodes
    )
    changes = tuple(change for change in found.changes if change.kind != "NodeAffinity" or change.node in inside)
    summary = found.summary if found.fits else f"{found.summary} (in {where})"
    return replace(found, nodes=nodes, changes=changes, summary=summary)


def limited(found: Answer, *, subject: Subject, nodes: Sequence[str], picture: Picture, now: datetime) -> Answer:
    """The answer with what limits and reservations say: they may keep back what has room on `nodes`."""
    anything = bool(picture.quotas) or any(job.spec.group for job in picture.jobs)
    if not anything or found.reason == "ExceedsCapacity" or _is_let_go(subject, picture):
        return found
    kept = _kept_back(subject, nodes=nodes, picture=picture, now=now)
    if kept is None:
        return found
    message = kept.message.replace("this job", "this pod") if subject.kind == "Pod" else kept.message
    # What mends a want of room would not do alone.
    change = Change(kind="Limit", text=_what_helps(kept))
    return replace(found, fits=False, summary=message, reason=kept.reason, changes=(change,))


def _is_let_go(subject: Subject, picture: Picture) -> bool:
    """Whether the queue has let it go: nothing but room keeps it back. So it is with the pods of GPUJobs."""
    if subject.kind == "GPUJob":
        job = _job_of(subject, picture)
        return job is not None and job.status.phase == "Starting"
    name = subject.pods[0].metadata.labels.get(names.LABEL_JOB) if subject.pods else None
    return any(key_of(job.metadata) == f"{subject.namespace}/{name}" for job in picture.jobs)


def _job_of(subject: Subject, picture: Picture) -> GPUJob | None:
    if subject.kind != "GPUJob":
        return None
    return next((job for job in picture.jobs if job.metadata.uid == subject.uid), None)


def _whose(subject: Subject, picture: Picture) -> limits.Subject:
    """Who asks: of a job whoever made it; a pod is nobody's, and who might ask a request has no name here."""
    job = _job_of(subject, picture)
    if job is not None:
        return subject_of(job)
    return limits.Subject(namespace=subject.namespace, user=None if subject.kind == "Pod" else "")


def _pools(subject: Subject, picture: Picture) -> tuple[str, ...] | Refused:
    job = _job_of(subject, picture)
    asked = None if job is None else job.spec.pool
    return pools_of(picture.quotas or (), _whose(subject, picture), asked=asked)


def _refused(subject: Subject, picture: Picture) -> Refused | None:
    """Why its quotas keep a pod or a request back whatever is free."""
    bound = bound_of(picture.quotas or (), _whose(subject, picture))
    if subject.kind == "Pod" and subject.ask is not None:
        for pod in subject.pods:
            if (beyond := weight_refusal(pod.metadata.annotations, ask=subject.ask, bound=bound)) is not None:
                return beyond
    pools = _pools(subject, picture)
    return pools if isinstance(pools, Refused) else None


def _kept_back(subject: Subject, *, nodes: Sequence[str], picture: Picture, now: datetime) -> Waits | None:
    job = _job_of(subject, picture)
    queue = queue_of(picture, now=now, but="" if job is None else job.metadata.uid)
    try:
        asked, counted = _asked(subject, job, nodes=nodes, picture=picture, queue=queue)
    except RequestError:
        return None
    gate = queue.gate(counted)
    if gate is not None:
        for before in order([*queue.waiting, asked]):
            if before.key == ASKED:
                break
            # Those before it stand in the queue.
            gate.refusal(before)
    verdict = queue.look(counted, gate=gate).at(asked)
    return verdict if isinstance(verdict, Waits) and verdict.reason in {"Quota", "Reserved"} else None


def _asked(
    subject: Subject, job: GPUJob | None, *, nodes: Sequence[str], picture: Picture, queue: Queue
) -> tuple[Candidate, Counted]:
    """Raises `RequestError`."""
    if job is not None:
        candidate, counted = asked_as(job, picture=picture, queue=queue)
        return replace(candidate, created=job.metadata.creation_timestamp), counted
    assert subject.ask is not None, "what asks nothing is not limited"
    queue.sites[ASKED] = list(nodes)
    candidate = Candidate(key=ASKED, ask=subject.ask, workers=subject.workers, created="9", name="it", site=ASKED)
    return candidate, Counted(
        uid=ASKED,
        subject=_whose(subject, picture),
        milli=limits.milli_of(subject.ask, workers=subject.workers),
        queued=True,
        refused=_refused(subject, picture),
    )


def _what_helps(kept: Waits) -> str:
    if kept.reason == "Reserved":
        return "give the job a time limit that ends it before the reservation begins, or wait until that is over"
    if "would never fit" in kept.message:
        return "ask for no more than the limit, or have it raised"
    if kept.message.startswith("Asks for pool"):
        return "ask for a pool that the quota allows"
    return "wait until some of what counts for the limit has ended, or have it raised"
