"""Whether a reported memory overuse may end its pod, checked against the pod's own record.

Pure.

A report comes from one node, whose agent's token may be stolen. A report can therefore end only what that node could
end itself: a pod that runs there and shares the reported device. The pod's record comes from the API server, where an
agent cannot change it.
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpunode import Overuse
from dovetail.pods.allocation import Allocation, AllocationError, allocation_in

Refusal = Literal[
    "Policy", "UnknownPod", "Ended", "OtherNode", "ExemptNamespace", "NoAllocation", "WholeDevices", "OtherDevice"
]
REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRules:
    """Whether `memory_overuse` lets the operator end pods, and the namespaces it spares.

    The operator ends pods under Evict. Under Kill it does if an agent that cannot kill asks for it.
    """

    ends: bool = False
    exempt_namespaces: frozenset[str] = frozenset()


def refusal(overuse: Overuse, *, node: str, pod: Pod | None, rules: EndingRules) -> Refusal | None:
    """Why a report of `node` does not end the pod; None if it does.

    `pod` is the pod that the operator knows by the reported namespace and name, None without one.
    """
    if not rules.ends:
        return "Policy"
    if pod is None or pod.metadata.uid != overuse.uid:
        return "UnknownPod"
    if is_terminated(pod):
        return "Ended"
    if pod.spec.node_name != node:
        return "OtherNode"
    if pod.metadata.namespace in rules.exempt_namespaces:
        return "ExemptNamespace"
    allocation = _allocation_of(pod)
    if allocation is None or allocation.node != node:
        return "NoAllocation"
    if allocation.mode == "Exclusive":
        return "WholeDevices"
    return None if any(device.uuid == overuse.device for device in allocation.devices) else "OtherDevice"


def _allocation_of(pod: Pod) -> Allocation | None:
    try:
        return allocation_in(pod.metadata.annotations)
    except AllocationError:  # the audit reports it
        return None
