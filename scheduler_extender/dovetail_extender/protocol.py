"""kube-scheduler's extender protocol (extender/v1): types and decoding.

Values and decoding only, field for field. The names on the wire are those of the Go types.

WireError   the body is not a request of this protocol; the message says why
"""

from typing import Any, TypeVar

import msgspec
from msgspec import field

from dovetail.api.builtin import Pod, PodSpec
from dovetail.decoding import Decoder, UnreadableError

T = TypeVar("T")


class WireError(ValueError):
    """The body is not a request of the extender protocol."""


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """Node preferences; only their presence counts. Requirements are left to kube-scheduler."""

    preferred_during_scheduling_ignored_during_execution: list[Any] = []


class PodAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """Preferences of affinity or anti-affinity between pods; only their presence counts."""

    preferred_during_scheduling_ignored_during_execution: list[Any] = []


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """The pod's affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a topology spread constraint is required or preferred."""

    when_unsatisfiable: str = "DoNotSchedule"


class SchedulingSpec(PodSpec, frozen=True, kw_only=True):
    """A pod's spec with the preferences that only kube-scheduler weighs."""

    affinity: Affinity | None = None
    topology_spread_constraints: list[SpreadConstraint] = []

    @property
    def has_wishes(self) -> bool:
        """Whether the pod prefers some nodes without requiring them."""
        affinity = self.affinity or Affinity()
        terms = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
        wishes = any(term is not None and term.preferred_during_scheduling_ignored_during_execution for term in terms)
        return wishes or any(
            constraint.when_unsatisfiable == "ScheduleAnyway" for constraint in self.topology_spread_constraints
        )


class ScheduledPod(Pod, frozen=True, kw_only=True):
    """A pod as kube-scheduler sends it."""

    spec: SchedulingSpec = SchedulingSpec()


class _ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod | None = None
    # Stays undecoded: null with nodeCacheCapable, and the full objects of all nodes without it.
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    node_names: list[str] | None = None


class FilterArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The request of filter and prioritize: a pod, and the names of the nodes."""

    pod: ScheduledPod
    nodes: list[str]


class FilterResult(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The answer to filter; `node_names` is None when no node fits."""

    node_names: list[str] | None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    nodes: None = None
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """One node's score; kube-scheduler silently ignores all scores if one is a float."""

    host: str
    score: int


class MetaPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, identified by its UID."""

    uid: str = field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True, kw_only=True):
    """The victims on a node, and how many disruption budgets their eviction violates."""

    pods: list[MetaPod] = field(name="Pods", default_factory=list)
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class PreemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to preempt: victims for each node on which preemption helps.

    Each node must have a victim: kube-scheduler fails the attempt otherwise.
    """

    victims: dict[str, MetaVictims] = field(name="NodeNameToMetaVictims")


class _Victims(msgspec.Struct, frozen=True, rename="pascal"):
    pods: list[Pod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    pods: list[MetaPod] | None = None
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _PreemptArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod | None = None
    # kube-scheduler sends one of the two: the second with nodeCacheCapable, the first without.
    node_name_to_victims: dict[str, _Victims] | None = None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None = None


class PreemptArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The request of preempt: a pod, and the victims that kube-scheduler proposes on each node."""

    pod: ScheduledPod
    victims: dict[str, MetaVictims]


class BindingArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The request of bind. Raises `ValueError` for an empty field."""

    pod_name: str = field(name="PodName")
    pod_namespace: str = field(name="PodNamespace")
    pod_uid: str = field(name="PodUID")
    node: str = field(name="Node")

    def __post_init__(self) -> None:
        for name, wire_name in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            if not getattr(self, name):
                raise ValueError(f"{wire_name} is empty")


class BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer to bind; an empty `error` means that the pod is bound."""

    error: str = ""


_ARGS = Decoder(_ExtenderArgs)
_PREEMPT = Decoder(_PreemptArgs)
_BINDING = Decoder(BindingArgs)


def read_filter_args(body: bytes) -> FilterArgs:
    """Decode a request of filter or prioritize. Raises `WireError`."""
    args = _decoded(_ARGS, body=body)
    if args.pod is None:
        raise WireError("Pod is missing")
    if args.node_names is None:
        given = "is null and so is Nodes" if bytes(args.nodes) == b"null" else "is null and Nodes is not"
        raise WireError(f"NodeNames {given}: the extender's entry in kube-scheduler needs nodeCacheCapable: true")
    if not args.pod.metadata.uid:
        raise WireError("Pod.metadata.uid is missing")
    _refuse_negative_amounts(args.pod)
    return FilterArgs(pod=args.pod, nodes=args.node_names)


def read_preempt_args(body: bytes) -> PreemptArgs:
    """Decode a request of preempt. Raises `WireError`."""
    args = _decoded(_PREEMPT, body=body)
    if args.pod is None or not args.pod.metadata.uid:
        raise WireError("Pod.metadata.uid is missing")
    _refuse_negative_amounts(args.pod)
    victims = {
        node: MetaVictims(
            pods=[MetaPod(uid=pod.metadata.uid) for pod in each.pods or ()], num_pdb_violations=each.num_pdb_violations
        )
        for node, each in (args.node_name_to_victims or {}).items()
    }
    for node, given in (args.node_name_to_meta_victims or {}).items():
        victims[node] = MetaVictims(pods=given.pods or [], num_pdb_violations=given.num_pdb_violations)
    return PreemptArgs(pod=args.pod, victims=victims)


def read_binding_args(body: bytes) -> BindingArgs:
    """Decode a request of bind. Raises `WireError`."""
    return _decoded(_BINDING, body=body)


def _refuse_negative_amounts(pod: ScheduledPod) -> None:
    """The API server refuses such pods, and the engine counts on that. Raises `WireError`."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for part, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
            for name, amount in amounts.items():
                if str(amount).strip().startswith("-"):
                    raise WireError(f"Pod requests {name}: {amount} in resources.{part}, and an amount is 0 or more")


def _decoded(decoder: Decoder[T], *, body: bytes) -> T:
    try:
        return decoder.decode(body)
    except UnreadableError as error:
        raise WireError(f"the body cannot be read: {error}") from error
