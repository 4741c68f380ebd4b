"""What the doctor judges: objects of a cluster, or why they could not be read. Values only."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, NamedTuple

from dovetail import names
from dovetail.api.access_reviews import Act
from dovetail.api.builtin import ConfigMap, Lease, Namespace, Node, ResourceSlice
from dovetail.api.gpunode import GPUNode
from dovetail.gpu.cuda import Built

Object = dict[str, Any]
# The components that elect a leader.
LEASED: Final = ("operator", "scheduler", "extender")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Something that could not be read. `missing`: it is not there; else we may not look."""

    why: str
    missing: bool


class Right(NamedTuple):
    """What a component's account must be allowed to do."""

    account: str
    act: Act


class BuiltContainer(NamedTuple):
    """A container on a node that requests a GPU and says which CUDA it is built for."""

    namespace: str
    pod: str
    node: str
    built: Built


READS_TENANTS: Final = Right("agent", Act(verb="list", resource="gpunodetenants"))
# Of each component what it is for.
RIGHTS: Final = (
    Right("operator", Act(verb="create", group="batch", resource="jobs")),
    Right("operator", Act(verb="patch", resource="gpujobs", subresource="status")),
    Right("scheduler", Act(verb="create", group="", resource="pods", subresource="binding")),
    Right("agent", Act(verb="patch", resource="gpunodes", subresource="status")),
    Right("agent", Act(verb="patch", group="", resource="nodes", subresource="status")),
    READS_TENANTS,
    Right("operator", Act(verb="watch", group="resource.k8s.io", resource="resourceslices")),
    Right("scheduler", Act(verb="watch", group="resource.k8s.io", resource="resourceslices")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A cluster as the user may see it; `Unseen` says why something could not be read.

    now               the time of the reads
    release           the namespace of the chart's own objects
    kinds             Dovetail's CRDs
    nodes             the Nodes
    gpunodes          the agents' reports
    leases            the Lease of each component that elects a leader
    config            the ConfigMap of the settings
    runtime_class     the RuntimeClass `nvidia`
    priority_class    the PriorityClass of GPUJobs' pods
    webhook           the webhook's configuration
    policies          names of the admission policies
    bound_policies    names of the policies' bindings
    webhook_pods      the webhook's Deployment
    agents            the agents' DaemonSet
    workloads         all Deployments and DaemonSets of the chart
    rights            whether each component's account has each right that it needs
    cluster_policies  the ClusterPolicies of NVIDIA's GPU operator
    slices            the ResourceSlices of DRA drivers for GPUs
    namespaces        the Namespaces
    resources_asked   extended resources that pods request above 0, by namespace
    resources_waited_for  the same of pods that have no node, by namespace
    built_containers  containers with GPUs that say which CUDA they are built for
    job_namespaces    the namespaces that have GPUJobs
    storage_classes   the StorageClasses
    pod_monitors      the PodMonitors, whose kind the Prometheus operator brings
    neighbours        the CRDs of other queues, schedulers and drivers that are installed
    """

    now: datetime
    kinds: dict[str, Unseen | None]
    nodes: Sequence[Node] | Unseen
    gpunodes: Sequence[GPUNode] | Unseen
    leases: dict[str, Lease | Unseen]
    config: ConfigMap | Unseen
    runtime_class: Object | Unseen
    priority_class: Object | Unseen
    webhook: Object | Unseen
    policies: Sequence[str] | Unseen
    bound_policies: Sequence[str] | Unseen
    webhook_pods: Object | Unseen
    agents: Object | Unseen
    workloads: Sequence[Object] | Unseen
    rights: dict[Right, bool | Unseen]
    cluster_policies: Sequence[Object] | Unseen
    slices: Sequence[ResourceSlice] | Unseen
    namespaces: Sequence[Namespace] | Unseen
    resources_asked: Mapping[str, AbstractSet[str]] | Unseen
    resources_waited_for: Mapping[str, AbstractSet[str]] | Unseen
    built_containers: Sequence[BuiltContainer] | Unseen
    job_namespaces: AbstractSet[str] | Unseen
    storage_classes: Sequence[Object] | Unseen
    pod_monitors: Sequence[Object] | Unseen
    neighbours: AbstractSet[str] | Unseen
    release: str = names.RELEASE_NAMESPACE

    @classmethod
    def of_nodes(
        cls,
        *,
        now: datetime,
        nodes: Sequence[Node],
        gpunodes: Sequence[GPUNode],
        slices: Sequence[ResourceSlice],
        release: str,
    ) -> "Picture":
        """The picture of a program that follows nodes and their reports alone."""
        unseen = Unseen(why="only nodes are followed", missing=False)
        seen: dict[str, Any] = {"now": now, "nodes": nodes, "gpunodes": gpunodes, "slices": slices, "release": release}
        seen |= {"kinds": {}, "leases": {}, "rights": {}}
        return cls(**{each.name: seen.get(each.name, unseen) for each in fields(cls)})

    @property
    def is_attached(self) -> bool:
        """Whether a kube-scheduler outside the release calls the extender, so that the chart runs none."""
        found = self.priority_class
        annotations = {} if isinstance(found, Unseen) else found.get("metadata", {}).get("annotations") or {}
        return annotations.get(names.ATTACHED) == "true"

    @property
    def install(self) -> str:
        """The command that installs the chart, or installs it again."""
        return f"helm upgrade --install dovetail helm/dovetail --namespace {self.release}"

    @property
    def reuse(self) -> str:
        """The command that changes values of the installed chart."""
        return f"helm upgrade dovetail helm/dovetail --namespace {self.release} --reuse-values"

    @property
    def list_agents(self) -> str:
        """The command that lists the agents' pods."""
        return f"kubectl --namespace {self.release} get pods --output=wide --selector=app.kubernetes.io/component=agent"
