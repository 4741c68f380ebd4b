"""The nodes that a job's shortage is about: by its pools, selector and tolerations. Pure."""

from collections.abc import Mapping
from typing import Any

from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.cluster.view import ClusterView
from dovetail.pods.demand import written_spec
from dovetail.pods.node_affinity import admits
from dovetail.queue.limits.quotas import spec_in_pools
from dovetail.queue.model.gate import Refused


def reach(job: GPUJob, *, reason: Reason, pools: tuple[str, ...] | Refused, view: ClusterView) -> Sentence:
    """What to append to the sentence of a shortage with that reason.

    Empty where it is about all nodes.
    """
    if reason in {"Quota", "Provisioning"} or isinstance(pools, Refused):
        return NOTHING
    of_pools = says.IN_POOL(pools=" or ".join(pools)) if pools else NOTHING
    of_nodes = NOTHING
    if reason == "ExceedsCapacity":
        of_nodes = _those(spec_in_pools(written_spec(job), pools=pools), job=job, view=view)
    if not of_pools.message and not of_nodes.message:
        return NOTHING
    between = says.COMMA() if of_pools.message and of_nodes.message else NOTHING
    return says.OPEN() + of_pools + between + of_nodes + says.CLOSE()


def _those(spec: Mapping[str, Any], *, job: GPUJob, view: ClusterView) -> Sentence:
    said = written_spec(job)
    chooses = said.get("nodeSelector") or (said.get("affinity") or {}).get("nodeAffinity")
    misses = _misses_by_taints(spec, view=view)
    if chooses:
        return says.OF_CHOSEN_AND_TOLERATED() if misses else says.OF_CHOSEN()
    return says.OF_TOLERATED() if misses else NOTHING


def _misses_by_taints(spec: Mapping[str, Any], *, view: ClusterView) -> bool:
    """Whether some node with devices is closed to the pods by its taints alone."""
    tolerant = {**spec, "tolerations": [{"operator": "Exists"}]}
    # Few nodes with devices have taints, so this check is cheap.
    tainted = (node for node in view.nodes.values() if node.spec.taints and view.ledger.devices(node.metadata.name))
    return any(admits(node, pod_spec=tolerant) and not admits(node, pod_spec=spec) for node in tainted)
