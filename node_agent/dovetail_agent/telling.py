"""How a node's programs tell people what has happened: Kubernetes events about pods and nodes.

An event is for people and lost without harm, so what goes wrong is logged and never raised. The same event again within
`AGAIN` seconds is not posted: level-triggered callers may tell what they see at every look.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.objects import Event, Node
from dovetail.kube.resources import EVENTS
from dovetail.logs import get_logger
from dovetail_agent.tenants import Tenant

log = get_logger(__name__)

Severity = Literal["Normal", "Warning"]
AGAIN: Final = 300.0
_MOST_KEPT: Final = 1000
# Where events about nodes, which have no namespace, are looked for.
_NODES_NAMESPACE: Final = "default"
_LONGEST_MESSAGE: Final = 1024


class Teller:
    """Posts the events of one program, `component`, on one node at a time; `clock` is monotonic."""

    def __init__(self, client: Client, *, component: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._told: dict[tuple[str, str, str], float] = {}

    async def pod(self, tenant: Tenant, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Tell it of a pod."""
        about = {"apiVersion": "v1", "kind": "Pod", "name": tenant.name, "namespace": tenant.namespace}
        await self._tell({**about, "uid": tenant.uid}, node=tenant.node, texts=(severity, reason, message))

    async def node(self, node: Node, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        """Tell it of a node. `kubectl describe node` finds events by the node's name in the place of its UID."""
        name = node.metadata.name
        about = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
        await self._tell(about, node=name, texts=(severity, reason, message))

    async def _tell(self, about: dict[str, str], *, node: str, texts: tuple[Severity, str, str]) -> None:
        if self._known((about["uid"], texts[1], texts[2])):
            return
        namespace = about.get("namespace", _NODES_NAMESPACE)
        body = _event(about, node=node, component=self._component, texts=texts)
        try:
            await self._client.create(EVENTS, body, as_type=Event, namespace=namespace)
        except KubeError as error:
            log.warning("event not posted", reason=texts[1], about=about["name"], error=str(error))

    def _known(self, key: tuple[str, str, str]) -> bool:
        now = self._clock()
        if now - self._told.get(key, -AGAIN) < AGAIN:
            return True
        if len(self._told) >= _MOST_KEPT:
            self._told.clear()
        self._told[key] = now
        return False


def _event(about: dict[str, str], *, node: str, component: str, texts: tuple[Severity, str, str]) -> dict[str, Any]:
    severity, reason, message = texts
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"generateName": f"{about['name'][:50]}.", "namespace": about.get("namespace", _NODES_NAMESPACE)},
        "involvedObject": about,
        "type": severity,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
