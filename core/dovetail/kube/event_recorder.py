"""Records Kubernetes Events, which `kubectl describe` shows. Events are for people: their loss is logged and harmless.

A recorder sends in the background, slowly while its process has more urgent work. An event that still waits is replaced
by a newer one about the same object, unless it is a warning or adds to others. Each event has the time when it
happened, however late it is sent.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dovetail.api.builtin import Event, ObjectReference, Severity
from dovetail.api.resources import EVENTS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, ServerFault, TooManyRequests, Unreachable
from dovetail.kube.event_correlator import DEFAULT_LIMITS, EventCorrelator, EventLimits, Occurrence
from dovetail.kube.retry import JITTER, Backoff
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger

log = get_logger("dovetail.events")

Outcome = Literal["posted", "replaced", "dropped"]

# The API server's limits.
_LONGEST_MESSAGE: Final = 1024
_LONGEST_PREFIX: Final = 50
# Where kubectl looks for events about cluster-scoped objects.
_NO_NAMESPACE: Final = "default"
_HANDS: Final = 2
_BACKOFF: Final = Backoff(first_seconds=1.0)
_PASSING: Final = (Unreachable, TooManyRequests, ServerFault)


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a recorder sends.

    pause_seconds        pause of each of two workers before an event: at most about 70 events per second are sent
    busy_pause_seconds   the same while the process is busy: at most 10 events per second
    calm_seconds         time for which the process counts as busy afterwards, because work comes in bursts
    max_queued_events    events that may wait; the oldest ones beyond are dropped
    max_tries_per_event  requests for one event before it is dropped
    backoff              waits between them
    """

    pause_seconds: float = 0.02
    busy_pause_seconds: float = 0.2
    calm_seconds: float = 1.0
    max_queued_events: int = 5_000
    max_tries_per_event: int = 5
    backoff: Backoff = _BACKOFF


DEFAULT_PACE: Final = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """An event that is to be sent, and how often that failed."""

    event: Occurrence
    tries: int = 0


class EventRecorder:
    """Takes events by `event` and sends them while `run` goes on.

    `is_busy` says whether the process has more urgent work, `count` gets the outcome of each event. `clock` is
    monotonic, in seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        limits: EventLimits = DEFAULT_LIMITS,
        pace: Pace = DEFAULT_PACE,
        is_busy: Callable[[], bool] = lambda: False,
        count: Callable[[Outcome], None] = lambda _: None,
        now: Callable[[], datetime] = _utc_now,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random = JITTER,
    ) -> None:
        self._client = client
        self._component = component
        self._correlator = EventCorrelator(limits)
        self._pace = pace
        self._is_busy = is_busy
        self._count = count
        self._now = now
        self._clock = clock
        self._rng = rng
        self._queue = WorkQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._busy_until = float("-inf")

    def event(
        self,
        about: ObjectReference,
        *,
        severity: Severity,
        reason: str,
        message: str,
        host: str = "",
        adds: bool = False,
    ) -> None:
        """Send an event in the background. `host` is the node that reports it, if a node does.

        `adds` keeps it from being replaced by a newer event about the object, and from replacing one.
        """
        at = self._now()
        seen = Occurrence(
            about=about,
            severity=severity,
            reason=reason,
            message=message,
            first=at,
            last=at,
            host=host,
            adds=adds,
        )
        found = self._correlator.correlate(seen, now=self._clock())
        if isinstance(found, Occurrence):
            self._put(found)
        else:
            self._count("replaced" if found == "repeated" else "dropped")

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queue.serve(
            self._send, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=self._pace.backoff
        )

    def pause_seconds(self) -> float:
        """How long a worker pauses before its next event."""
        now = self._clock()
        if self._is_busy():
            self._busy_until = now + self._pace.calm_seconds
        return self._pace.busy_pause_seconds if now < self._busy_until else self._pace.pause_seconds

    def _put(self, event: Occurrence) -> None:
        key = _place(event)
        if (waiting := self._waiting.get(key)) is not None:
            self._count("replaced")
            if waiting.event.sameness == event.sameness:
                event = waiting.event.followed_by(event)
        elif len(self._waiting) >= self._pace.max_queued_events:
            del self._waiting[next(iter(self._waiting))]
            self._count("dropped")
        self._waiting[key] = _Waiting(event=event)
        self._queue.add(key)

    async def _send(self, key: str) -> None:
        await asyncio.sleep(self.pause_seconds())
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return
        try:
            await self._create(waiting.event)
        except _PASSING as error:
            if waiting.tries + 1 == self._pace.max_tries_per_event:
                self._give_up(waiting.event, error=error)
                return
            # Keep a newer event in its place, if there is one.
            self._waiting.setdefault(key, replace(waiting, tries=waiting.tries + 1))
            raise
        except KubeError as error:
            self._give_up(waiting.event, error=error)
        else:
            self._count("posted")

    async def _create(self, event: Occurrence) -> None:
        body = manifest(event, component=self._component)
        await self._client.create(EVENTS, body=body, as_type=Event, namespace=body["metadata"]["namespace"])

    def _give_up(self, event: Occurrence, *, error: KubeError) -> None:
        self._count("dropped")
        about = f"{event.about.kind} {event.about.namespace}/{event.about.name}"
        log.warning("event not posted", about=about, reason=event.reason, error=str(error))


def manifest(event: Occurrence, *, component: str) -> dict[str, Any]:
    """The Event to create, as `component` reports it. A message over 1,024 characters is cut."""
    about, host = event.about, event.host
    reference = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    return {
        "metadata": {
            "generateName": f"{about.name[:_LONGEST_PREFIX]}.",
            "namespace": about.namespace or _NO_NAMESPACE,
        },
        "involvedObject": reference | ({"namespace": about.namespace} if about.namespace else {}),
        "type": event.severity,
        "reason": event.reason,
        "message": event.message[:_LONGEST_MESSAGE],
        "source": {"component": component} | ({"host": host} if host else {}),
        "reportingComponent": component,
        "reportingInstance": host or component,
        "action": event.reason,
        # `kubectl describe` shows the legacy timestamps. They have whole seconds and give no order within one second.
        "eventTime": event.first.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "firstTimestamp": event.first.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lastTimestamp": event.last.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "count": event.count,
    }


def _place(event: Occurrence) -> str:
    """The key of an event that waits: a newer event with the same key replaces it."""
    return event.about.uid if event.severity == "Normal" and not event.adds else "/".join(event.sameness)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log.warning("an event is tried again", about=key, error=str(error), wait_seconds=round(wait, 1))
