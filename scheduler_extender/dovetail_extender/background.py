"""The extender's work between requests: time passes, binds are settled, the usual workload mix is learned.

An error in one loop affects neither that loop's next round nor any other loop.

A module of its own: work without a request, where `service` answers requests.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP
from dovetail.kube.client import Client
from dovetail.logs import get_logger
from dovetail.process import heap
from dovetail.process.guarded_loops import repeat
from dovetail.process.mix_learning import STEP_PAUSE_SECONDS, MixLearning
from dovetail_extender.bind.binder import Binder
from dovetail_extender.cluster.informers import Watching
from dovetail_extender.decide.filter_score import Decisions

log = get_logger(__name__)

_EVERY_SECONDS: Final = 1.0


class Background:
    """The loops of one extender. `obstacle` says why requests cannot be answered now, empty if they can.

    `namespace` is that of the extender's own objects.
    """

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
        client: Client,
        namespace: str,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._decisions = decisions
        self._binder = binder
        self._watching = watching
        self._clock = clock
        self._learning = MixLearning(
            client,
            term=decisions.fragments,
            name=EXTENDER_CONFIGMAP,
            namespace=namespace,
            count_present=self._count_present_pods,
            is_ready=lambda: not obstacle(),
            clock=clock,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            # Separate tasks: settling waits for the API server, and the expiry of holds must not wait for that.
            group.create_task(repeat(self.let_time_pass, every_seconds=_EVERY_SECONDS, what="time"), name="time")
            group.create_task(repeat(self.settle, every_seconds=_EVERY_SECONDS, what="binds"), name="binds")
            group.create_task(self._learning.run(), name="learning")
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

    async def _count_present_pods(self) -> None:
        """Learn the mix from the pods in the cluster."""
        await self._listed()
        for _ in self._decisions.count_pods(list(self._watching.pods())):
            await asyncio.sleep(STEP_PAUSE_SECONDS)

    async def _freeze_listed_objects(self) -> None:
        await self._listed()
        heap.keep_for_good()

    async def _listed(self) -> None:
        while self._watching.missing:  # noqa: ASYNC110 - several lists, whose end has no common event
            await asyncio.sleep(_EVERY_SECONDS)
