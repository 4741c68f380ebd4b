"""Records Kubernetes events in the background. Status writes come first.

While the operator is busy, events are sent slowly. A Normal event is then replaced by the next one about the same job,
so that the event shows the job's current state. Each event has the time when it happened, however late it is sent.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from dovetail.api.builtin import Event
from dovetail.api.gpujob import KIND
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.api.resources import EVENTS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, ServerFault, TooManyRequests, Unreachable
from dovetail.kube.event_recorder import event
from dovetail.kube.retry import Backoff
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail.names import API_VERSION
from dovetail_operator.events.announcement import Announcement

log = get_logger("dovetail.operator.events")

COMPONENT: Final = "dovetail-operator"
_HANDS: Final = 2
# Each worker pauses before an event, so that the backlog after a busy time causes no burst: at most about 70 events per
# second are sent, and 10 while the operator is busy.
_REST_SECONDS: Final = 0.02
_REST_SECONDS_IN_A_RUSH: Final = 0.2
# Work comes in bursts, one per cycle of the queue: the operator counts as busy between them.
_CALM_SECONDS: Final = 1.0
_MOST_WAITING: Final = 5_000
_MOST_TRIES: Final = 5
_BACKOFF: Final = Backoff(first_seconds=1.0)
_PASSING: Final = (Unreachable, TooManyRequests, ServerFault)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """An event that is to be sent, and when it happened."""

    news: Announcement
    at: datetime
    tries: int = 0


class Poster:
    """Takes events by `post` and sends them while `run` goes on.

    `in_a_rush` says whether the operator has more urgent work.
    """

    def __init__(
        self,
        client: Client,
        *,
        in_a_rush: Callable[[], bool],
        registry: CollectorRegistry,
        now: Callable[[], datetime],
        rng: random.Random,
        rest_seconds_in_a_rush: float = _REST_SECONDS_IN_A_RUSH,
    ) -> None:
        self._client = client
        self._in_a_rush = in_a_rush
        self._now = now
        self._rng = rng
        self._rest_seconds_in_a_rush = rest_seconds_in_a_rush
        self._queue = WorkQueue()
        self._waiting: dict[str, _Waiting] = {}
        self._rush_until = 0.0
        self._count = Counter(
            "dovetail_events", "Kubernetes events by what became of them.", ["outcome"], registry=registry
        )
        for outcome in ("posted", "replaced", "dropped"):
            self._count.labels(outcome)

    def post(self, news: Announcement) -> None:
        """Send an event in the background. A warning is only replaced by the same warning."""
        key = f"{news.about.uid}/{news.reason if news.severity == 'Warning' else ''}"
        if key in self._waiting:
            self._count.labels("replaced").inc()
        elif len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._count.labels("dropped").inc()
        # The rest of a job's metadata may be large and is not needed for the event.
        about = ObjectMeta(name=news.about.name, namespace=news.about.namespace, uid=news.about.uid)
        self._waiting[key] = _Waiting(news=replace(news, about=about), at=self._now())
        self._queue.add(key)

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queue.serve(self._send, hands=_HANDS, failed=_tried_again, rng=self._rng, backoff=_BACKOFF)

    async def _send(self, key: str) -> None:
        await asyncio.sleep(self.rest_seconds(now=time.monotonic()))
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return
        try:
            await self._create(waiting)
        except _PASSING as error:
            if waiting.tries + 1 == _MOST_TRIES:
                self._give_up(waiting, error)
                return
            # Keep a newer event of the job, if there is one.
            self._waiting.setdefault(key, replace(waiting, tries=waiting.tries + 1))
            raise
        except KubeError as error:
            self._give_up(waiting, error)
        else:
            self._count.labels("posted").inc()

    def rest_seconds(self, *, now: float) -> float:
        """How long a worker pauses before its next event.

        All times are in seconds of a monotonic clock.
        """
        if self._in_a_rush():
            self._rush_until = now + _CALM_SECONDS
        return self._rest_seconds_in_a_rush if now < self._rush_until else _REST_SECONDS

    async def _create(self, waiting: _Waiting) -> None:
        news = waiting.news
        about = {"name": news.about.name, "namespace": news.about.namespace, "uid": news.about.uid}
        body = event(
            {"apiVersion": API_VERSION, "kind": KIND, **about},
            component=COMPONENT,
            instance=COMPONENT,
            severity=news.severity,
            reason=news.reason,
            message=news.message,
            at=waiting.at,
        )
        await self._client.create(EVENTS, body, as_type=Event, namespace=news.about.namespace)

    def _give_up(self, waiting: _Waiting, error: KubeError) -> None:
        self._count.labels("dropped").inc()
        news = waiting.news
        log.warning("event not posted", job=key_of(news.about), reason=news.reason, error=str(error))


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log.warning("an event is tried again", about=key, error=str(error), wait_seconds=round(wait, 1))
