"""One job's request for new nodes over time: made, given up, made again. Pure."""

import hashlib
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.gpujob import Provisioning
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.formats.durations import human, moment, timestamp
from dovetail.queue.growing.autoscaler_answer import Answer
from dovetail.queue.growing.pools import GrowingRules

# Pods get the name of their Job with a suffix as their host name, which has at most 63 characters.
_NAME_LENGTH: Final = 35
_LONGEST_BACK_OFF_SECONDS: Final = 6 * 3600.0
_STATES: Final = {"": NOTHING, "Accepted": says.ACCEPTED(), "Provisioned": says.PROVISIONED()}


def is_resting(request: Provisioning | None, *, now: datetime) -> bool:
    """Whether the request was given up and the next one is not due yet."""
    return request is not None and request.retry_time is not None and now < moment(request.retry_time)


def following(
    before: Provisioning | None,
    *,
    pool: str,
    nodes: int,
    workers: int,
    rules: GrowingRules,
    now: datetime,
    answer: Answer | None = None,
) -> Provisioning:
    """The request after `before`, for a job that now needs so many new nodes of the pool for so many workers.

    `answer` is the cluster autoscaler's to `before`, if that is a ProvisioningRequest and the caller knows it.

    A request that is under way never shrinks: the nodes that have come for it would otherwise count as enough.
    """
    if before is None or before.retry_time is not None or before.pool != pool:
        failures = 0 if before is None else before.failures
        return Provisioning(pool=pool, nodes=nodes, workers=workers, requested_time=timestamp(now), failures=failures)
    if answer is not None:
        before = msgspec.structs.replace(before, state=answer.state, refusal=answer.refusal)
    if before.refusal or now >= expires_at(before, rules=rules):
        wait = min(_LONGEST_BACK_OFF_SECONDS, rules.back_off_seconds * 2.0 ** min(before.failures, 16))
        retry = timestamp(now + timedelta(seconds=wait))
        return msgspec.structs.replace(before, failures=before.failures + 1, retry_time=retry)
    return msgspec.structs.replace(before, nodes=max(before.nodes, nodes), workers=max(before.workers, workers))


def expires_at(request: Provisioning, *, rules: GrowingRules) -> datetime:
    """When a request is given up."""
    return moment(request.requested_time) + timedelta(seconds=rules.give_up_seconds)


def due_at(request: Provisioning, *, rules: GrowingRules) -> datetime:
    """When time alone changes the request: it is given up, or made again."""
    return expires_at(request, rules=rules) if request.retry_time is None else moment(request.retry_time)


def explained(request: Provisioning, *, rules: GrowingRules) -> Sentence:
    """The request in one sentence with numbers."""
    found = says.REQUESTED(nodes=request.nodes, pool=request.pool, time=request.requested_time)
    if request.retry_time is None:
        return found + _STATES[request.state]
    if request.refusal:
        return found + says.REFUSED_BY_AUTOSCALER(refusal=request.refusal, retry_time=request.retry_time)
    return found + says.NOT_SERVED(duration=human(rules.give_up_seconds), retry_time=request.retry_time)


def placeholder_name(request: Provisioning, *, of: ObjectMeta) -> str:
    """The name of the batch Job of placeholders for a request of the GPUJob with these metadata."""
    return _name(of, kind="placeholder", facts=f"{of.uid} {request.pool} {request.requested_time}")


def provisioning_request_name(request: Provisioning, *, of: ObjectMeta) -> str:
    """The name of the ProvisioningRequest for a request. Its spec cannot change, so other workers mean another name."""
    facts = f"{of.uid} {request.pool} {request.requested_time} {request.workers}"
    return _name(of, kind="nodes", facts=facts)


def _name(of: ObjectMeta, *, kind: str, facts: str) -> str:
    digest = hashlib.sha256(facts.encode()).hexdigest()[:8]
    return f"{of.name[:_NAME_LENGTH].rstrip('-.')}-{kind}-{digest}"
