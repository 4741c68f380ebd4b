"""The nodes that a job's shortage is about: by its pools, selector and tolerations. Pure."""

from collections.abc import Mapping
from typing import Any

from dovetail.api.gpujob import GPUJob, Reason
from dovetail.cluster.view import ClusterView
from dovetail.pods.demand import written_spec
from dovetail.pods.node_affinity import admits
from dovetail.queue.limits.quotas import spec_in_pools
from dovetail.queue.model.gate import Refused


def reach(job: GPUJob, *, reason: Reason, pools: tuple[str, ...] | Refused, view: ClusterView) -> str:
    """What to append to the sentence of a shortage with that reason.

    Empty where it is about all nodes.
    """
    if reason in {"Quota", "Provisioning"} or isinstance(pools, Refused):
        return ""
    words = [f"in pool {' or '.join(pools)}"] if pools else []
    if reason == "ExceedsCapacity" and (
        those := _those(spec_in_pools(written_spec(job), pools=pools), job=job, view=view)
    ):
        words.append(f"of the nodes {those}")
    return f" ({', '.join(words)})" if words else ""


def _those(spec: Mapping[str, Any], *, job: GPUJob, view: ClusterView) -> str:
    said = written_spec(job)
    chooses = said.get("nodeSelector") or (said.get("affinity") or {}).get("nodeAffinity")
    words = ["that its nodeSelector or affinity allows"] if chooses else []
    words += ["whose taints it tolerates"] if _misses_by_taints(spec, view=view) else []
    return " and ".join(words)


def _misses_by_taints(spec: Mapping[str, Any], *, view: ClusterView) -> bool:
    """Whether some node with devices is closed to the pods by its taints alone."""
    tolerant = {**spec, "tolerations": [{"operator": "Exists"}]}
    # Few nodes with devices have taints, so this check is cheap.
    tainted = (node for node in view.nodes.values() if node.spec.taints and view.ledger.devices(node.metadata.name))
    return any(admits(node, pod_spec=tolerant) and not admits(node, pod_spec=spec) for node in tainted)
