"""The plan of a job in its pod template: a new template with it, and the patch of a batch Job that resumes. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail import names
from dovetail.api.gpujob import GPUJob, Placement
from dovetail.jobs import plan
from dovetail.pods.options.annotations import CHANGING

Manifest = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# From this many terms on, the pod is large enough to slow down every component that handles it: 500 terms have 43 KB in
# each of a gang's 500 pods. Another node that kube-scheduler considers is assumed to cost a thirtieth of a term.
_MANY_TERMS: Final = 16
_NODES_OF_A_TERM: Final = 32
# Pod annotations that may change while a job waits.
_FOLLOWED: Final = (names.PLAN, *CHANGING)


def with_plan(
    template: Manifest,
    *,
    job: GPUJob,
    placement: Placement | None,
    cluster_nodes: int | None = None,
    carried: bool = False,
) -> Manifest:
    """Add the plan to a pod template: its nodes as required affinity, and an annotation.

    The extender steers each pod to its node. The affinity only spares kube-scheduler the other nodes. Where the plan
    has a large part of the cluster's nodes, it would spare little, and many names enlarge each pod of a gang. The
    template of a running batch Job cannot change, so a job whose workers may get other nodes has none.

    With `carried`, the status does not have the plan yet, and is made from the annotation.
    """
    if placement is None:
        return template
    nodes = [node.name for node in placement.nodes]
    spares_little = cluster_nodes is not None and cluster_nodes < _NODES_OF_A_TERM * len(nodes)
    is_free = job.spec.restart == "Worker"
    spec = template["spec"]
    metadata = template["metadata"]
    annotation = {names.PLAN: plan.annotation_of(placement, job_uid=job.metadata.uid, carried=carried)}
    return {
        **template,
        "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotation}},
        "spec": spec if is_free or (spares_little and len(nodes) >= _MANY_TERMS) else _on_nodes(spec, nodes=nodes),
    }


def _on_nodes(pod_spec: Manifest, *, nodes: Sequence[str]) -> Manifest:
    """The pod spec with a required affinity for `nodes`, in addition to its own requirements."""
    affinity = dict(pod_spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    # A field requirement accepts one name, so each node needs a term. A node has to match one term completely.
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), _named(node)]}
        for term in required.get("nodeSelectorTerms") or [{}]
        for node in nodes
    ]
    of_nodes[_REQUIRED] = {**required, "nodeSelectorTerms": terms}
    return {**pod_spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}


def _named(node: str) -> Mapping[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def resumed(manifest: Manifest) -> Manifest:
    """The patch that resumes a suspended batch Job with the plan of `manifest`.

    It is a single patch, so that no pod is created from the previous plan.
    """
    template = manifest["spec"]["template"]
    annotations = template["metadata"].get("annotations", {})
    of_nodes = (template["spec"].get("affinity") or {}).get("nodeAffinity")
    change: Manifest = {
        "metadata": {"annotations": {name: annotations.get(name) for name in _FOLLOWED}},
        # Null removes an affinity that no longer applies, such as a node pool.
        "spec": {"affinity": {"nodeAffinity": of_nodes}},
    }
    return {"suspend": False, "parallelism": manifest["spec"]["parallelism"], "template": change}
