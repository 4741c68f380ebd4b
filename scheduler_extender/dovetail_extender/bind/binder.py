"""Bind: check against the ledger again, promise the devices, and write once.

Nothing awaits between the check and the promise, so no two binds can be promised the same share. A write without a
known outcome (deadline, broken connection, server error) may have happened: its promise remains, and the bind is
unsettled until the cache or a fresh read shows the outcome. Until then the pod may be bound to that same node again,
with the same devices, and to no other.

Only the holder of the extenders' Lease binds, and only while the Lease covers the whole time that the write may take.
The Binding carries the holder's term as a fencing token, so that the API server can refuse writes of earlier holders.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.gpu.device_plugins import Delivery
from dovetail.gpu.request import RequestError
from dovetail.kube.errors import Conflict, KubeError, NotFound, ServerFault, StatusError
from dovetail.logs import get_logger
from dovetail.pods.allocation import AllocationError, allocation_in, annotations_of
from dovetail.pods.delivery import annotations_for_plugin, refuse_long_names
from dovetail.pods.demand import host_request
from dovetail.pods.tenancy import Tenancy
from dovetail_extender.bind.unsettled import BindAuthority, DevicesOfCluster, JobsOfCluster, PodsOfCluster, Settling
from dovetail_extender.decide.filter_score import Decisions, allocation_of
from dovetail_extender.protocol import BindingArgs

log = get_logger(__name__)

# The part of the time that a bind has left in which a GPUJob must be read. The rest is for the write.
_PART_FOR_READ: Final = 0.5

Result = Literal["bound", "refused", "gone", "conflict", "failed", "unsettled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a bind; `error` is empty if and only if the pod is bound as requested."""

    result: Result
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    node: str
    task: asyncio.Task[Outcome]


class Binder:
    """Binds pods one API write each; binds of different pods run at the same time."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        pods: PodsOfCluster,
        jobs: JobsOfCluster,
        gpunodes: DevicesOfCluster,
        office: BindAuthority,
        decisions: Decisions,
        deadline_seconds: float,
        clock: Callable[[], float],
        delivery: Delivery = "RuntimeClass",
    ) -> None:
        self._ledger = ledger
        self._pods = pods
        self._jobs = jobs
        self._gpunodes = gpunodes
        self._office = office
        self._decisions = decisions
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._delivery: Delivery = delivery
        self._running: dict[str, _Running] = {}
        self._settling = Settling(ledger=ledger, pods=pods, deadline_seconds=deadline_seconds, clock=clock)

    @property
    def unsettled(self) -> int:
        """The number of binds whose outcome is not known yet."""
        return self._settling.unsettled

    @property
    def unseen(self) -> int:
        """The number of binds that were sent and that the cache does not show yet."""
        return self._settling.unseen

    async def bind(self, args: BindingArgs) -> Outcome:
        """Bind the pod to the node; concurrent requests for the same bind share one write."""
        running = self._running.get(args.pod_uid)
        if running is None:
            task = asyncio.create_task(self._bind(args), name=f"bind {args.pod_namespace}/{args.pod_name}")
            running = self._running[args.pod_uid] = _Running(node=args.node, task=task)
            task.add_done_callback(lambda _task: self._running.pop(args.pod_uid))
        elif running.node != args.node:
            return Outcome(result="refused", error=f"the pod is being bound to {running.node}")
        # The bind runs to its end even if the caller disconnects.
        return await asyncio.shield(running.task)

    async def drain(self) -> None:
        """Wait for the running binds; each ends by its deadline."""
        await asyncio.gather(*(running.task for running in self._running.values()), return_exceptions=True)

    async def settle(self) -> None:
        """Settle the binds that the cache does not show; call this about every second."""
        await self._settling.settle(running=self._running)

    async def _bind(self, args: BindingArgs) -> Outcome:
        deadline = self._clock() + self._deadline_seconds
        try:
            pod = await self._find(args)
        except NotFound:
            return self._gone(args)
        except KubeError as error:
            return Outcome(result="failed", error=f"the pod cannot be read: {error}")
        if pod.metadata.uid != args.pod_uid:
            return self._gone(args)
        if pod.spec.node_name:
            return _of_bound(pod, node=args.node)
        try:
            tenancy = await self._tenancy(pod, deadline=deadline)
        except KubeError as error:
            # kube-scheduler tries again. Without its job the allocation would be wrong for as long as the pod runs.
            return Outcome(result="failed", error=f"the pod's GPUJob cannot be read: {error}")
        claim = self._promise(pod, node=args.node)
        if isinstance(claim, Outcome):
            return claim
        if refusal := await self._reshaped(claim, deadline=deadline):
            self._settling.give_up(claim.key)
            return Outcome(result="failed", error=refusal)
        return await self._write(pod, claim=claim, tenancy=tenancy, deadline=deadline)

    async def _find(self, args: BindingArgs) -> Pod:
        """The pod from the cache, or from the API server if the cache does not have it as kube-scheduler saw it."""
        pod = self._pods.cached(namespace=args.pod_namespace, name=args.pod_name)
        # No pod with a gate is scheduled. The operator opens the gate and writes job, seat and plan in one patch, which
        # the cache lacks then: the pod would be bound as a pod of no job.
        if pod is not None and pod.metadata.uid == args.pod_uid and not pod.spec.scheduling_gates:
            return pod
        return await self._pods.read(
            namespace=args.pod_namespace, name=args.pod_name, deadline_seconds=self._deadline_seconds
        )

    async def _tenancy(self, pod: Pod, *, deadline: float) -> Tenancy:
        """The pod's tenancy, which is fixed at bind. Raises `KubeError` if its GPUJob is unknown and cannot be read.

        After an outage the pod's watch may be ahead of the GPUJob's. Reading it costs one request. To fail each such
        bind instead would delay it by kube-scheduler's backoff, and would never bind an orphan: a worker whose GPUJob
        was deleted, until garbage collection deletes it too, is a pod of no job.
        """
        tenancies, namespace = self._decisions.tenancies, pod.metadata.namespace
        name = tenancies.unknown_job_of(pod)
        if not name:
            return tenancies.tenancy(pod)
        left = max(0.1, deadline - self._clock())
        try:
            job = await self._jobs.read_job(namespace=namespace, name=name, deadline_seconds=left * _PART_FOR_READ)
        except NotFound:
            log.info("the pod's GPUJob is gone", namespace=namespace, pod=pod.metadata.name, job=name)
            return tenancies.tenancy(pod)
        return tenancies.tenancy(pod, read=job)

    def _promise(self, pod: Pod, *, node: str) -> Claim | Outcome:
        """Commit the pod's claim on the node; on a refusal, release whatever the pod holds."""
        uid = pod.metadata.uid
        standing = self._ledger.claim(uid)
        if standing is not None and not self._ledger.is_hold(uid):
            if standing.node == node:
                return standing
            return Outcome(result="refused", error=f"the pod's bind to {standing.node} is not settled yet")
        try:
            ask = self._decisions.ask(pod)
            # A vendor's plugin gives its devices without an annotation of ours.
            if ask is None or not ask.resource:
                refuse_long_names(pod, delivery=self._delivery)
        except RequestError as error:
            return self._refused(uid, error=str(error))
        if ask is None:
            cpu_milli, memory_mib = host_request(pod.spec)
            claim = Claim(key=uid, node=node, cpu_milli=cpu_milli, memory_mib=memory_mib)
        else:
            found = self._decisions.claim(ask, pod=pod, node=node)
            if isinstance(found, Refusal):
                return self._refused(uid, error=found.message)
            claim = found
        self._ledger.commit(claim)
        return claim

    async def _reshaped(self, claim: Claim, *, deadline: float) -> str:
        """Why the claim's MIG instances may be about to go; empty if they stay.

        The operator requests a new partition, waits for as long as a bind may take, and then lists the node's pods. The
        watch may be late with the request; a read that begins within this bind is not.
        """
        uuids = {device.uuid for device in claim.devices if device.mig and not claim.resource}
        if not uuids:
            return ""
        left = max(0.1, deadline - self._clock())
        try:
            gpunode = await self._gpunodes.read_gpunode(name=claim.node, deadline_seconds=left * _PART_FOR_READ)
        except KubeError as error:
            return f"the node's GPUNode cannot be read: {error}"
        there = {device.uuid for device in gpunode.status.devices if device.parent not in gpunode.spec.reshape}
        if uuids <= there:
            return ""
        return f"a GPU of node {claim.node} is being partitioned again: {', '.join(sorted(uuids - there))}"

    async def _write(self, pod: Pod, *, claim: Claim, tenancy: Tenancy, deadline: float) -> Outcome:
        # Where kubelet picks the devices, the node may report them before the bind is known; they are no allocation.
        annotations = {}
        if claim.devices and not claim.resource:
            allocation = allocation_of(claim, pod=pod, tenancy=tenancy)
            annotations = annotations_of(allocation)
            annotations |= annotations_for_plugin(allocation, pod=pod, delivery=self._delivery)
        left = deadline - self._clock()
        if left <= 0:
            self._settling.give_up(claim.key)
            return Outcome(result="failed", error="the bind's deadline passed before it was sent")
        term = self._office.term
        if term is None or self._office.remaining_seconds < left:
            self._settling.give_up(claim.key)
            return Outcome(result="failed", error="the extender's lease does not cover the time that a bind may take")
        if annotations or claim.resource:
            annotations |= {names.TERM: str(term)}
        try:
            await self._pods.bind(pod, node=claim.node, annotations=annotations, deadline_seconds=left)
        except Conflict as error:
            return await self._after_conflict(pod, claim=claim, error=error, deadline=deadline)
        except NotFound:
            self._settling.release(claim.key)
            return Outcome(result="gone", error="the pod was deleted")
        except KubeError as error:
            return self._after_failure(pod, error=error)
        self._settling.record_bind(pod, known=True)
        log.info("bound", **_about(pod, claim=claim))
        return Outcome(result="bound")

    async def _after_conflict(self, pod: Pod, *, claim: Claim, error: Conflict, deadline: float) -> Outcome:
        """Read the pod to find the cause: bound, being deleted, gated, or another pod of that name."""
        meta = pod.metadata
        try:
            now = await self._pods.read(
                namespace=meta.namespace, name=meta.name, deadline_seconds=max(0.1, deadline - self._clock())
            )
        except NotFound:
            self._settling.release(meta.uid)
            return Outcome(result="gone", error="the pod was deleted")
        except KubeError as reading:
            return self._unsettled(pod, error=reading)
        if now.metadata.uid == meta.uid and now.spec.node_name:
            # Whatever the pod is bound to, the cache is about to replace our claim with that.
            self._settling.record_bind(pod, known=True)
            return _of_bound(now, node=claim.node, expected=claim)
        self._settling.give_up(meta.uid)
        return Outcome(result="conflict", error=error.message or str(error))

    def _after_failure(self, pod: Pod, *, error: KubeError) -> Outcome:
        meta = pod.metadata
        if isinstance(error, StatusError) and not isinstance(error, ServerFault):
            self._settling.give_up(meta.uid)
            return Outcome(result="failed", error=str(error))
        return self._unsettled(pod, error=error)

    def _unsettled(self, pod: Pod, *, error: KubeError) -> Outcome:
        self._settling.record_bind(pod, known=False)
        return Outcome(result="unsettled", error=f"it is not known whether the pod was bound: {error}")

    def _refused(self, uid: str, *, error: str) -> Outcome:
        self._settling.release(uid)
        return Outcome(result="refused", error=error)

    def _gone(self, args: BindingArgs) -> Outcome:
        self._settling.release(args.pod_uid)
        return Outcome(result="gone", error="the pod was deleted")


def _of_bound(pod: Pod, *, node: str, expected: Claim | None = None) -> Outcome:
    """The outcome for a pod that is already bound: bound as requested, or a conflict."""
    if pod.spec.node_name != node:
        return Outcome(result="conflict", error=f"the pod is bound to {pod.spec.node_name} already")
    ours = None if expected is None or expected.resource else expected
    if ours is not None and _devices_in(pod) != {device.uuid for device in ours.devices}:
        return Outcome(result="conflict", error=f"the pod is bound to {node} already, with other devices")
    return Outcome(result="bound")


def _devices_in(pod: Pod) -> set[str]:
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return set()
    return {device.uuid for device in allocation.devices} if allocation else set()


def _about(pod: Pod, *, claim: Claim) -> dict[str, object]:
    return {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "node": claim.node,
        "devices": [device.uuid for device in claim.devices],
    }
