"""One extender, assembled over one client: informers, decisions, binds, verbs and background work."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dovetail.cluster.dra_drivers import ABSENT_SECONDS
from dovetail.cluster.view import build_view
from dovetail.engine.model.settings import Limits
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Delivery, Vendors
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.logs import get_logger
from dovetail.process.serving import Check
from dovetail_extender.background import Background
from dovetail_extender.bind.binder import Binder
from dovetail_extender.cluster.event_handlers import EventHandlers
from dovetail_extender.cluster.informers import Watching
from dovetail_extender.cluster.wake_up import Waking
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.decide.quotas import PodQuotas
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.holds.nominations import Nominations
from dovetail_extender.holds.planned_workers import Plans
from dovetail_extender.metrics import Metrics, Reading
from dovetail_extender.server import Verbs

log = get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
# After this time without a request, the extender yields the lease to another extender that receives requests.
IDLE_SECONDS: Final = 5.0
DEFAULT_NAMESPACE: Final = "dovetail-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the configuration sets for the extender.

    rules                        how pods are decided: rankings, fragmentation, time of a hold
    limits                       how much of a device and of a node may be promised
    smoothing_seconds            time constant of the smoothed utilization
    measurement_max_age_seconds  age from which a measurement no longer counts
    bind_deadline_seconds        how long one bind may take
    vendors                      the resource names of device vendors, and how to read them
    slices_absent_seconds        how long a DRA driver's ResourceSlices must be absent before its nodes open
    namespace                    the namespace of the extender's own objects
    delivery                     how containers get their devices
    """

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    smoothing_seconds: float = 120.0
    measurement_max_age_seconds: float = 660.0
    bind_deadline_seconds: float = 4.0
    vendors: Vendors = DEFAULT_VENDORS
    slices_absent_seconds: float = ABSENT_SECONDS
    namespace: str = DEFAULT_NAMESPACE
    delivery: Delivery = "RuntimeClass"


class Extender:
    """One extender. The caller serves `verbs` while `run()` is running."""

    def __init__(
        self,
        client: Client,
        *,
        options: Options,
        leadership: Leadership,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        view = build_view(
            limits=options.limits,
            smoothing_seconds=options.smoothing_seconds,
            max_age_seconds=options.measurement_max_age_seconds,
            vendors=options.vendors,
            absent_seconds=options.slices_absent_seconds,
            clock=clock,
        )
        self.ledger = view.ledger
        self._leadership = leadership
        self._calm = False
        self._asked_at = float("-inf")
        self._bind_deadline_seconds = options.bind_deadline_seconds
        self._clock = clock
        self._decisions = decisions = Decisions(view=view, rules=options.rules, clock=clock)
        self._waiting = Waiting(ledger=self.ledger, clock=clock)
        handlers = EventHandlers(decisions=decisions, waiting=self._waiting)
        self.watching = Watching(
            client, view=view, on_pod=handlers.pod_event, on_job=handlers.job_event, on_quota=handlers.quota_event
        )
        self._binder = Binder(
            ledger=self.ledger,
            pods=self.watching,
            jobs=self.watching,
            gpunodes=self.watching,
            office=leadership,
            decisions=decisions,
            deadline_seconds=options.bind_deadline_seconds,
            clock=clock,
            delivery=options.delivery,
        )
        self.metrics = Metrics(ledger=self.ledger, read=self._read)
        self.waking = Waking(client, waiting=self._waiting, namespace=options.namespace, metrics=self.metrics)
        self.verbs = Verbs(
            decisions=decisions,
            waiting=self._waiting,
            binder=self._binder,
            preempting=Preempting(
                ask=decisions.ask,
                nominations=self.nominations,
                pods=self.watching.pods,
                budgets=self.watching.budgets,
                clock=clock,
            ),
            obstacle=self.obstacle,
            on_request=self._on_request,
            metrics=self.metrics,
        )
        self.background = Background(
            ledger=self.ledger,
            view=view,
            decisions=decisions,
            binder=self._binder,
            watching=self.watching,
            obstacle=self.obstacle,
            clock=clock,
            client=client,
            namespace=options.namespace,
        )

    async def run(self) -> None:
        """Acquire the lease, then watch and do the background work until cancelled.

        Raises `LeaseLostError`, in an exception group.
        """
        await self._leadership.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leadership.keep(), name="lease")
            group.create_task(self._act(), name="acting")

    def configure(self, options: Options) -> None:
        """Apply changed options: those of their values that count at once."""
        self._decisions.configure(options.rules, limits=options.limits)

    def obstacle(self) -> str:
        """Why the extender cannot answer requests now; empty when it can."""
        leadership = self._leadership
        if leadership.term is None:
            holder = leadership.holder
            return f"the lease {leadership.name} {f'is held by {holder}' if holder else 'has no holder yet'}"
        if not self._calm:
            return f"binds of the lease's last holder may still be on their way for {self._bind_deadline_seconds:g} s"
        missing = self.watching.missing
        return f"{', '.join(missing)} are not listed yet" if missing else ""

    def ready(self) -> dict[str, Check]:
        """The readiness checks of callers: the lease is held, and requests can be answered."""

        def lease() -> str | None:
            return None if self._leadership.remaining_seconds else "the lease is not ours now"

        return {"lease": lease, "answers": lambda: self.obstacle() or None}

    def pod_ready(self) -> dict[str, Check]:
        """The readiness checks of the pod. A standby extender is ready too, otherwise no node could be drained."""

        def unless_standby(check: Check) -> Check:
            return lambda: None if self._leadership.is_standby else check()

        return {name: unless_standby(check) for name, check in self.ready().items()}

    @property
    def quotas(self) -> PodQuotas:
        """The quotas over pods that belong to no plan."""
        return self._decisions.quotas

    @property
    def nominations(self) -> Nominations:
        """The pods that kube-scheduler has nominated to nodes."""
        return self._decisions.nominations

    @property
    def plans(self) -> Plans:
        """The plans of jobs, and the room that is reserved for waiting jobs."""
        return self._decisions.plans

    async def until_wanted_elsewhere(self) -> None:
        """Return when this extender no longer receives requests and another extender does.

        Each kube-scheduler calls the extender in its own pod. Where several such pods run, the lease must move to the
        extender whose kube-scheduler leads.
        """
        while not self._is_wanted_elsewhere():  # noqa: ASYNC110 - time passes, which has no event
            await asyncio.sleep(_LOOK_SECONDS)
        log.info("the lease is given up", lease=self._leadership.name, wanted_by=self._leadership.wanted_by)

    async def resign(self) -> None:
        """Release the lease, so that the next extender starts at once, unless a bind is unsettled."""
        if not self._binder.unsettled:
            await self._leadership.release()

    async def drain(self) -> None:
        """Wait for the running binds; each ends by its deadline."""
        await self._binder.drain()

    def _is_wanted_elsewhere(self) -> bool:
        return bool(self._leadership.wanted_by) and self._clock() - self._asked_at >= IDLE_SECONDS

    def _on_request(self) -> None:
        self._asked_at = self._clock()
        self._leadership.wanted = True

    def _read(self) -> Reading:
        measured = self._decisions.fragments.measure()
        nominated, planned, reserved = self.nominations.holding, self.plans.holding, self.plans.reserved.holding
        return Reading(
            in_office=self._leadership.remaining_seconds > 0,
            waiting_pods=len(self._waiting),
            holds={
                "decided": self.ledger.totals().holds - nominated - planned - reserved,
                "nominated": nominated,
                "planned": planned,
                "reserved": reserved,
                "binding": self._binder.unseen,
            },
            unsettled_binds=self._binder.unsettled,
            fragmented_gpus=measured.fragmented_gpus,
            idle_gpus=measured.idle_gpus,
            ages_seconds=self.watching.ages_seconds(),
        )

    async def _act(self) -> None:
        if self._leadership.vacancy != "released":
            # The previous holder may still have binds in flight. They end by their deadline; only a list made after it
            # shows all of them.
            await asyncio.sleep(self._bind_deadline_seconds)
        self._calm = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watching.run(), name="watching")
            group.create_task(self.waking.run(), name="waking")
            group.create_task(self.background.run(), name="background")
