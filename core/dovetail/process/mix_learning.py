"""Learns the workload mix in the background and stores it in a ConfigMap, across restarts.

A mix can be learned again. A failed read or write is therefore only logged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.decoding import UnreadableError
from dovetail.engine.score.live_fragmentation import LiveFragmentation
from dovetail.engine.score.mix_record import KEY, record_in, text_of
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.queries.configmaps import put_data
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import Guard, repeat

log = get_logger(__name__)

_EVERY_SECONDS: Final = 1.0
# Between two small steps of learning, because Python code in another thread delays the event loop.
STEP_PAUSE_SECONDS: Final = 0.02
# How often it is looked whether there is something to store.
_STORE_SECONDS: Final = 10.0
# What was counted is stored so often while the mix in use stays the same.
_COUNTED_SECONDS: Final = 60.0


class MixLearning:
    """Lets `term` learn. It is stored in the ConfigMap `name` in `namespace`, which nothing else writes.

    `is_ready` says whether the cluster's objects are there. `count_present` counts those of them that arrived before
    this program started; it is called if no mix is stored.
    """

    def __init__(
        self,
        client: Client,
        *,
        term: LiveFragmentation,
        name: str,
        namespace: str,
        count_present: Callable[[], Awaitable[None]],
        is_ready: Callable[[], bool] = lambda: True,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._term = term
        self._name = name
        self._namespace = namespace
        self._count_present = count_present
        self._is_ready = is_ready
        self._clock = clock
        # Whether the stored mix was looked for.
        self.took_up = asyncio.Event()
        self._stored_generation, self._stored_arrivals, self._stored_at = 0, 0, clock()

    async def run(self) -> None:
        """Learn until cancelled."""
        if self._term.shortcoming:
            log.warning(self._term.shortcoming)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work(), name="learning")
            group.create_task(self._remember(), name="experience")

    async def take_up(self) -> bool:
        """Restore the stored mix; whether there was one."""
        try:
            found = await self._client.get(CONFIGMAPS, name=self._name, as_type=ConfigMap, namespace=self._namespace)
            record = record_in(found.data)
        except NotFound:
            return False
        except (KubeError, UnreadableError) as error:
            log.warning("the learned mix cannot be read", configmap=self._name, error=str(error))
            return False
        if record is None:
            return False
        self._term.restore(record)
        self._stored_arrivals = self._term.all_arrivals
        return True

    async def keep(self) -> None:
        """Store the mix if the one in use has changed, or every minute if something was counted."""
        generation, arrivals, now = self._term.generation, self._term.all_arrivals, self._clock()
        if arrivals == self._stored_arrivals:
            return
        if generation == self._stored_generation and now - self._stored_at < _COUNTED_SECONDS:
            return
        try:
            data = {KEY: text_of(self._term.record())}
            # It has one writer, and what is lost is learned again.
            await put_data(self._client, name=self._name, namespace=self._namespace, data=data)
        except KubeError as error:
            log.warning("the learned mix cannot be stored", configmap=self._name, error=str(error))
        else:
            self._stored_generation, self._stored_arrivals, self._stored_at = generation, arrivals, now

    async def _remember(self) -> None:
        with Guard("the learned mix").around():
            if not await self.take_up():
                await self._count_present()
        self.took_up.set()
        await repeat(self.keep, every_seconds=_STORE_SECONDS, what="the learned mix")

    async def _work(self) -> None:
        guard = Guard("learning")
        while True:
            more = False
            with guard.around():
                if self._is_ready():
                    # Take in new nodes here, not within a decision: they can arrive by the hundred.
                    self._term.follow()
                more = await asyncio.to_thread(self._term.work)
            await asyncio.sleep(STEP_PAUSE_SECONDS if more else _EVERY_SECONDS)
