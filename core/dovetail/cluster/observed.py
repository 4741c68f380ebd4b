"""What a look at a cluster reads, with any scheduler. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.api.builtin import Event, Node, Pod, PodSpec
from dovetail.api.gpunode import GPUNode
from dovetail.api.kueue import ClusterQueue, Workload
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.formats.quantities import Quantity


class PlacedSpec(PodSpec, frozen=True, kw_only=True):
    """A pod's spec with what says where it may go, which Dovetail's own caches leave out."""

    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] = {}
    topology_spread_constraints: list[dict[str, Any]] = []
    active_deadline_seconds: int | None = None

    @property
    def constraints(self) -> Mapping[str, Any]:
        """The constraints in the form of a manifest, as `pods.node_affinity` reads them."""
        return {"nodeSelector": self.node_selector, "tolerations": self.tolerations, "affinity": self.affinity}


class PlacedPod(Pod, frozen=True, kw_only=True):
    """A pod with what says where it may go."""

    spec: PlacedSpec = PlacedSpec()


class QuotaStatus(Described, frozen=True, kw_only=True):
    """The limits of a ResourceQuota and what is used of them."""

    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(Described, frozen=True, kw_only=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    status: QuotaStatus = QuotaStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The objects of a look.

    nodes       None where they may not be listed
    pods        those of all namespaces, or of one; see `everywhere`
    everywhere  whether `pods` are those of all namespaces: else what nodes have promised is not known
    unlisted    the kinds that the reader may not list in all namespaces
    blind       whether the reader may list neither nodes nor any pods
    """

    nodes: Sequence[Node] | None
    pods: Sequence[PlacedPod]
    everywhere: bool = True
    gpunodes: Sequence[GPUNode] = ()
    quotas: Sequence[ResourceQuota] = ()
    events: Sequence[Event] = ()
    workloads: Sequence[Workload] = ()
    clusterqueues: Sequence[ClusterQueue] = ()
    unlisted: Sequence[Resource] = ()
    blind: bool = False
