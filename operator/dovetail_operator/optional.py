"""Parts of the operator that are loaded once the configuration or an object asks for them.

history         with its database, unless `history_url` says that none is kept
reshaping       once GPUs in MIG mode may be partitioned again, or one is to be finished
notifications   with a server, or with the first job that asks for them
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from dovetail.api.gpujob import GPUJob
from dovetail.config.errors import ConfigError
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.options import Options
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State

if TYPE_CHECKING:
    from dovetail_operator.history.answers import Answers
    from dovetail_operator.history.service import HistoryService
    from dovetail_operator.notifications.notifier import Notifier
    from dovetail_operator.queue.reshaping.requests import Reshaper

_LOOK_SECONDS: Final = 1.0


def load_history(
    client: Client,
    *,
    options: Options,
    state: State,
    dues: Dues,
    registry: CollectorRegistry,
    now: Callable[[], datetime],
    rng: random.Random,
) -> "HistoryService | Answers":
    """Load the history, or what says that none is kept. Raises `ConfigError` for a database that it cannot use."""
    if not options.keeps_history:
        from dovetail.api.reasons.problems import NO_HISTORY  # noqa: PLC0415 - optional
        from dovetail_operator.history.answers import Answers, refused  # noqa: PLC0415 - optional

        return Answers(client, answer=lambda _query: refused(NO_HISTORY()))

    from dovetail_operator.history.service import build_history  # noqa: PLC0415 - optional
    from dovetail_operator.history.store import HistoryError  # noqa: PLC0415 - optional

    try:
        return build_history(
            client,
            state=state,
            url=options.history_url,
            dues=dues,
            keep_days=options.history_days,
            registry=registry,
            now=now,
            rng=rng,
        )
    except HistoryError as error:
        raise ConfigError("history_url", problem=str(error)) from error


class OptionalReshaping:
    """Carries out changes of GPUs, from the time on at which the configuration enables them or a GPU has a request."""

    def __init__(
        self,
        client: Client,
        *,
        options: Options,
        state: State,
        changed: Callable[[str], None],
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._options = options
        self._state = state
        self._changed = changed
        self._post = post
        self._now = now

    async def run(self) -> None:
        """Run until cancelled."""
        # The state sets no event for either, and the part itself looks as often.
        while not self._state.reshape.enabled and not self._state.store.reshaped:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_LOOK_SECONDS)
        await self.load().run()

    def load(self) -> "Reshaper":
        """Build the part."""
        from dovetail_operator.queue.reshaping.requests import Reshaper  # noqa: PLC0415 - optional

        return Reshaper(
            self._client,
            state=self._state,
            drain_seconds=self._options.bind_seconds,
            changed=self._changed,
            post=self._post,
            now=self._now,
        )


class OptionalNotifications:
    """Passes jobs to the notifier, from the first on that asks for notifications."""

    def __init__(
        self,
        client: Client,
        *,
        options: Options,
        post: Callable[[Announcement], None],
        registry: CollectorRegistry,
        rng: random.Random,
    ) -> None:
        """Raises `ValueError` for a server that cannot be used."""
        self._client = client
        self._options = options
        self._post = post
        self._registry = registry
        self._rng = rng
        self._asked = asyncio.Event()
        self._notifier: Notifier | None = None
        if options.notify_url:
            self.load()

    def observe(self, job: GPUJob) -> None:
        """Take an observed job."""
        if self._notifier is not None:
            self._notifier.observe(job)
        elif job.spec.notify is not None:
            self.load().observe(job)

    def drop(self, job: GPUJob) -> None:
        """Take a deleted job."""
        if self._notifier is not None:
            self._notifier.drop(job)

    async def run(self) -> None:
        """Send until cancelled."""
        await self._asked.wait()
        await self.load().run()

    def load(self) -> "Notifier":
        """Build the notifier, once."""
        if self._notifier is None:
            from dovetail_operator.notifications.notifier import build_notifier  # noqa: PLC0415 - optional

            self._notifier = build_notifier(
                self._client,
                url=self._options.notify_url,
                sender=self._options.notify_from,
                post=self._post,
                registry=self._registry,
                rng=self._rng,
                domains=self._options.notify_domains,
                per_hour=self._options.notify_per_hour,
            )
            self._asked.set()
        return self._notifier
