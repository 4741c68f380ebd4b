"""Provides a node's tenants, from the operator's GPUNodeTenants or from the pods themselves.

The operator's object is valid however old it is: a promise is fixed when the pod is bound, and an operator that is down
changes no promise. A pod that the object does not name can be newer than the object. `answers` shows which: it is the
agent's own question (GPUNode `status.tenantsAsked`) that the list answers.
"""

from collections.abc import Callable
from typing import Any

from dovetail.api.builtin import Pod
from dovetail.api.gpunodetenants import GPUNodeTenants, NodeTenant
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUNODETENANTS, PODS
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import Vendors
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector


class TenantSource:
    """The tenants of the named node, or of all nodes without a name. Run its `reflector`.

    `changed` is called with a node's name each time its tenants change.
    """

    def __init__(
        self, client: Client, *, node: str | None, reads_pods: bool, vendors: Vendors, changed: Callable[[str], None]
    ) -> None:
        self.reads_pods = reads_pods
        self._vendors = vendors
        self._changed = changed
        self._tenants: dict[str, dict[str, NodeTenant]] = {}
        self._answers: dict[str, int] = {}
        self.reflector: Reflector[Any] = (
            Reflector(
                client,
                resource=PODS,
                as_type=Pod,
                on_event=self._on_pod,
                field_selector="spec.nodeName!=" if node is None else f"spec.nodeName={node}",
            )
            if reads_pods
            else Reflector(
                client,
                resource=GPUNODETENANTS,
                as_type=GPUNodeTenants,
                on_event=self._on_object,
                field_selector=None if node is None else f"metadata.name={node}",
            )
        )

    def tenants(self, node: str) -> tuple[NodeTenant, ...]:
        """Return the last known tenants of a node."""
        return tuple(self._tenants.get(node, {}).values())

    def knows(self, node: str) -> bool:
        """Whether the tenants of a node are known."""
        return self.reads_pods or node in self._answers

    def answers(self, node: str) -> int | None:
        """Return the agent's question that the list answers, 0 for none; None where pods are read."""
        return None if self.reads_pods else self._answers.get(node, 0)

    def forget(self, node: str) -> None:
        """Drop a deleted node. Where pods are read, each reports its own deletion."""
        if self.reads_pods:
            return
        self._tenants.pop(node, None)
        self._answers.pop(node, None)

    def _on_object(self, event: EventType, found: GPUNodeTenants) -> None:
        # The last state of a deleted object stays: deletion ends no pod, and the operator creates the object again.
        if event == "DELETED":
            return
        name = found.metadata.name
        tenants = {each.uid: each for each in found.spec.tenants}
        same = self.knows(name) and self._tenants.get(name) == tenants and self._answers[name] == found.spec.answers
        self._tenants[name], self._answers[name] = tenants, found.spec.answers
        if not same:
            self._changed(name)

    def _on_pod(self, event: EventType, pod: Pod) -> None:
        tenant = None if event == "DELETED" else tenant_of_pod(pod, vendors=self._vendors)
        tenants = self._tenants.setdefault(pod.spec.node_name, {})
        if tenants.get(pod.metadata.uid) == tenant:
            return
        if tenant is None:
            del tenants[pod.metadata.uid]
        else:
            tenants[pod.metadata.uid] = tenant
        self._changed(pod.spec.node_name)
