"""The parts of a pod's spec that decide where it may run, and those to which something is added. Values only.

The API server does not check a job's template before it creates the Job. To decode a spec as these types once turns an
invalid pod into one sentence; later code finds valid values.
"""

from msgspec import Struct, field

from dovetail.api.builtin import LabelSelector, SelectorRequirement

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """Other fields may have any value."""


class PodTerm(_Said, frozen=True, kw_only=True):
    """Pods to keep apart from, on nodes with equal labels `topology_key`."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: list[str] = []
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class PodAntiAffinity(_Said, frozen=True, kw_only=True):
    """The pods that a pod keeps apart from."""

    required: list[PodTerm] = field(default=[], name=_REQUIRED)


class NodeTerm(_Said, frozen=True, kw_only=True):
    """Nodes by their labels and fields."""

    match_expressions: list[SelectorRequirement] = []
    match_fields: list[SelectorRequirement] = []


class NodeTerms(_Said, frozen=True, kw_only=True):
    """Nodes that match any of the terms."""

    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(_Said, frozen=True, kw_only=True):
    """The nodes that a pod requires."""

    required: NodeTerms | None = field(default=None, name=_REQUIRED)


class Affinity(_Said, frozen=True, kw_only=True):
    """Rules about nodes and other pods."""

    node_affinity: NodeAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class SpreadConstraint(_Said, frozen=True, kw_only=True):
    """How pods that a selector matches spread over nodes with equal labels `topology_key`."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] = []


class Toleration(_Said, frozen=True, kw_only=True):
    """A taint that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Port(_Said, frozen=True, kw_only=True):
    """A port of a container, and of its node."""

    host_port: int = 0


class Named(_Said, frozen=True, kw_only=True):
    """A volume, or a variable."""

    name: str = ""


class Mount(_Said, frozen=True, kw_only=True):
    """A mount of a volume in a container."""

    name: str = ""
    mount_path: str = ""


class TemplateContainer(_Said, frozen=True, kw_only=True):
    """A container; a sidecar is an init container that restarts `Always`."""

    command: list[str] = []
    args: list[str] = []
    env: list[Named] = []
    ports: list[Port] = []
    volume_mounts: list[Mount] = []
    restart_policy: str = ""


class TemplateSpec(_Said, frozen=True, kw_only=True):
    """A pod's spec."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: Affinity | None = None
    topology_spread_constraints: list[SpreadConstraint] = []
    host_network: bool = False
    containers: list[TemplateContainer] = []
    init_containers: list[TemplateContainer] = []
    volumes: list[Named] = []
    termination_grace_period_seconds: int | None = None
