"""Which nodes are about to be emptied: cordoned by people, or chosen by an autoscaler for removal. Pure."""

from typing import Final

from dovetail.api.builtin import Node

# Taints that Karpenter and the cluster autoscaler put on a node before they evict its pods.
_REMOVED_SOON: Final = frozenset({"karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"})


def is_leaving(node: Node) -> bool:
    """Whether the node takes no new pods because it is to be emptied."""
    return node.spec.unschedulable or any(taint.key in _REMOVED_SOON for taint in node.spec.taints)
