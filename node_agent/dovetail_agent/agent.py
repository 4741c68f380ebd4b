"""Follows nodes, their pods and GPUNodes, and writes what differs from them.

Level-triggered: every pass starts from what the API server holds. A missed event or a restart of this process therefore
changes nothing. The decisions are in `report`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUNODES, NODES
from dovetail.cluster.node_kind import serving
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import JITTER
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail_agent.devices.model import Provider
from dovetail_agent.feature.protocol import Feature
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.report import capacity, node_labels, node_status
from dovetail_agent.report.collect import Collector, Look
from dovetail_agent.report.publishing import Pace, Why, worth_publishing
from dovetail_agent.tenant_source import TenantSource

log = get_logger(__name__)

FIELD_MANAGER: Final = "dovetail-agent"
_HANDS: Final = 16
# The pods of a job appear and disappear together: one pass serves all of them.
_DEBOUNCE_SECONDS: Final = 0.2
# The operator writes a new node's tenants within 1-2 s. An operator that is down must not keep devices unreported.
_PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configured intervals and limits of the agent."""

    look_every: timedelta
    pace: Pace
    turns_per_device: int
    vendors: Vendors = DEFAULT_VENDORS
    reads_pods: bool = False


class Agent:
    """Serves the named node, or without a name every node that the provider knows.

    On a node that Dovetail does not manage, the agent only reports: the vendor's plugin advertises what it serves.
    """

    def __init__(
        self,
        client: Client,
        *,
        provider: Provider,
        rules: Rules,
        clock: Callable[[], datetime],
        node: str | None = None,
        features: Sequence[Feature] = (),
    ) -> None:
        self.beside = FeatureRunner(features)
        self.published_total: dict[Why, int] = dict.fromkeys(Why, 0)
        self.write_failures_total = 0
        self._queue = WorkQueue()
        self._client = client
        self._provider = provider
        self._rules = rules
        self._clock = clock
        self._looks: dict[str, Look] = {}
        # The nodes that were there at the start and have had no whole pass; None before they are listed.
        self._without_pass: set[str] | None = None
        self._waited_since: dict[str, float] = {}
        self._known: dict[str, GPUNode] = {}
        self._eyes = Collector(provider, vendors=rules.vendors, beside=self.beside)
        named = None if node is None else f"metadata.name={node}"
        self.nodes = Reflector(
            client,
            resource=NODES,
            as_type=Node,
            on_event=self._on_node,
            field_selector=named,
        )
        self.tenants = TenantSource(
            client, node=node, reads_pods=rules.reads_pods, vendors=rules.vendors, changed=self._ask_for
        )
        self.gpunodes = Reflector(
            client, resource=GPUNODES, as_type=GPUNode, on_event=self._on_gpunode, field_selector=named
        )

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """The reflectors of nodes, tenants and GPUNodes."""
        return self.nodes, self.tenants.reflector, self.gpunodes

    @property
    def looks(self) -> Mapping[str, Look]:
        """The latest look at each served node, by node name."""
        return MappingProxyType(self._looks)

    @property
    def unreported(self) -> str | None:
        """Why the nodes that were there at the start are not all reported; None once they are, from then on."""
        if self._without_pass is None:
            return "the nodes are not listed yet"
        if not self._without_pass:
            return None
        more = f" and {len(self._without_pass) - 1} more" if len(self._without_pass) > 1 else ""
        return f"not reported yet: {min(self._without_pass)}{more}"

    async def run(self) -> None:
        """Follow and write until cancelled. Nothing is written before all three lists have synced."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            for reflector in self.reflectors:
                await reflector.synced.wait()
            self._without_pass = {*self.nodes.store}
            self.beside.start(group, wake=self._wake)
            self._provider.listen(partial(_in_loop, asyncio.get_running_loop(), self._wake))
            group.create_task(
                self._queue.serve(
                    self._look_at,
                    hands=_HANDS,
                    failed=self._failed,
                    rng=JITTER,
                )
            )

    def _on_node(self, event: EventType, node: Node) -> None:
        name = node.metadata.name
        if event == "DELETED":
            self._looks.pop(name, None)
            self._waited_since.pop(name, None)
            self.beside.forget(name)
            self.tenants.forget(name)
            self._queue.forget(name)
            self._passed(name)
        else:
            self._queue.add_later(name, seconds=_DEBOUNCE_SECONDS)

    def _on_gpunode(self, event: EventType, gpunode: GPUNode) -> None:
        name = gpunode.metadata.name
        if event == "DELETED":
            self._known.pop(name, None)
            self._ask_for(name)
        else:
            before, self._known[name] = self._known.get(name), gpunode
            if before is not None and before.spec != gpunode.spec:  # a user has changed the spec
                self._ask_for(name)

    def _ask_for(self, name: str) -> None:
        if name in self.nodes.store:
            self._queue.add_later(name, seconds=_DEBOUNCE_SECONDS)

    def _wake(self) -> None:
        for name in self._looks:
            self._ask_for(name)

    def _failed(self, name: str, error: Exception, wait_seconds: float) -> None:
        again = round(wait_seconds, 1)
        if isinstance(error, KubeError):
            self.write_failures_total += 1
            log.warning("write failed", node=name, error=str(error), again_in_seconds=again)
        else:
            log.warning("look failed", node=name, error=str(error), again_in_seconds=again, exc_info=error)

    async def _look_at(self, name: str) -> None:
        node = self.nodes.store.get(name)
        # A node that no longer declares devices must stop advertising them.
        if node is None or not (self._provider.serves(node) or capacity.advertises(node)):
            self._looks.pop(name, None)
            self.beside.forget(name)
            self._passed(name)
            return
        if self._waits_for_tenants(name):
            self._queue.add_later(name, seconds=_DEBOUNCE_SECONDS)
            return
        seen, look = self._eyes.collect(
            node,
            gpunode=self._known.get(name),
            tenants=self.tenants.tenants(name),
            answers=self.tenants.answers(name),
            now=self._clock(),
        )
        self._announce(name, look=look)
        self._looks[name] = look
        self._queue.add_later(name, seconds=self._rules.look_every.total_seconds())
        await self._publish(node, status=look.status)
        await self._advertise(node, look=look)
        self._passed(name)
        self.beside.act(seen, status=look.status)

    def _passed(self, name: str) -> None:
        if self._without_pass:
            self._without_pass.discard(name)

    def _waits_for_tenants(self, name: str) -> bool:
        """Whether to wait for the operator's list of tenants.

        Without it, the first report shows too much of the node in use.
        """
        if self.tenants.knows(name):
            return False
        now = asyncio.get_running_loop().time()
        return now - self._waited_since.setdefault(name, now) < _PATIENCE_SECONDS

    def _announce(self, name: str, *, look: Look) -> None:
        """Log a node's devices when they are first seen, and each time they or their health change."""
        before, found = self._looks.get(name), node_status.summary(look.status)
        if before is not None and node_status.summary(before.status) == found:
            return
        if look.inventory is None:
            log.warning("devices cannot be read", node=name, problem=found)
            return
        log.info("devices", node=name, found=found)
        for device in look.status.devices:
            log.debug("device", node=name, **node_status.facts(device))

    async def _publish(self, node: Node, *, status: GPUNodeStatus) -> None:
        name = node.metadata.name
        known = self._known.get(name)
        why = worth_publishing(status, published=known.status if known else None, pace=self._rules.pace)
        owned = known is not None and node_status.owner_of(node) in known.metadata.owner_references
        if why is None and owned:
            return
        wait = self._rules.pace.wait_seconds(why, report=status, published=known.status if known else None)
        if wait > 0 and owned:
            self._queue.add_later(name, seconds=wait)
            return
        if not owned:
            body = node_status.applied_object(node)
            self._known[name] = await self._client.apply(
                GPUNODES, name=name, body=body, as_type=GPUNode, field_manager=FIELD_MANAGER, force=True
            )
        # The agent alone writes the status, so it needs no server-side apply, which costs the API server a fifth more.
        patch = [{"op": "add", "path": "/status", "value": node_status.written_status(status)}]
        with suppress(NotFound):  # deleted meanwhile: the watch reports the deletion and triggers another pass
            self._known[name] = await self._client.patch(
                GPUNODES, name=name, patch=patch, kind="json", as_type=GPUNode, subresource="status"
            )
            self.published_total[why or Why.CHANGE] += 1

    async def _advertise(self, node: Node, *, look: Look) -> None:
        serves = serving(node, vendors=self._rules.vendors)
        ours = serves.managed and not serves.conflict
        if not ours and not capacity.advertises(node):
            return
        devices = look.status.devices if look.inventory and ours else []
        turns = self._rules.turns_per_device
        enforced = look.status.enforcement
        wanted = capacity.advertised(
            devices,
            tenants=look.tenants if ours else (),
            turns_per_device=turns,
            moved=enforced.turns and enforced.checkpoint,
        )
        patch = capacity.capacity_patch(node, wanted=wanted) or {}
        if labels := node_labels.labels_patch(node, wanted=node_labels.described(devices)):
            patch["metadata"] = {"labels": labels}
        if not patch:
            return
        with suppress(NotFound):  # the node is deleted: the watch reports it
            await self._client.patch(NODES, name=node.metadata.name, patch=patch, as_type=Node, subresource="status")


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Schedule a call in the loop from another thread. Does nothing if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
