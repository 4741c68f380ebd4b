"""Whether a pod may go to a node: node selector, required node affinity and taints. Pure.

kube-scheduler decides this for the pod. The queue checks it beforehand, so that it admits no job to nodes that its pods
may not use. The rules are those of the Kubernetes scheduler's plugins NodeAffinity and TaintToleration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dovetail.api.builtin import Node, Taint

_KEEPING_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
# Taints that Karpenter and the cluster autoscaler put on a node before they evict its pods.
REMOVED_SOON: Final = frozenset({"karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"})
# The ledger knows these states from the node itself: cordoned, drained, or not ready. A node that can come back remains
# possible for a job.
_STATES: Final = REMOVED_SOON | {
    "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
}  # fmt: skip
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Expression = Mapping[str, Any]
ExclusionKind = Literal["NodeSelector", "Taint", "NodeAffinity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """What keeps a pod off a node regardless of room.

    `what` is the same for every node of one cause.
    """

    kind: ExclusionKind
    what: str


def admits(node: Node, *, pod_spec: Mapping[str, Any]) -> bool:
    """Whether a pod with `pod_spec` (as in JSON) may go to `node`."""
    return exclusion(node, pod_spec=pod_spec) is None


def exclusion(node: Node, *, pod_spec: Mapping[str, Any]) -> Exclusion | None:
    """The first reason in `pod_spec` (as in JSON) that keeps a pod off `node`.

    None if there is none.
    """
    selector: Mapping[str, str] = pod_spec.get("nodeSelector") or {}
    unmet = [f"{name}={value}" for name, value in selector.items() if node.metadata.labels.get(name) != value]
    if unmet:
        return Exclusion(kind="NodeSelector", what=", ".join(sorted(unmet)))
    tolerations: Sequence[Mapping[str, Any]] = pod_spec.get("tolerations") or ()
    for taint in node.spec.taints:
        if taint.effect not in _KEEPING_OFF or taint.key in _STATES:
            continue
        if not any(_tolerates(each, taint=taint) for each in tolerations):
            return Exclusion(kind="Taint", what=f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":"))
    return None if _affinity_admits(node, pod_spec=pod_spec) else Exclusion(kind="NodeAffinity", what="")


def _tolerates(toleration: Mapping[str, Any], *, taint: Taint) -> bool:
    if toleration.get("effect") not in {None, "", taint.effect}:
        return False
    key = toleration.get("key") or ""
    if toleration.get("operator") == "Exists":
        return key in {"", taint.key}
    return key == taint.key and (toleration.get("value") or "") == taint.value


def tolerating(pod_spec: Mapping[str, Any], *, resources: Iterable[str]) -> dict[str, Any]:
    """A copy of `pod_spec` that tolerates the taints by which clusters keep pods without GPUs off GPU nodes.

    Their keys are the vendors' resources, such as `nvidia.com/gpu`: Kubernetes' admission plugin
    ExtendedResourceToleration adds the same tolerations to pods that request these. A spec whose tolerations
    cannot be read is left as it is.
    """
    said = pod_spec.get("tolerations") or []
    if not isinstance(said, list) or not all(isinstance(each, Mapping) for each in said):
        return dict(pod_spec)
    tolerations = list(said)
    for resource in resources:
        if not any(_tolerates_all(each, key=resource) for each in tolerations):
            tolerations.append({"key": resource, "operator": "Exists", "effect": "NoSchedule"})
    return {**pod_spec, "tolerations": tolerations}


def _tolerates_all(toleration: Mapping[str, Any], *, key: str) -> bool:
    """Whether it tolerates every NoSchedule taint with that key."""
    is_open = toleration.get("operator") == "Exists" and toleration.get("effect") in {None, "", "NoSchedule"}
    return is_open and (toleration.get("key") or "") in {"", key}


def _affinity_admits(node: Node, *, pod_spec: Mapping[str, Any]) -> bool:
    node_affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get(_REQUIRED)
    if not required:
        return True
    return any(term_admits(node, term=term) for term in required.get("nodeSelectorTerms") or ())


def requiring(pod_spec: Mapping[str, Any], *, expression: Expression) -> dict[str, Any]:
    """A copy of `pod_spec` that also requires nodes whose labels meet `expression`. Its own requirements stay."""
    affinity = dict(pod_spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), dict(expression)]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    of_nodes[_REQUIRED] = {**required, "nodeSelectorTerms": terms}
    return {**pod_spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}


def term_admits(node: Node, *, term: Mapping[str, Any]) -> bool:
    """Whether a term of a NodeSelector (as in JSON) selects the node.

    One without expressions selects none.
    """
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    return all(holds(expression, value=node.metadata.labels.get(expression["key"])) for expression in labels) and all(
        holds(expression, value=node.metadata.name) for expression in fields
    )


def holds(expression: Expression, *, value: str | None) -> bool:
    """Whether a selector's expression holds for a label with that value.

    None means that there is no such label.
    """
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) > _number(next(iter(values), None))
        case "Lt":
            return _number(value) < _number(next(iter(values), None))
        case _:
            return False


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else float("nan")
    except ValueError:
        return float("nan")
