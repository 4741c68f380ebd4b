"""Leader election: one operator acts, the others take over when its lease ends.

An operator that was paused and resumes after another has taken over does no harm. Its client sends no write without the
lease. A write that was already sent meets a newer resourceVersion or an existing name. A batch Job that it creates has
an expired fencing token, which the chart's policy refuses.

A module of its own: what one term of office promises, whatever the operator does in it.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from dovetail import names
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, LeaseLostError, Times
from dovetail.logs import get_logger
from dovetail.process.serving import Check, together

log = get_logger("dovetail.operator.leader")

# A successor begins within the duration plus one look. The first lists and the queue's first cycle come on top.
TIMES: Final = Times(duration_seconds=8, renew_seconds=2.5, look_seconds=1.0)


def leadership(client: Client, *, namespace: str, environ: Mapping[str, str] = os.environ) -> Leadership:
    """This operator's candidacy.

    `client` serves the lease alone: other requests must not delay it.
    """
    # The containers of a pod run one after the other, so a restarted container continues the term of the killed one.
    identity = environ.get("POD_NAME") or socket.gethostname()
    return Leadership(client, namespace=namespace, name=names.OPERATOR_LEASE, identity=identity, times=TIMES)


async def act(office: Leadership, *, run: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Wait for the lease, then `run` as long as it is ours and `stop` is not set.

    Sets `stop` when the lease is lost. The objects in memory were valid only with the lease, so the process ends and
    restarts.
    """
    await together(stop, _lead(office, run=run, lost=stop))
    # Requests still in progress belong to a term that is over once another begins.
    await office.release()


async def _lead(office: Leadership, *, run: Callable[[], Coroutine[Any, Any, None]], lost: asyncio.Event) -> None:
    await office.acquire()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(office.keep(), name="lease")
            group.create_task(run(), name="acting")
    except* LeaseLostError as errors:
        log.warning("out of office", error=str(errors.exceptions[0]))
        lost.set()


def ready(office: Leadership, *, acting: Mapping[str, Check]) -> dict[str, Check]:
    """Checks for /readyz. A standby operator is ready too, otherwise no node could be drained."""

    def lease() -> str | None:
        if office.is_standby or office.remaining_seconds:
            return None
        return f"the lease {office.name} {f'is held by {office.holder}' if office.holder else 'has no holder yet'}"

    def unless_standby(check: Check) -> Check:
        return lambda: None if office.is_standby else check()

    return {"lease": lease, **{name: unless_standby(check) for name, check in acting.items()}}
