"""Holds for the workers of planned jobs, from the plan until each worker is bound. Pure.

The operator writes the node of each worker to the GPUJob's status. A hold under job UID and worker index keeps that
room before the pod exists, so that no other pod takes it, and again after a worker's pod has failed, until the next one
is bound. A pod counts as a worker of a plan only if its annotation agrees with the status of the GPUJob that owns it;
a guest's pod also only if it has the size of its seat. Workers that the operator has released have no hold.
A hold may cover devices of pods that are leaving; the worker fits once they have left.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import Move, Placement, Policy, QueuePlace, ReservedRoom
from dovetail.api.meta import Described, ObjectMeta, key_of
from dovetail.api.reasons import refusals as says
from dovetail.cluster.view import claim_of_pod
from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import needs_no_room
from dovetail.jobs.plan import PlanOfPod, ask_of, nodes_by_worker, worker_of_plan
from dovetail.jobs.seat import seat_of
from dovetail.logs import get_logger
from dovetail.pods.tenancy import DEFAULT_PRIORITY, job_of
from dovetail_extender.holds.nominations import Nominations
from dovetail_extender.holds.reserved import Reserved

log = get_logger(__name__)

FOR_EVER: Final = float("inf")
OVERTAKEN: Final = says.PLAN_FAILED().message
ELSEWHERE: Final = says.OTHER_NODE().message
OTHER_SIZE: Final = says.OTHER_SEAT().message


class PlannedStatus(Described, frozen=True, kw_only=True):
    """The part of a GPUJob's status about its plan, and about the room that is reserved for it."""

    placement: Placement | None = None
    plans: int = 0
    queue: QueuePlace | None = None
    move: Move | None = None

    @property
    def reserved(self) -> ReservedRoom | None:
        """The room that is held for the job: at the destination of its move, or for its start."""
        if self.move is not None and self.move.reserved is not None:
            return self.move.reserved
        return None if self.queue is None else self.queue.reserved


class Held(Described, frozen=True, kw_only=True):
    """A GPUJob's `spec.reservation`; only its presence counts here."""


class PlannedSpec(Described, frozen=True, kw_only=True):
    """The part of a GPUJob's spec that ranks its pods among other tenants."""

    priority: int = DEFAULT_PRIORITY
    reservation: Held | None = None


class PlannedJob(Described, frozen=True, kw_only=True):
    """The part of a GPUJob that plans and the tenancies of its pods need."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PlannedSpec = PlannedSpec()
    status: PlannedStatus = PlannedStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one worker in a valid plan: its node, and the key of its hold."""

    key: str
    node: str
    job: str
    worker: int


@dataclass(slots=True, kw_only=True)
class _Plan:
    """One job's latest plan: its generation, whether it is valid, its request, nodes and released workers."""

    name: str
    latest: int = 0
    stands: bool = False
    ask: Ask | None = None
    nodes: tuple[str, ...] = ()
    released: frozenset[int] = frozenset()


class Plans:
    """The plans by the job's UID, with the holds of their workers in the ledger.

    The caller must pass on every change of GPUJobs, and every change of pods after the ledger has it.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        fit_cache: FitCache,
        nominations: Nominations,
        vendors: Vendors,
        policy_of: Callable[[str], Policy],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._fit_cache = fit_cache
        self._nominations = nominations
        self._vendors = vendors
        self._policy_of = policy_of
        self._plans: dict[str, _Plan] = {}
        # Pods that need no hold, because they are bound or have succeeded. By job, then by plan: each pod's UID with
        # its worker and job. A pod may be seen before its job, and after it.
        self._settled: dict[str, dict[int, dict[str, tuple[int, str]]]] = {}
        # Places without a hold, by node. The value is the UID of the pod whose bind is running, or empty if there is no
        # room yet.
        self._missing: dict[str, dict[Place, str]] = {}
        self.reserved = Reserved(ledger=ledger, fit_cache=fit_cache, clock=clock)

    @property
    def holding(self) -> int:
        """The number of workers that are not bound yet and have a hold."""
        return sum(self._ledger.is_hold(place.key) for uid in self._plans for place in self._places(uid))

    # --- changes -----------------------------------------------------------------------------------------------

    def job_changed(self, job: PlannedJob) -> None:
        """Take in an added or modified GPUJob."""
        uid, status = job.metadata.uid, job.status
        self.reserved.job_changed(uid, room=status.reserved)
        placement = status.placement
        known = self._plans.get(uid)
        if placement is None and status.plans == 0:
            return
        nodes = () if placement is None else nodes_by_worker(placement)
        released = frozenset(() if placement is None else placement.released)
        # A plan in which lost workers have got other nodes is still the same plan.
        if known is not None and (known.latest, known.stands, known.nodes) == (
            status.plans,
            placement is not None,
            nodes,
        ):
            self._release(known, uid=uid, workers=released)
            return
        self._withdraw(uid)
        self._plans[uid] = plan = _Plan(name=key_of(job.metadata), latest=status.plans)
        if placement is not None:
            self._take_up(plan, placement=placement, namespace=job.metadata.namespace)
            for place in self._places(uid):
                self._hold(place)

    def job_gone(self, job: PlannedJob) -> None:
        """Take in a deleted GPUJob."""
        uid = job.metadata.uid
        self.reserved.job_changed(uid, room=None)
        self._withdraw(uid)
        self._plans.pop(uid, None)
        self._settled.pop(uid, None)

    def pod_changed(self, pod: Pod) -> None:
        """Take in an added or modified pod."""
        said = worker_of_plan(pod)
        if said is not None:
            if needs_no_room(pod):
                self._settle(pod, said=said.plan, worker=said.worker)
            elif is_terminated(pod):
                self._unsettle(pod, said=said.plan)
        self._room_may_be_on(pod.spec.node_name)
        if is_terminated(pod):
            self._left(pod)

    def pod_gone(self, pod: Pod) -> None:
        """Take in a deleted pod."""
        said = worker_of_plan(pod)
        # A worker that has succeeded needs no hold as long as its plan is the latest, also after its pod is gone.
        has_succeeded = pod.status.phase == "Succeeded" and needs_no_room(pod)
        if said is not None and not (has_succeeded and self._is_of_latest(pod, said=said.plan)):
            self._unsettle(pod, said=said.plan)
        self._room_may_be_on(pod.spec.node_name)
        if not is_terminated(pod):
            self._left(pod)

    def review(self) -> None:
        """Create the holds that are missing; call this about every second."""
        for node in list(self._missing):
            self._room_may_be_on(node)
        self.reserved.review()

    # --- pods that are scheduled -------------------------------------------------------------------------------

    def place_of(self, pod: Pod, *, ask: Ask) -> Place | Refusal | None:
        """The pod's place, a refusal if its plan is no longer valid, or None without a plan.

        A pod that is seen before its job's status counts as a pod without a plan, and so does a pod whose worker was
        released: quotas apply to it. A guest's pod of another size than its seat is refused.
        """
        said = worker_of_plan(pod)
        plan = None if said is None else self._plans.get(said.plan.job)
        if said is None or plan is None or _job_of(pod) != plan.name or said.plan.generation > plan.latest:
            return None
        if not plan.stands or said.plan.generation < plan.latest or said.worker >= len(plan.nodes):
            return Refusal(kind="Held", message=OVERTAKEN, text=OVERTAKEN)
        if seat_of(pod) is not None and plan.ask is not None and not _is_alike(ask, planned=plan.ask):
            seat = says.OTHER_SEAT() + says.SEAT_IS(asked=str(ask.gpu), seat=str(plan.ask.gpu))
            return Refusal(kind="Held", message=seat.message, text=OTHER_SIZE)
        if said.worker in plan.released:
            return None
        return _place(said.plan.job, worker=said.worker, node=plan.nodes[said.worker])

    def check(self, place: Place, *, ask: Ask) -> Fit | Refusal:
        """Whether the worker fits on its node now, and with which devices."""
        if self._ledger.claim(place.key) is None:
            self._hold(place)
        return self._fit_cache.check(ask, node=place.node, key=place.key)

    def take(self, place: Place, *, ask: Ask, node: str, key: str) -> Claim | Refusal:
        """Replace the hold of a place by a claim for the pod `key`, or refuse."""
        if node != place.node:
            return Refusal(kind="Held", message=ELSEWHERE, text=ELSEWHERE)
        found = self.check(place, ask=ask)
        if isinstance(found, Refusal):
            return found
        self._ledger.release(place.key)
        # If the bind fails, `review` holds the room again.
        self._missing.setdefault(place.node, {})[place] = key
        return replace(found.claim, key=key)

    # --- holds -------------------------------------------------------------------------------------------------

    def _left(self, pod: Pod) -> None:
        """Report to the reservations what the pod has left on its node."""
        if pod.spec.node_name:
            claim = partial(claim_of_pod, pod, vendors=self._vendors)
            self.reserved.left(pod.metadata.uid, node=pod.spec.node_name, claim=claim)

    def _take_up(self, plan: _Plan, *, placement: Placement, namespace: str) -> None:
        try:
            plan.ask = ask_of(placement.worker, policy=self._policy_of(namespace))
        except RequestError as error:
            log.warning("a plan cannot be read", job=plan.name, error=str(error))
            return
        plan.nodes, plan.released = nodes_by_worker(placement), frozenset(placement.released)
        plan.stands = True

    def _release(self, plan: _Plan, *, uid: str, workers: frozenset[int]) -> None:
        """Release the holds of workers for which no pod comes any more."""
        new, plan.released = workers - plan.released, workers
        for place in self._places(uid):
            if place.worker in new:
                self._ledger.release(place.key)
                self._forget_missing(place)

    def _withdraw(self, uid: str) -> None:
        """Release all holds of the job."""
        for place in self._places(uid):
            self._ledger.release(place.key)
            self._forget_missing(place)

    def _places(self, uid: str) -> list[Place]:
        plan = self._plans.get(uid)
        return [] if plan is None else [_place(uid, worker=worker, node=node) for worker, node in enumerate(plan.nodes)]

    def _settle(self, pod: Pod, *, said: PlanOfPod, worker: int) -> None:
        uid, plan = pod.metadata.uid, self._plans.get(said.job)
        settled = self._settled.setdefault(said.job, {}).setdefault(said.generation, {})
        if uid in settled:
            return
        settled[uid] = worker, _job_of(pod)
        if plan is not None and self._is_valid(plan, said=said, worker=worker) and _job_of(pod) == plan.name:
            place = _place(said.job, worker=worker, node=plan.nodes[worker])
            self._ledger.release(place.key)
            self._forget_missing(place)

    def _unsettle(self, pod: Pod, *, said: PlanOfPod) -> None:
        plan, plans = self._plans.get(said.job), self._settled.get(said.job, {})
        settled = plans.get(said.generation, {})
        gone = settled.pop(pod.metadata.uid, None)
        if not settled:
            plans.pop(said.generation, None)
        if not plans:
            self._settled.pop(said.job, None)
        if plan is not None and gone is not None and self._is_valid(plan, said=said, worker=gone[0]):
            self._hold(_place(said.job, worker=gone[0], node=plan.nodes[gone[0]]))

    def _is_of_latest(self, pod: Pod, *, said: PlanOfPod) -> bool:
        plan = self._plans.get(said.job)
        return plan is not None and plan.latest == said.generation and plan.name == _job_of(pod)

    def _is_valid(self, plan: _Plan, *, said: PlanOfPod, worker: int) -> bool:
        return plan.stands and plan.latest == said.generation and worker < len(plan.nodes)

    def _hold(self, place: Place) -> None:
        """Hold the room of a place if it needs a hold, or note the place as missing."""
        plan = self._plans.get(place.job)
        if plan is None or plan.ask is None or place.worker in plan.released:
            return
        if self._ledger.claim(place.key) is not None:
            return
        if (place.worker, plan.name) in self._settled.get(place.job, {}).get(plan.latest, {}).values():
            return
        # Plans come before reserved room: the operator has already counted both.
        self.reserved.release(place.node)
        found = self._room(plan.ask, place=place)
        if found is None:
            self._missing.setdefault(place.node, {})[place] = ""
        else:
            self._ledger.commit(found, hold_until=FOR_EVER)
            self._forget_missing(place)
        self.reserved.refill(place.node)

    def _room(self, ask: Ask, *, place: Place) -> Claim | None:
        """The worker's claim on its node now, or once the pods that are leaving have left."""
        found = self._fit_cache.check(ask, node=place.node, key=place.key)
        if isinstance(found, Refusal):
            leaving = [
                claim
                for uid in self._nominations.leaving(place.node)
                if (claim := self._ledger.release(uid)) is not None
            ]
            found = self._fit_cache.check(ask, node=place.node, key=place.key) if leaving else found
            for claim in leaving:
                self._ledger.commit(claim)
        return found.claim if isinstance(found, Fit) else None

    def _room_may_be_on(self, node: str) -> None:
        for place, binding in list(self._missing.get(node, {}).items()):
            if not binding or self._ledger.claim(binding) is None:
                self._hold(place)

    def _forget_missing(self, place: Place) -> None:
        there = self._missing.get(place.node)
        if there is not None:
            there.pop(place, None)
            if not there:
                del self._missing[place.node]


def _place(job: str, *, worker: int, node: str) -> Place:
    return Place(key=f"{job}/{worker}", node=node, job=job, worker=worker)


def _is_alike(ask: Ask, *, planned: Ask) -> bool:
    """Whether a pod asks for the devices of a planned worker, no more and no fewer."""
    if (ask.gpu, ask.mode, ask.resource, ask.more) != (planned.gpu, planned.mode, planned.resource, planned.more):
        return False
    # A vendor's plugin shares no device.
    return bool(ask.resource) or (ask.guard_fraction, ask.workload) == (planned.guard_fraction, planned.workload)


def _job_of(pod: Pod) -> str:
    """The pod's GPUJob as `namespace/name`; empty if label and owner reference disagree."""
    name = job_of(pod)
    return f"{pod.metadata.namespace}/{name}" if name else ""
