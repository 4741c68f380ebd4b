"""The operator's events about GPUJobs, and the metric that counts them."""

import random
from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from dovetail.api.builtin import ObjectReference
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import DEFAULT_PACE, EventRecorder, Outcome, Pace
from dovetail_operator.events.announcement import Announcement

COMPONENT: Final = "dovetail-operator"


class JobEvents:
    """Takes announcements by `post` and sends them as events while `run` goes on.

    `is_busy` says whether the operator has more urgent work.
    """

    def __init__(
        self,
        client: Client,
        *,
        is_busy: Callable[[], bool],
        registry: CollectorRegistry,
        now: Callable[[], datetime],
        rng: random.Random,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self._outcomes = Counter(
            "dovetail_events", "Kubernetes events by what became of them.", ["outcome"], registry=registry
        )
        for outcome in ("posted", "replaced", "dropped"):
            self._outcomes.labels(outcome)
        self._recorder = EventRecorder(
            client, component=COMPONENT, pace=pace, is_busy=is_busy, count=self._count, now=now, rng=rng
        )

    def post(self, news: Announcement) -> None:
        """Send an event in the background."""
        about = ObjectReference(
            api_version=news.of.api_version,
            kind=news.of.kind,
            name=news.about.name,
            namespace=news.about.namespace,
            uid=news.about.uid,
        )
        self._recorder.event(about, severity=news.severity, reason=news.reason, message=news.message, adds=news.adds)

    async def run(self) -> None:
        """Send until cancelled."""
        await self._recorder.run()

    def _count(self, outcome: Outcome) -> None:
        self._outcomes.labels(outcome).inc()
