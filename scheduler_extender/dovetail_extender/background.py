"""The extender's work between requests: time passes, binds are settled, the usual workload mix is learned.

An error in one loop affects neither that loop's next round nor any other loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail.process.guarded_loops import Guard, repeat
from dovetail_extender.bind.binder import Binder
from dovetail_extender.cluster.informers import Watching
from dovetail_extender.decide.filter_score import Decisions

log = get_logger(__name__)

_EVERY_SECONDS: Final = 1.0
# Between two small steps of learning, because Python code in another thread delays the event loop.
_STEP_PAUSE_SECONDS: Final = 0.02


class Background:
    """The loops of one extender. `obstacle` says why requests cannot be answered now, empty if they can."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        view: ClusterView,
        decisions: Decisions,
        binder: Binder,
        watching: Watching,
        obstacle: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._decisions = decisions
        self._binder = binder
        self._watching = watching
        self._obstacle = obstacle
        self._clock = clock

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            # Separate tasks: settling waits for the API server, and the expiry of holds must not wait for that.
            group.create_task(repeat(self.let_time_pass, every_seconds=_EVERY_SECONDS, what="time"), name="time")
            group.create_task(repeat(self.settle, every_seconds=_EVERY_SECONDS, what="binds"), name="binds")
            group.create_task(self._learn(), name="learning")
            group.create_task(self._learn_from_present_pods(), name="experience")
            group.create_task(self._freeze_listed_objects(), name="memory")

    def let_time_pass(self) -> None:
        """Release expired holds, drop old measurements, and open nodes whose DRA driver is gone."""
        self._expire_holds()
        for note in self._view.time_passes():
            log.warning("measurements do not count", why=note)
        self._view.drivers_pass()

    async def settle(self) -> None:
        """Settle the binds that the cache does not show."""
        await self._binder.settle()

    def _expire_holds(self) -> None:
        for claim in self._ledger.expire_holds(self._clock()):
            log.info("hold expired", pod_uid=claim.key, node=claim.node)
        self._decisions.nominations.review()
        self._decisions.plans.review()

    async def _learn(self) -> None:
        fragments = self._decisions.fragments
        if fragments.shortcoming:
            log.warning(fragments.shortcoming)
        guard = Guard("learning")
        while True:
            more = False
            with guard.around():
                if not self._obstacle():
                    # Take in new nodes here, not within a request: they can arrive by the hundred.
                    fragments.follow()
                more = await asyncio.to_thread(fragments.work)
            await asyncio.sleep(_STEP_PAUSE_SECONDS if more else _EVERY_SECONDS)

    async def _learn_from_present_pods(self) -> None:
        """Learn the usual mix from the pods in the cluster, so that a restart keeps it."""
        await self._listed()
        with Guard("learning from the pods that are here").around():
            for _ in self._decisions.count_pods(list(self._watching.pods())):
                await asyncio.sleep(_STEP_PAUSE_SECONDS)

    async def _freeze_listed_objects(self) -> None:
        await self._listed()
        serving.keep_for_good()

    async def _listed(self) -> None:
        while self._watching.missing:  # noqa: ASYNC110 - several lists, whose end has no common event
            await asyncio.sleep(_EVERY_SECONDS)
