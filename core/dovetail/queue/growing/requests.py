"""One job's request for new nodes over time: made, given up, made again. Pure."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.gpujob import Provisioning
from dovetail.formats.durations import human, moment, timestamp
from dovetail.queue.growing.pools import GrowingRules

_LONGEST_BACK_OFF_SECONDS: Final = 6 * 3600.0


def is_resting(request: Provisioning | None, *, now: datetime) -> bool:
    """Whether the request was given up and the next one is not due yet."""
    return request is not None and request.retry_time is not None and now < moment(request.retry_time)


def following(
    before: Provisioning | None, *, pool: str, nodes: int, workers: int, rules: GrowingRules, now: datetime
) -> Provisioning:
    """The request after `before`, for a job that now needs so many new nodes of the pool for so many workers.

    A request that is under way never shrinks: the nodes that have come for it would otherwise count as enough.
    """
    if before is None or before.retry_time is not None or before.pool != pool:
        failures = 0 if before is None else before.failures
        return Provisioning(pool=pool, nodes=nodes, workers=workers, requested_time=timestamp(now), failures=failures)
    if now >= expires_at(before, rules=rules):
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


def message_of(request: Provisioning, *, rules: GrowingRules) -> str:
    """The request in one sentence with numbers."""
    what = f"{request.nodes} {'node' if request.nodes == 1 else 'nodes'} of pool {request.pool} requested at"
    if request.retry_time is None:
        return f"{what} {request.requested_time}"
    return (
        f"{what} {request.requested_time} did not serve it within {human(rules.give_up_seconds)}; "
        f"requests again at {request.retry_time}"
    )
