"""A node with one GPU in MIG mode, its API server, its extender, operator and agent, in any order of their steps.

Operator and agent are the real ones. The extender is a model of what `bind.binder` does: it may choose by an old view,
reads the GPUNode before it sends a Binding, and sends none after its deadline.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.api.builtin import Node, NodeSpec, NodeStatus, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Device, GPUNode, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail.kube.errors import Conflict, Status
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.queue.reshaping.decision import Change, idle_cards
from dovetail_agent.devices.model import DeviceInfo, Inventory, SplitCard
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.reshape.feature import ReshapeFeature
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.queue.reshaping.requests import Reshaper
from tests.core.queue.reshaping.cards import H100_SLOTS
from tests.operator_.builders import NOW, make_job, make_state

CARD, NODE = "GPU-0", "a"
DRAIN_SECONDS, DEADLINE_SECONDS = 10.0, 9.0
LAYOUTS = (("3g.40gb", "3g.40gb"), ("1g.10gb",) * 7, ("7g.80gb",), ("4g.40gb", "2g.20gb"))


@dataclass(kw_only=True)
class Sent:
    """A bind on its way: the instance, and until when it can be sent."""

    uuid: str
    until: float


class Server:
    """The GPUNode and the pods of one node, with optimistic locking, as far as the operator asks for them."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.gpunode = GPUNode(metadata=ObjectMeta(name=NODE, uid="uid-a", resource_version="1"))

    async def patch(self, _resource: Any, *, name: str, patch: dict[str, Any], **_: Any) -> GPUNode:
        assert name == NODE
        if patch["metadata"]["resourceVersion"] != self.gpunode.metadata.resource_version:
            raise Conflict(Status(code=409, reason="Conflict"))
        ((uuid, entry),) = patch["spec"]["reshape"].items()
        reshape = dict(msgspec.to_builtins(self.gpunode.spec).get("reshape", {}))
        if entry is None:
            reshape.pop(uuid, None)
        else:
            reshape[uuid] = reshape.get(uuid, {}) | entry
        spec = msgspec.convert({"reshape": reshape}, type(self.gpunode.spec))
        self.put(msgspec.structs.replace(self.gpunode, spec=spec))
        return self.gpunode

    async def list(self, _resource: Any, *, field_selector: str, **_: Any) -> Any:
        assert field_selector == f"spec.nodeName={NODE}"
        return type("Listing", (), {"items": list(self.pods.values())})

    def put(self, gpunode: GPUNode) -> None:
        version = str(int(self.gpunode.metadata.resource_version) + 1)
        meta = msgspec.structs.replace(gpunode.metadata, resource_version=version)
        self.gpunode = msgspec.structs.replace(gpunode, metadata=meta)


class Hardware:
    """The GPU: an instance never has the UUID of an earlier one. `refuses`: it creates none of the wanted ones."""

    def __init__(self) -> None:
        self.made = 0
        self.refuses = False
        self.instances: dict[str, str] = {}
        self.partition(("1g.10gb",) * 7)

    def partition(self, profiles: tuple[str, ...]) -> None:
        self.instances = {}
        for profile in profiles:
            self.made += 1
            self.instances[f"MIG-{self.made}"] = profile

    async def reshape(self, _node: Node, *, card: str, profiles: Any) -> str:
        assert card == CARD
        if self.refuses:
            return "Insufficient Resources"
        if sorted(self.instances.values()) != sorted(profiles):
            self.partition(tuple(profiles))
        return ""


class ReshapeMachine(RuleBasedStateMachine):
    """No instance is destroyed while a pod has it, whoever crashes, is late or sees an old version."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.count = 0.0, 0
        self.server, self.gpu = Server(), Hardware()
        self.sent: list[Sent] = []
        self.events: list[Announcement] = []
        self.changed: list[str] = []
        self.old = self.server.gpunode
        self.node = Node(metadata=ObjectMeta(name=NODE, uid="node"), spec=NodeSpec(), status=NodeStatus())
        self.agent_restarts()
        self.operator_restarts()
        self.agent_reports(late_tenants=False)
        self.watches_deliver()

    # --- the extender ---

    @rule(choice=st.integers(0, 6), by_old_view=st.booleans())
    def bind_begins(self, choice: int, by_old_view: bool) -> None:
        view, now = self.old if by_old_view else self.server.gpunode, self.server.gpunode
        taken = {each.uuid for each in self.sent} | {uuid for pod in self.server.pods.values() for uuid in held(pod)}
        free = [device.uuid for device in view.status.devices if device.uuid not in taken]
        there = {device.uuid for device in now.status.devices if device.parent not in now.spec.reshape}
        if free and (uuid := free[choice % len(free)]) in there:
            self.sent.append(Sent(uuid=uuid, until=self.now + DEADLINE_SECONDS))

    @precondition(lambda self: self.sent)
    @rule()
    def bind_arrives(self) -> None:
        sent = self.sent.pop(0)
        self.count += 1
        self.server.pods[f"p{self.count}"] = pod_with(f"p{self.count}", uuid=sent.uuid)

    @precondition(lambda self: self.server.pods)
    @rule()
    def pod_ends(self) -> None:
        del self.server.pods[next(iter(self.server.pods))]

    # --- time and watches ---

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.sent = [each for each in self.sent if each.until > self.now]

    @rule()
    def watches_deliver(self) -> None:
        self.old = self.server.gpunode
        self.state.store.gpunode_changed(self.server.gpunode)

    # --- the operator ---

    @rule(layout=st.sampled_from(LAYOUTS))
    def queue_decides(self, layout: tuple[str, ...]) -> None:
        cards = idle_cards(self.state.store.cards.get(NODE, ()), ledger=self.state.store.view.ledger)
        changes = [Change(card=card, profiles=layout, job="uid-x") for card in cards]
        self.state.decisions.set_reshapes(tuple(changes))

    @rule()
    def operator_checks(self) -> None:
        asyncio.run(self.operator.check())
        assert not self.operator._guard._logged

    @rule(layout=st.sampled_from(LAYOUTS))
    def a_request_is_written_and_seen(self, layout: tuple[str, ...]) -> None:
        # Chance alone seldom brings these steps in a row, and most of what can go wrong begins after them.
        self.watches_deliver()
        self.queue_decides(layout=layout)
        self.operator_checks()
        self.watches_deliver()
        self.operator_checks()

    @rule()
    def operator_restarts(self) -> None:
        self.state = make_state(a=1)
        self.state.store.job_changed(make_job())
        self.operator = Reshaper(
            self.server,  # type: ignore[arg-type]  # what the operator asks of it
            state=self.state,
            drain_seconds=DRAIN_SECONDS,
            changed=self.changed.append,
            post=self.events.append,
            now=lambda: NOW + timedelta(seconds=self.now),
            clock=lambda: self.now,
        )

    # --- the agent ---

    @rule(late_tenants=st.booleans())
    def agent_reports(self, late_tenants: bool) -> None:
        seen = self._seen(late_tenants=late_tenants)
        status = self.agent.amend(self._status(), seen=seen)
        self.server.put(msgspec.structs.replace(self.server.gpunode, status=status))

    @rule(late_tenants=st.booleans(), refuses=st.booleans())
    def agent_acts(self, late_tenants: bool, refuses: bool) -> None:
        self.gpu.refuses = refuses
        seen = self._seen(late_tenants=late_tenants)
        asyncio.run(self.agent.act(seen, status=self.agent.amend(self._status(), seen=seen)))

    @rule()
    def agent_restarts(self) -> None:
        self.agent = ReshapeFeature(self.gpu)

    def _seen(self, *, late_tenants: bool) -> Seen:
        tenants = () if late_tenants else tuple(tenant_of(pod) for pod in self.server.pods.values())
        devices = tuple(
            DeviceInfo(
                index=index, uuid=uuid, vendor="nvidia", model="H100", memory_mib=1, mig_profile=profile, parent=CARD
            )
            for index, (uuid, profile) in enumerate(self.gpu.instances.items(), start=1)
        )
        split = SplitCard(index=0, uuid=CARD, model="H100", slots=H100_SLOTS)
        inventory = Inventory(devices=devices, split=(split,))
        return Seen(node=self.node, now=NOW, gpunode=self.server.gpunode, tenants=tenants, inventory=inventory)

    def _status(self) -> GPUNodeStatus:
        return GPUNodeStatus(
            devices=[
                Device(
                    index=index, uuid=uuid, vendor="nvidia", model="H100", memory_mib=1, mig_profile=profile,
                    parent=CARD,
                )
                for index, (uuid, profile) in enumerate(self.gpu.instances.items(), start=1)
            ]
        )  # fmt: skip

    @invariant()
    def no_instance_is_destroyed_under_a_pod(self) -> None:
        for pod in self.server.pods.values():
            assert held(pod) <= self.gpu.instances.keys()

    def teardown(self) -> None:
        """Once nobody crashes, a request ends: the GPU takes work again."""
        self.server.pods, self.sent, self.gpu.refuses = {}, [], False
        for _ in range(6):
            self.state.decisions.set_reshapes(())
            self.watches_deliver()
            self.operator_checks()
            self.time_passes(11.0)
            self.agent_acts(late_tenants=False, refuses=False)
            self.agent_reports(late_tenants=False)
        assert self.server.gpunode.spec.reshape == {}
        assert {device.uuid for device in self.server.gpunode.status.devices} == self.gpu.instances.keys()


def held(pod: Pod) -> set[str]:
    return {pod.metadata.annotations["held"]}


def pod_with(name: str, *, uuid: str) -> Pod:
    device = AllocatedDevice(uuid=uuid, index=1, share_milli=1000, memory_mib=1, mig="1g.10gb")
    allocation = Allocation(node=NODE, mode="Exclusive", containers=[ContainerAllocation(index=0, devices=[device])])
    meta = {"name": name, "uid": name, "namespace": "team", "annotations": annotations_of(allocation) | {"held": uuid}}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": NODE, "containers": []}}, Pod)


def tenant_of(pod: Pod) -> NodeTenant:
    (uuid,) = held(pod)
    device = AllocatedDevice(uuid=uuid, index=1, share_milli=1000, memory_mib=1)
    return NodeTenant(uid=pod.metadata.uid, namespace="team", name=pod.metadata.name, running=True, devices=[device])
