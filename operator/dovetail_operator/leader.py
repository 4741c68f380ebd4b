"""One operator acts: the others stand by, and take over when its lease ends.

An operator that was stopped and goes on when another has taken over does no harm. Its client sends no write out of
office; what was on its way already meets a newer resourceVersion or a name that is taken, and a batch Job that it
creates carries a term of office that is over, which the chart's policy refuses.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, LeaseLostError, Times
from dovetail.logs import get_logger
from dovetail.process.serving import Check, together

log = get_logger("dovetail.operator.leader")

LEASE: Final = "dovetail-operator"
# A successor begins within this time and a look; the first lists and the queue's first cycle come on top.
TIMES: Final = Times(duration_seconds=8, renew_seconds=2.5, look_seconds=1.0)


def leadership(client: Client, *, namespace: str, environ: Mapping[str, str] = os.environ) -> Leadership:
    """This operator's candidacy. `client` is for the lease alone: other requests must not keep it waiting."""
    # The containers of a pod run one after the other, so the next one goes on where the last one was killed.
    identity = environ.get("POD_NAME") or socket.gethostname()
    return Leadership(client, namespace=namespace, name=LEASE, identity=identity, times=TIMES)


async def act(office: Leadership, run: Callable[[], Coroutine[Any, Any, None]], *, stop: asyncio.Event) -> None:
    """Stand by, then `run` for as long as the lease is ours, until told to stop.

    Sets `stop` when the lease is lost: what is in memory was true in office only, so the process ends and starts anew.
    """
    await together(stop, _in_office(office, run, lost=stop))
    # What is still on its way is of a term that is over once another begins.
    await office.release()


async def _in_office(office: Leadership, run: Callable[[], Coroutine[Any, Any, None]], *, lost: asyncio.Event) -> None:
    await office.acquire()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(office.keep(), name="lease")
            group.create_task(run(), name="acting")
    except* LeaseLostError as errors:
        log.warning("out of office", error=str(errors.exceptions[0]))
        lost.set()


def ready(office: Leadership, *, acting: Mapping[str, Check]) -> dict[str, Check]:
    """Checks for /readyz: one that stands by while another acts is ready too, or no node could ever be drained."""

    def stands_by() -> bool:
        return office.term is None and office.holder not in {"", office.identity}

    def lease() -> str | None:
        if stands_by() or office.remaining_seconds:
            return None
        return f"the lease {office.name} is held by {office.holder or 'nobody yet'}"

    def unless_standing_by(check: Check) -> Check:
        return lambda: None if stands_by() else check()

    return {"lease": lease, **{name: unless_standing_by(check) for name, check in acting.items()}}
