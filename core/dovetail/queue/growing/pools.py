"""Pools that grow: the shape of their nodes, and when the queue asks for one. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.api.builtin import Node, NodeSpec, Taint
from dovetail.api.meta import ObjectMeta
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.formats.durations import moment

# For how many new nodes of one pool a cycle plans at most: an unlimited pool must not cost an unlimited cycle.
MOST_NODES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingPool:
    """A pool to which an autoscaler adds nodes of one shape.

    - `name`: as in messages
    - `labels`: of every node of the pool; a node that has all of them belongs to it
    - `node_labels`: further labels of every node, which topology and selectors read and which decide no membership
    - `taints`: of every node
    - `max_nodes`: the most nodes of the pool, including those that exist
    - `gpus`, `model`, `gpu_memory_mib`: the devices of one node, all alike; 0 MiB if the memory is not known
    - `vendor`: of the devices
    - `resource`: the device plugin's resource; empty for managed nodes
    - `cpu_milli`, `memory_mib`, `pods`: what one node has for jobs
    - `provisioning_class`: of the ProvisioningRequests that request nodes; empty where placeholder pods do
    """

    name: str
    labels: Mapping[str, str]
    max_nodes: int
    gpus: int
    model: str
    cpu_milli: int
    memory_mib: int
    gpu_memory_mib: int = 0
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    pods: int = 110
    vendor: str = "nvidia"
    resource: str = ""
    provisioning_class: str = ""

    def has(self, node: Node) -> bool:
        """Whether the node belongs to the pool."""
        return bool(self.labels) and self.labels.items() <= node.metadata.labels.items()

    def came_since(self, node: Node, *, time: datetime) -> bool:
        """Whether the node belongs to the pool and was created at this time or later."""
        created = node.metadata.creation_timestamp
        return self.has(node) and bool(created) and moment(created) >= time

    def template(self) -> Node:
        """A node of the pool, as far as selectors, affinity and taints concern it."""
        managed = {} if self.resource else {names.LABEL_MANAGED: "true"}
        labels = {**managed, names.LABEL_MODEL: self.model, **self.node_labels, **self.labels}
        return Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=tuple(self.taints)))

    def facts(self, name: str) -> NodeFacts:
        """A new node as the ledger takes it."""
        return NodeFacts(
            name=name,
            managed=not self.resource,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            pods=self.pods,
            labels={**self.node_labels, **self.labels},
            resource=self.resource,
            offered=self.gpus if self.resource else 0,
        )

    def devices(self, name: str) -> list[DeviceFacts]:
        """The devices of a new node as the ledger takes them."""
        return [
            DeviceFacts(
                index=index,
                uuid=f"{name}/{index}",
                vendor=self.vendor,
                model=self.model,
                memory_mib=self.gpu_memory_mib,
            )
            for index in range(self.gpus)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingRules:
    """When new nodes are requested, and for how long.

    - `pools`: the growing pools, the preferred first
    - `after_seconds`: how long a job that existing nodes could serve waits for them first
    - `give_up_seconds`: how long a request waits for its nodes
    - `back_off_seconds`: until the next request after that; doubled each time
    """

    pools: tuple[GrowingPool, ...] = field(default=())
    after_seconds: float = 60.0
    give_up_seconds: float = 900.0
    back_off_seconds: float = 600.0
