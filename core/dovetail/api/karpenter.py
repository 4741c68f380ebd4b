"""Karpenter's NodePool (karpenter.sh/v1), as far as it is read. Data only."""

from dovetail.api.builtin import SelectorRequirement, Taint
from dovetail.api.meta import Described, ObjectMeta
from dovetail.formats.quantities import Quantity


class NodePoolMetadata(Described, frozen=True, kw_only=True):
    """The metadata of a pool's nodes."""

    labels: dict[str, str] = {}


class NodePoolNodes(Described, frozen=True, kw_only=True):
    """What all nodes of a pool have in common."""

    requirements: list[SelectorRequirement] = []
    taints: list[Taint] = []


class NodePoolTemplate(Described, frozen=True, kw_only=True):
    """From what a pool's nodes are made."""

    metadata: NodePoolMetadata = NodePoolMetadata()
    spec: NodePoolNodes = NodePoolNodes()


class NodePoolSpec(Described, frozen=True, kw_only=True):
    """What is read of a NodePool's spec."""

    template: NodePoolTemplate = NodePoolTemplate()
    limits: dict[str, Quantity] = {}
    weight: int = 0


class NodePool(Described, frozen=True, kw_only=True):
    """A pool of Karpenter's."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()
