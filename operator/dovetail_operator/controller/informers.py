"""The operator's informers: what is followed at the API server, and which handlers get the events."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec

from dovetail import names
from dovetail.api.builtin import Event, Job, Node, Pod, ResourceSlice
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import (
    EVENTS,
    GPUJOBS,
    GPUNODES,
    GPUQUOTAS,
    JOBS,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODS,
)
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.kube.resource_slices import SliceWatch
from dovetail.pods.assumed_allocation import assumed_pod
from dovetail_operator.controller.event_handlers import Changes
from dovetail_operator.state.refused_pods import REFUSALS
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.waiting_pods import WaitingPods

P = ParamSpec("P")


class Handlers(Generic[P]):
    """The handlers of one kind of event, called in the order in which they were added."""

    def __init__(self) -> None:
        self._handlers: list[Callable[P, None]] = []

    def add(self, handler: Callable[P, None]) -> None:
        """Call `handler` for each event from now on."""
        self._handlers.append(handler)

    def __call__(self, *args: P.args, **options: P.kwargs) -> None:
        """Call all handlers."""
        for handler in self._handlers:
            handler(*args, **options)


class Informers:
    """All informers. Connect the handlers before `run`: they need caches, so they are built later.

    `transform` reduces each GPUJob to what is kept.
    """

    def __init__(self, client: Client, *, transform: Callable[[GPUJob], GPUJob]) -> None:
        self._on_job = Handlers[[EventType, GPUJob]]()
        self._on_unreadable_job = Handlers[[ObjectMeta, str]]()
        self._on_child = Handlers[[EventType, Job]]()
        self._on_pod = Handlers[[EventType, Pod]]()
        self._on_node = Handlers[[EventType, Node]]()
        self._on_gpunode = Handlers[[EventType, GPUNode]]()
        self._on_quota = Handlers[[EventType, GPUQuota]]()
        self._on_budget = Handlers[[EventType, PodDisruptionBudget]]()
        self._on_slice = Handlers[[EventType, ResourceSlice]]()
        self._pods = Reflector(client, resource=PODS, as_type=Pod, on_event=self._on_pod, stand_in=assumed_pod)
        self._nodes = Reflector(client, resource=NODES, as_type=Node, on_event=self._on_node)
        self._gpunodes = Reflector(client, resource=GPUNODES, as_type=GPUNode, on_event=self._on_gpunode)
        self._reflectors: list[Reflector[Any]] = [
            Reflector(
                client,
                resource=GPUJOBS,
                as_type=GPUJob,
                on_event=self._on_job,
                on_unreadable=self._on_unreadable_job,
                transform=transform,
            ),
            self._pods,
            self._nodes,
            self._gpunodes,
            Reflector(client, resource=JOBS, as_type=Job, on_event=self._on_child, label_selector=names.LABEL_JOB),
            Reflector(client, resource=GPUQUOTAS, as_type=GPUQuota, on_event=self._on_quota),
            Reflector(client, resource=PODDISRUPTIONBUDGETS, as_type=PodDisruptionBudget, on_event=self._on_budget),
        ]
        self._slices = SliceWatch(client, drivers=names.GPU_DRIVERS, on_event=self._on_slice)

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods of the cluster by `namespace/name`. A live view."""
        return self._pods.store

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name. A live view."""
        return self._nodes.store

    @property
    def gpunodes(self) -> Mapping[str, GPUNode]:
        """All GPUNodes by name. A live view."""
        return self._gpunodes.store

    def connect(
        self,
        changes: Changes,
        *,
        on_unreadable_job: Callable[[ObjectMeta, str], None],
        tenants: NodeTenants | None,
        guests: GuestKeeper,
        waiting: WaitingPods,
    ) -> None:
        """Pass every event to `changes`, and to the others what they follow."""
        self._on_job.add(changes.job_event)
        self._on_unreadable_job.add(on_unreadable_job)
        self._on_child.add(changes.child_event)
        self._on_pod.add(changes.pod_event)
        self._on_pod.add(guests.pod_event)
        self._on_pod.add(waiting.pod_event)
        self._on_node.add(changes.node_event)
        self._on_gpunode.add(changes.gpunode_event)
        self._on_quota.add(changes.quota_event)
        self._on_budget.add(changes.budget_event)
        self._on_slice.add(changes.slice_event)
        if tenants is not None:
            self._connect_tenants(tenants)

    def ready(self) -> Mapping[str, Callable[[], str | None]]:
        """The caches that must be complete before the operator decides, as checks for /readyz."""
        checks = {each.resource.plural: _check(each.resource.plural, synced=each.synced) for each in self._reflectors}
        return {**checks, "resourceslices": _check("resourceslices", synced=self._slices.settled)}

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the API server last reported each kind of object; infinite before its list."""
        return {each.resource.plural: each.age_seconds for each in self._reflectors}

    async def synced(self) -> None:
        """Wait until all caches are complete."""
        await self._slices.settled.wait()
        for reflector in self._reflectors:
            await reflector.synced.wait()

    async def run(self) -> None:
        """Follow all objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._slices.run())

    def _connect_tenants(self, tenants: NodeTenants) -> None:
        self._on_pod.add(tenants.pod_event)
        self._on_node.add(tenants.node_event)
        self._on_gpunode.add(tenants.gpunode_event)
        self._reflectors.append(tenants.reflector)


def build_refusals(client: Client, *, on_event: Callable[[EventType, Event], None]) -> list[Reflector[Event]]:
    """Build the informers of the events that a controller cannot create pods."""
    # One watch for all jobs: for a query per job the API server scans all events each time.
    return [
        Reflector(
            client,
            resource=EVENTS,
            as_type=Event,
            on_event=on_event,
            field_selector=f"reason={reason},involvedObject.kind={kind}",
        )
        for reason, kind in REFUSALS
    ]


def _check(what: str, *, synced: asyncio.Event) -> Callable[[], str | None]:
    return lambda: None if synced.is_set() else f"{what} are not listed yet"
