"""The events of a node's programs, about pods and nodes, and the feature that sends them."""

from typing import Final

from dovetail.api.builtin import Node, ObjectReference
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.kube.event_correlator import EventLimits
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.feature.protocol import Feature, Wake

# Level-triggered features record an event at each look that finds its cause.
LIMITS: Final = EventLimits(max_interval_seconds=300.0)


def warn_pod(events: EventRecorder, *, tenant: NodeTenant, node: str, reason: str, message: str) -> None:
    """Record a warning about the pod of a tenant of the node."""
    about = ObjectReference(api_version="v1", kind="Pod", name=tenant.name, namespace=tenant.namespace, uid=tenant.uid)
    events.event(about, severity="Warning", reason=reason, message=message, host=node)


def warn_node(events: EventRecorder, *, node: Node, reason: str, message: str) -> None:
    """Record a warning about a node.

    `kubectl describe node` finds events by the node's name in the place of its UID.
    """
    name = node.metadata.name
    about = ObjectReference(api_version="v1", kind="Node", name=name, uid=name)
    events.event(about, severity="Warning", reason=reason, message=message, host=name)


class Events(Feature):
    """Sends what the other features record."""

    name = "events"

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    async def run(self, wake: Wake) -> None:  # noqa: ARG002 - no event changes the report
        """Send until cancelled."""
        await self._recorder.run()
