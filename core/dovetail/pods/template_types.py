"""What a pod's spec says of where it may go and with whom, as far as we read it. Values only.

The API server does not check a job's template before the Job is created.
Read as this once, what is no pod is refused in a sentence, and
whatever is read of it later is as it should be.
"""

from msgspec import Struct, field

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that are not named here are whatever they are."""


class Expression(_Said, frozen=True, kw_only=True):
    """A requirement on one label, or on a field of a node."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(_Said, frozen=True, kw_only=True):
    """Chooses by labels; an empty one chooses all."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Expression] = []


class PodTerm(_Said, frozen=True, kw_only=True):
    """Pods that a pod keeps away from, on nodes alike in `topology_key`."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: list[str] = []
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class PodAntiAffinity(_Said, frozen=True, kw_only=True):
    """Whom a pod keeps away from."""

    required: list[PodTerm] = field(default=[], name=_REQUIRED)


class NodeTerm(_Said, frozen=True, kw_only=True):
    """Nodes by their labels and fields."""

    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class NodeTerms(_Said, frozen=True, kw_only=True):
    """Nodes of which any term holds."""

    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(_Said, frozen=True, kw_only=True):
    """The nodes that a pod has to go to."""

    required: NodeTerms | None = field(default=None, name=_REQUIRED)


class Affinity(_Said, frozen=True, kw_only=True):
    """Nodes and neighbours."""

    node_affinity: NodeAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(_Said, frozen=True, kw_only=True):
    """A taint that a pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Port(_Said, frozen=True, kw_only=True):
    """A port of a container, and of its node."""

    host_port: int = 0


class PortsOf(_Said, frozen=True, kw_only=True):
    """The ports of a container; a sidecar is one among the first that restarts `Always`."""

    ports: list[Port] = []
    restart_policy: str = ""


class Whereabouts(_Said, frozen=True, kw_only=True):
    """What a pod's spec says of it."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: Affinity | None = None
    host_network: bool = False
    containers: list[PortsOf] = []
    init_containers: list[PortsOf] = []
