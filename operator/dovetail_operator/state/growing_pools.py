"""The growing pools that count, and what the cluster autoscaler says of requests for their nodes. No I/O.

A module of its own: what two watches bring, merged with the configuration; `state` holds it, and looks at none of it.
"""

from collections.abc import Callable

from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType, key_of
from dovetail.queue.growing.autoscaler_answer import Answer, answer_of
from dovetail.queue.growing.karpenter import with_node_pools
from dovetail.queue.growing.pools import GrowingRules


class GrowingPools:
    """The rules of the configuration, with the NodePools that a watch has brought."""

    def __init__(self, declared: GrowingRules) -> None:
        self._declared = declared
        self._found: dict[str, NodePool] = {}
        self._changed: Callable[[], None] = lambda: None
        self.rules = declared
        self.answers: dict[str, Answer] = {}
        """The answers to ProvisioningRequests, by `namespace/name`."""

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever an event has changed the growing pools or an answer."""
        self._changed = changed

    def configure(self, declared: GrowingRules) -> None:
        """Apply the rules of a new configuration."""
        self._declared = declared
        self._merge()

    def node_pool_event(self, type_: EventType, pool: NodePool) -> None:
        """Take an event of a NodePool."""
        if type_ == "DELETED":
            self._found.pop(pool.metadata.name, None)
        else:
            self._found[pool.metadata.name] = pool
        before = self.rules
        self._merge()
        if self.rules != before:
            self._changed()

    def provisioning_request_event(self, type_: EventType, request: ProvisioningRequest) -> None:
        """Take an event of a ProvisioningRequest."""
        key = key_of(request.metadata)
        before = self.answers.pop(key, None)
        if type_ == "DELETED":
            return
        self.answers[key] = answer_of(request.status.conditions)
        if self.answers[key] != (before or Answer()):
            self._changed()

    def _merge(self) -> None:
        self.rules = with_node_pools(self._declared, found=self._found.values())
