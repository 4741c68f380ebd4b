"""Writes GPUNodeTenants: a GPU node's tenants, which its programs read instead of pods.

There is one object per node. It is written when it differs from the API server's version, at most once per second. Its
Node owns it, so it is deleted with the Node. No state is kept: a new operator compares with the objects that it lists.

Only the watch says what the API server has. After a write, the next comparison of that node waits for the watch to
bring the written version. An answer kept as the API server's version could overwrite a newer one that the watch has
brought before it, such as another writer's edit, and nothing would correct that edit.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpunodetenants import MOST_TENANTS, GPUNodeTenants, GPUNodeTenantsSpec, NodeTenant
from dovetail.api.meta import EventType, ObjectMeta, OwnerReference
from dovetail.api.resources import GPUNODETENANTS, PODS
from dovetail.cluster.node_kind import serving
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import Vendors
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import Reflector
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail_operator.state.pending_writes import PendingWrites

log = get_logger("dovetail.operator")

_HANDS: Final = 4
_NO_TENANTS: Final[Mapping[str, NodeTenant]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often one node's object is written: delay after a change, and pause after a write.

    A gang's pods are bound one after the other, and a pod starts soon after it is bound: one write covers both. In a
    rush, a pod that leaves waits `departed_seconds` for its end and for the next one of its node.
    """

    collect_seconds: float = 0.3
    between_seconds: float = 1.0
    departed_seconds: float = 4.0


class NodeTenants:
    """Pass it every event of nodes, pods and GPUNodes. Run its `reflector`, then `run` it.

    `pods` returns all pods that the operator knows, for nodes that become GPU nodes later. `is_rush` says whether many
    jobs end for others or many workers start.
    """

    def __init__(
        self,
        client: Client,
        *,
        pods: Callable[[], Iterable[Pod]],
        vendors: Vendors,
        rng: random.Random,
        is_rush: Callable[[], bool] = lambda: False,
        pace: Pace = Pace(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reflector = Reflector(client, resource=GPUNODETENANTS, as_type=GPUNodeTenants, on_event=self.object_event)
        self.writes_total = 0
        self._client = client
        self._pods = pods
        self._vendors = vendors
        self._rng = rng
        self._is_rush = is_rush
        self._pace = pace
        self._clock = clock
        self._queue = WorkQueue()
        self._pending = PendingWrites()
        self._owners: dict[str, OwnerReference] = {}
        # Nodes that should have devices, nodes whose agent reports, and the question of each agent.
        self._expected: set[str] = set()
        self._asked: dict[str, int] = {}
        # GPU nodes with their tenants by UID, and those of them whose pods have not been looked up yet.
        self._tenants: dict[str, dict[str, NodeTenant]] = {}
        self._unread: set[str] = set()
        self._known: dict[str, GPUNodeTenants] = {}
        self._written_at: dict[str, float] = {}

    def node_event(self, type_: EventType, node: Node) -> None:
        """Handle an event of a Node."""
        name = node.metadata.name
        self._expected.discard(name)
        if type_ == "DELETED":
            self._owners.pop(name, None)
        else:
            self._owners[name] = OwnerReference(api_version="v1", kind="Node", name=name, uid=node.metadata.uid)
            if self._expects(node):
                self._expected.add(name)
        self._judge(name)

    def gpunode_event(self, type_: EventType, gpunode: GPUNode) -> None:
        """Handle an event of a GPUNode."""
        name = gpunode.metadata.name
        before = self._asked.pop(name, None)
        if type_ != "DELETED":
            self._asked[name] = gpunode.status.tenants_asked
        if self._judge(name) and self._asked.get(name) != before:
            self._look(name)

    def pod_event(self, type_: EventType, pod: Pod) -> None:
        """Handle an event of any pod."""
        tenants = self._tenants.get(pod.spec.node_name)
        if tenants is None:
            return
        before = tenants.pop(pod.metadata.uid, None)
        after = None if type_ == "DELETED" else tenant_of_pod(pod, vendors=self._vendors)
        if after is not None:
            tenants[pod.metadata.uid] = after
        if after != before:
            self._look(pod.spec.node_name, departed=_has_departed(after, before=before))

    def object_event(self, type_: EventType, found: GPUNodeTenants) -> None:
        """Handle an event of a GPUNodeTenants object."""
        name = found.metadata.name
        if type_ == "DELETED":
            self._known.pop(name, None)
        else:
            self._known[name] = found
        self._pending.observed("GPUNodeTenants", meta=found.metadata)
        self._look(name)

    async def run(self) -> None:
        """Write until cancelled. All caches must be complete."""
        for name in self._tenants:
            self._look(name)
        await self._queue.serve(self._settle, hands=_HANDS, failed=_tried_again, rng=self._rng)

    def _expects(self, node: Node) -> bool:
        serves = serving(node, vendors=self._vendors)
        return serves.managed or bool(serves.resource) or names.SIMULATED_DEVICES in node.metadata.annotations

    def _judge(self, name: str) -> bool:
        """Whether the node is a GPU node. Queues it if that has changed."""
        wanted = name in self._owners and (name in self._expected or name in self._asked)
        if wanted and name not in self._tenants:
            self._tenants[name] = {}
            self._unread.add(name)
            self._look(name)
        elif not wanted and name in self._tenants:
            del self._tenants[name]
            self._unread.discard(name)
            self._look(name)
        return wanted

    def _look(self, name: str, *, departed: bool = False) -> None:
        collect = self._pace.departed_seconds if departed and self._is_rush() else self._pace.collect_seconds
        self._queue.add_later(name, seconds=max(collect, self._rest_seconds(name)))

    def _rest_seconds(self, name: str) -> float:
        since = self._clock() - self._written_at.get(name, float("-inf"))
        return max(0.0, self._pace.between_seconds - since)

    async def _settle(self, name: str) -> None:
        # A change between the timer and this call has set another timer, from the write before the last.
        if wait := max(self._rest_seconds(name), self._pending.wait_seconds(name)):
            self._queue.add_later(name, seconds=wait)
            return
        self._read_pods()
        known, owner = self._known.get(name), self._owners.get(name)
        if name not in self._tenants or owner is None:
            await self._drop(name, known=known)
            return
        answers = await self._answers(name, known=known)
        spec = GPUNodeTenantsSpec(tenants=_listed(self._tenants.get(name, _NO_TENANTS), node=name), answers=answers)
        if known is None or known.spec != spec or owner not in known.metadata.owner_references:
            await self._write(name, spec=spec, known=known, owner=owner)

    async def _write(
        self, name: str, *, spec: GPUNodeTenantsSpec, known: GPUNodeTenants | None, owner: OwnerReference
    ) -> None:
        self._written_at[name] = self._clock()
        version = known.metadata.resource_version if known else ""
        meta = ObjectMeta(name=name, owner_references=(owner,), resource_version=version)
        body = GPUNodeTenants(metadata=meta, spec=spec)
        if known is None:
            written = await self._client.create(GPUNODETENANTS, body=body, as_type=GPUNodeTenants)
        else:
            written = await self._client.update(GPUNODETENANTS, name=name, body=body, as_type=GPUNodeTenants)
        self.writes_total += 1
        seen = self._known.get(name)
        self._pending.await_object(
            name, kind="GPUNodeTenants", written=written.metadata, known=None if seen is None else seen.metadata
        )

    async def _drop(self, name: str, *, known: GPUNodeTenants | None) -> None:
        self._written_at.pop(name, None)
        self._pending.forget(name)
        self._queue.forget(name)
        if known is not None:
            with suppress(NotFound):  # its Node has gone, and it with that
                await self._client.delete(GPUNODETENANTS, name=name, uid=known.metadata.uid)

    async def _answers(self, name: str, *, known: GPUNodeTenants | None) -> int:
        """The agent's question that this list answers.

        A watch may be silent for a minute before it counts as broken. A new question is therefore answered only if a
        list of the node's pods, made after the question, has no unknown pod.
        """
        asked, answered = self._asked.get(name, 0), known.spec.answers if known else 0
        if asked <= answered:
            return answered
        pods = await self._client.list(PODS, as_type=Pod, field_selector=f"spec.nodeName={name}")
        listed = {pod.metadata.uid for pod in pods.items if tenant_of_pod(pod, vendors=self._vendors) is not None}
        if listed <= self._tenants.get(name, _NO_TENANTS).keys():
            return asked
        self._queue.add_later(name, seconds=self._pace.between_seconds)
        return answered

    def _read_pods(self) -> None:
        """Look up the pods of new GPU nodes, all in one pass."""
        if not self._unread:
            return
        unread, self._unread = self._unread, set()
        for pod in self._pods():
            if pod.spec.node_name in unread and (tenant := tenant_of_pod(pod, vendors=self._vendors)):
                self._tenants[pod.spec.node_name][pod.metadata.uid] = tenant


def _has_departed(after: NodeTenant | None, *, before: NodeTenant | None) -> bool:
    """Whether a known tenant begins to leave or has left."""
    return before is not None and (after is None or (after.leaving and not before.leaving))


def _listed(tenants: Mapping[str, NodeTenant], *, node: str) -> list[NodeTenant]:
    """The tenants of an object: those with devices first if they exceed the limit."""
    listed = sorted(tenants.values(), key=lambda each: (not (each.devices or each.vendor_devices), each.uid))
    if len(listed) > MOST_TENANTS:
        log.warning("more pods than an object may list", node=node, pods=len(listed), listed=MOST_TENANTS)
    return sorted(listed[:MOST_TENANTS], key=lambda each: each.uid)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log.warning("tenants of a node are written again", node=key, error=str(error), wait_seconds=round(wait, 1))
