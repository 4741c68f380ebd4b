"""The plan of a job in its status. Pure.

The queue admits a job with a node for each worker. The status records that plan first, and the pod template names its
nodes after that (`manifests.planned_template`). kube-scheduler then considers those nodes only, and the extender
reserves the room for the workers.

The first plan of a job with one worker may be in the batch Job first (`may_be_carried`): that saves a write of the
status if the worker soon runs. Until the status follows, the extender takes the pod for one without a plan.
"""

from datetime import datetime
from typing import Final

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, GPUJobStatus, KeptOnNode, Placement, ReservedRoom
from dovetail.engine.model.claims import Claim
from dovetail.formats.durations import after, timestamp
from dovetail.jobs import plan
from dovetail.jobs.batch_job import is_guests
from dovetail.queue.verdicts import Admitted, Kept, Verdict

_REFUSALS: Final = frozenset({"Invalid", "Quota"})


def placement_of(job: GPUJob, *, verdict: Verdict | None) -> Placement | None:
    """The plan that follows from a verdict. Returns the status's own plan if it is the same.

    None if the verdict admits nothing.
    """
    if not isinstance(verdict, Admitted) or not verdict.claims or verdict.ask is None:
        return None
    known = job.status.placement
    planned = Placement(
        generation=job.status.plans + 1,
        nodes=plan.planned_nodes(verdict.claims),
        worker=plan.planned_worker(verdict.ask),
        limit_seconds=verdict.limit_seconds,
    )
    if known is not None and msgspec.structs.replace(planned, generation=known.generation) == known:
        return known
    return planned


def reserved_room(kept: Kept, *, now: datetime) -> ReservedRoom:
    """The status entry for the room that a waiting job has reserved."""
    free: dict[str, list[Claim]] = {}
    for claim in kept.now:
        free.setdefault(claim.node, []).append(claim)
    texts = {node: plan.kept_texts(claims) for node, claims in free.items()}
    return ReservedRoom(
        time=timestamp(after(now, seconds=kept.at_seconds + 0.5)),
        nodes=plan.planned_nodes(kept.claims),
        kept=[KeptOnNode(name=node, keeps=keeps) for node, keeps in texts.items() if keeps],
        mode=kept.claims[0].mode,
        resource=kept.claims[0].resource,
    )


def may_be_carried(placement: Placement | None, *, job: GPUJob) -> bool:
    """Whether the batch Job that is created next may carry the plan of one worker, and the status follow.

    Only where the room needs no hold by the extender before the pod exists: the pod must fit as one without a plan. So
    no reservation may keep the room, and nothing of an earlier run may still be there.
    """
    status, spec = job.status, job.spec
    if placement is None or placement.limit_seconds is not None or placement.generation != 1 or status.plans:
        return False
    if spec.restart == "Worker" or is_guests(job):
        return False
    reserves = status.queue is not None and status.queue.reserved is not None
    return not (reserves or status.attempts or status.start_time or status.preemption or status.move)


def is_written_first(status: GPUJobStatus, *, before: GPUJobStatus, child: Job | None = None) -> bool:
    """Whether the status has a new plan that must be written before any action follows.

    If the API server refused the job's batch Job, the plan is not written before the batch Job exists. Otherwise the
    job would appear to start with every attempt.
    """
    refused = before.reason in _REFUSALS and child is None
    return status.placement is not None and status.placement != before.placement and not refused
