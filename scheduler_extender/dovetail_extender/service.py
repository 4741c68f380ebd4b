"""One extender, assembled over one client: cluster view, decisions, binds and periodic work."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import ReservedRoom
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail.cluster.dra_drivers import ABSENT_SECONDS
from dovetail.cluster.view import build_view
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Limits, Weights
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.logs import get_logger
from dovetail.process import serving
from dovetail.process.guarded_loops import Guard, repeat
from dovetail.process.serving import Check
from dovetail_extender.bind.binder import Binder
from dovetail_extender.cluster.informers import Watching
from dovetail_extender.cluster.wake_up import Waking
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.decide.quotas import PodQuotas
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.holds.nominations import Nominations
from dovetail_extender.holds.planned_workers import PlannedJob, Plans
from dovetail_extender.metrics import Metrics, Reading
from dovetail_extender.server import Verbs

log = get_logger(__name__)

CHORES_SECONDS: Final = 1.0
# After this time without a request, the extender yields the lease to another extender that receives requests.
IDLE_SECONDS: Final = 5.0
LEARNING_PAUSE_SECONDS: Final = 0.02
DEFAULT_NAMESPACE: Final = "dovetail-system"
LEASE: Final = "dovetail-extender"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the configuration sets for the extender.

    rules                        how pods are decided: policies, fragmentation, time of a hold
    limits                       how much of a device and of a node may be promised
    weights                      the weights of the score's terms
    smoothing_seconds            time constant of the smoothed utilization
    measurement_max_age_seconds  age from which a measurement no longer counts
    bind_deadline_seconds        how long one bind may take
    vendors                      the resource names of device vendors, and how to read them
    slices_absent_seconds        how long a DRA driver's ResourceSlices must be absent before its nodes open
    namespace                    the namespace of the extender's own objects
    """

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    weights: Weights = DEFAULT_WEIGHTS
    smoothing_seconds: float = 120.0
    measurement_max_age_seconds: float = 660.0
    bind_deadline_seconds: float = 4.0
    vendors: Vendors = DEFAULT_VENDORS
    slices_absent_seconds: float = ABSENT_SECONDS
    namespace: str = DEFAULT_NAMESPACE


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
        self._view = view = build_view(
            limits=options.limits,
            weights=options.weights,
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
        self.watching = Watching(client, view=view, on_pod=self._on_pod, on_job=self._on_job, on_quota=self._on_quota)
        self._binder = Binder(
            ledger=self.ledger,
            pods=self.watching,
            office=leadership,
            decisions=decisions,
            deadline_seconds=options.bind_deadline_seconds,
            clock=clock,
        )
        self.metrics = Metrics(ledger=self.ledger, read=self._read)
        self._waking = Waking(client, waiting=self._waiting, namespace=options.namespace, metrics=self.metrics)
        self.verbs = Verbs(
            decisions=decisions,
            waiting=self._waiting,
            binder=self._binder,
            preempting=Preempting(
                ask=decisions.ask, nominations=self.nominations, pods=self.watching.pods, clock=clock
            ),
            obstacle=self.obstacle,
            on_request=self._on_request,
            metrics=self.metrics,
        )

    async def run(self) -> None:
        """Acquire the lease, then watch and do the periodic work until cancelled.

        Raises `LeaseLostError`, in an exception group.
        """
        await self._leadership.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leadership.keep(), name="lease")
            group.create_task(self._act(), name="acting")

    def obstacle(self) -> str:
        """Why the extender cannot answer requests now; empty when it can."""
        leadership = self._leadership
        if leadership.term is None:
            return f"the lease {leadership.name} is held by {leadership.holder or 'nobody yet'}"
        if not self._calm:
            return f"binds of the lease's last holder may still be on their way for {self._bind_deadline_seconds:g} s"
        missing = self.watching.missing
        return f"{', '.join(missing)} are not listed yet" if missing else ""

    def ready(self) -> dict[str, Check]:
        """The readiness checks: the lease is held, and requests can be answered."""

        def lease() -> str | None:
            return None if self._leadership.remaining_seconds else "the lease is not ours now"

        return {"lease": lease, "answers": lambda: self.obstacle() or None}

    async def until_wanted_elsewhere(self) -> None:
        """Return when this extender no longer receives requests and another extender does.

        Each kube-scheduler calls the extender in its own pod. Where several such pods run, the lease must move to the
        extender whose kube-scheduler leads.
        """
        while not self._is_wanted_elsewhere():  # noqa: ASYNC110 - time passes, which has no event
            await asyncio.sleep(CHORES_SECONDS)
        log.info("making way", lease=self._leadership.name, wanted_by=self._leadership.wanted_by)

    async def resign(self) -> None:
        """Release the lease, so that the next extender starts at once, unless a bind is unsettled."""
        if not self._binder.unsettled:
            await self._leadership.release()

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

    def _on_pod(self, event: EventType, pod: Pod) -> None:
        gone = event == "DELETED"
        if gone or pod.spec.node_name:
            self._waiting.forget(pod.metadata.uid)
        (self.nominations.pod_gone if gone else self.nominations.pod_changed)(pod)
        (self.plans.pod_gone if gone else self.plans.pod_changed)(pod)
        self.quotas.pod_event(event, pod)

    def _on_quota(self, event: EventType, quota: GPUQuota) -> None:
        self.quotas.quota_event(event, quota)
        self._decisions.tenancies.quota_event(event, quota)
        kept = [] if event == "DELETED" else quota.status.kept
        room = ReservedRoom(time="", nodes=[], kept=kept) if kept else None
        self.plans.reserved.job_changed(f"quota/{quota.metadata.name}", room)

    def _on_job(self, event: EventType, job: PlannedJob) -> None:
        gone = event == "DELETED"
        (self.plans.job_gone if gone else self.plans.job_changed)(job)
        tenancies = self._decisions.tenancies
        (tenancies.job_gone if gone else tenancies.job_changed)(job)
        placement = None if gone else job.status.placement
        workers = 0 if placement is None else sum(node.workers for node in placement.nodes)
        self.quotas.job_planned(namespace=job.metadata.namespace, uid=job.metadata.uid, workers=workers)

    async def _act(self) -> None:
        if self._leadership.vacancy != "released":
            # The previous holder may still have binds in flight. They end by their deadline; only a list made after it
            # shows all of them.
            await asyncio.sleep(self._bind_deadline_seconds)
        self._calm = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watching.run(), name="watching")
            # Separate tasks: settling waits for the API server, and the expiry of holds must not wait for that.
            group.create_task(repeat(self._let_time_pass, every_seconds=CHORES_SECONDS, what="time"), name="time")
            group.create_task(repeat(self.settle, every_seconds=CHORES_SECONDS, what="binds"), name="binds")
            group.create_task(self._waking.run(), name="waking")
            group.create_task(self._learn_again_and_again(), name="learning")
            group.create_task(self._keep_what_was_listed(), name="memory")
            group.create_task(self._learn_from_those_here(), name="experience")

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

    def expire_holds(self) -> None:
        """Release the holds that have expired, then review nominations and plans."""
        for claim in self.ledger.expire_holds(self._clock()):
            log.info("hold expired", pod_uid=claim.key, node=claim.node)
        self.nominations.review()
        self.plans.review()

    def age_measurements(self) -> None:
        """Advance the smoothed utilization, and drop measurements that are too old."""
        for note in self._view.time_passes():
            log.warning("measurements do not count", why=note)

    def open_nodes(self) -> None:
        """Open the nodes whose DRA driver has been absent for `slices_absent_seconds`."""
        self._view.drivers_pass()

    async def settle(self) -> None:
        """Settle the binds that the cache does not show."""
        await self._binder.settle()

    async def wake(self) -> None:
        """Wake the unschedulable pods that would fit now."""
        await self._waking.look()

    async def drain(self) -> None:
        """Wait for the running binds; each ends by its deadline."""
        await self._binder.drain()

    def _let_time_pass(self) -> None:
        self.expire_holds()
        self.age_measurements()
        self.open_nodes()

    async def _keep_what_was_listed(self) -> None:
        await self._listed()
        serving.keep_for_good()

    async def _listed(self) -> None:
        while self.watching.missing:  # noqa: ASYNC110 - of several lists that are on their way
            await asyncio.sleep(CHORES_SECONDS)

    async def _learn_from_those_here(self) -> None:
        """Learn the usual mix from the pods in the cluster, so that a restart keeps it."""
        await self._listed()
        with Guard("learning from the pods that are here").around():
            for _ in self._decisions.count_pods(list(self.watching.pods())):
                await asyncio.sleep(LEARNING_PAUSE_SECONDS)

    async def _learn_again_and_again(self) -> None:
        fragments = self._decisions.fragments
        if fragments.shortcoming:
            log.warning(fragments.shortcoming)
        # In small steps: Python code in another thread delays the event loop.
        guard = Guard("learning")
        while True:
            more = False
            with guard.around():
                if not self.obstacle():
                    # Take in new nodes here, not within a request: they can arrive by the hundred.
                    fragments.follow()
                more = await asyncio.to_thread(fragments.work)
            await asyncio.sleep(LEARNING_PAUSE_SECONDS if more else CHORES_SECONDS)
