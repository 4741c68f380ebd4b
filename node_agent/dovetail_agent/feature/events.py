"""Posts Kubernetes events about pods and nodes.

Events are for people, and their loss is harmless: errors are logged and never raised. The same event is not posted
again within `AGAIN` seconds, so that level-triggered callers can post at every look.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from dovetail.api.builtin import Event, Node, Severity
from dovetail.api.resources import EVENTS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.event_recorder import event, namespace_of
from dovetail.logs import get_logger
from dovetail_agent.tenants import Tenant

log = get_logger(__name__)

AGAIN: Final = 300.0
_MOST_KEPT: Final = 1000


class Teller:
    """Posts the events of one program, `component`. `clock` is monotonic, in seconds."""

    def __init__(self, client: Client, *, component: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._told: dict[tuple[str, str, str], float] = {}

    async def pod(self, tenant: Tenant, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Post an event about a pod."""
        about = {"apiVersion": "v1", "kind": "Pod", "name": tenant.name, "namespace": tenant.namespace}
        await self._tell({**about, "uid": tenant.uid}, node=tenant.node, texts=(severity, reason, message))

    async def node(self, node: Node, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Post an event about a node.

        `kubectl describe node` finds events by the node's name in the place of its UID.
        """
        name = node.metadata.name
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
        await self._tell(about, node=name, texts=(severity, reason, message))

    async def _tell(self, about: dict[str, str], *, node: str, texts: tuple[Severity, str, str]) -> None:
        severity, reason, message = texts
        if self._known((about["uid"], reason, message)):
            return
        body = event(
            about,
            component=self._component,
            instance=node,
            host=node,
            severity=severity,
            reason=reason,
            message=message,
            at=datetime.now(UTC),
        )
        try:
            await self._client.create(EVENTS, body, as_type=Event, namespace=namespace_of(about))
        except KubeError as error:
            log.warning("event not posted", reason=reason, about=about["name"], error=str(error))

    def _known(self, key: tuple[str, str, str]) -> bool:
        now = self._clock()
        if now - self._told.get(key, -AGAIN) < AGAIN:
            return True
        if len(self._told) >= _MOST_KEPT:
            self._told.clear()
        self._told[key] = now
        return False
