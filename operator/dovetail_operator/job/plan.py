"""The plan of a job: its status entry, how pods follow it, and whether it still holds. Pure.

The queue admits a job with a node for each worker. The status records that plan first, and the pod template names its
nodes after that. kube-scheduler then considers those nodes only, and the extender reserves the room for the workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import FINISHED, GPUJob, GPUJobStatus, KeptOnNode, Placement, Reason, ReservedRoom
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Claim
from dovetail.formats.durations import after, timestamp
from dovetail.jobs import plan
from dovetail.jobs.batch_job import refused_since, true_condition, worker_of
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.verdicts import Admitted, Kept, Verdict

Manifest = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# In a cluster with fewer nodes kube-scheduler considers every node (minFeasibleNodesToFind in its schedule_one.go).
# From this many terms on, the pod is large enough to slow down every component that handles it.
_LOOKED_AT_WHOLE: Final = 100
_MANY_TERMS: Final = 16
_REFUSALS: Final = frozenset({"Invalid", "Quota"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_ENDING: Final = "Waiting for the pods of the run before to end"
# Pod annotations that change with what may change while a job waits: its plan, policy and priority.
_FOLLOWED: Final = (names.PLAN, names.POLICY, names.PRIORITY)
# How long a doubtful plan is kept: without room on its node, and refused by kube-scheduler.
_PATIENCE_SECONDS: Final = 3.0
_REFUSED_SECONDS: Final = 5.0
_LONGEST_REFUSED_SECONDS: Final = 60.0
# The longest pause before a new plan for a job that kube-scheduler refuses repeatedly.
_LONGEST_REST_SECONDS: Final = 300.0


def placement_of(job: GPUJob, verdict: Verdict | None) -> Placement | None:
    """The plan that follows from a verdict. Returns the status's own plan if it is the same.

    None if the verdict admits nothing.
    """
    if not isinstance(verdict, Admitted) or not verdict.claims or verdict.ask is None:
        return None
    known = job.status.placement
    planned = Placement(
        generation=job.status.plans + 1,
        nodes=plan.planned_nodes(verdict.claims),
        worker=plan.planned_worker(verdict.ask),
    )
    if known is not None and msgspec.structs.replace(planned, generation=known.generation) == known:
        return known
    return planned


def reserved_room(kept: Kept, *, now: datetime) -> ReservedRoom:
    """The status entry for the room that a waiting job has reserved."""
    free: dict[str, list[Claim]] = {}
    for claim in kept.now:
        free.setdefault(claim.node, []).append(claim)
    texts = {node: plan.kept_texts(claims) for node, claims in free.items()}
    return ReservedRoom(
        time=timestamp(after(now, seconds=kept.at_seconds + 0.5)),
        nodes=plan.planned_nodes(kept.claims),
        kept=[KeptOnNode(name=node, keeps=keeps) for node, keeps in texts.items() if keeps],
        mode=kept.claims[0].mode,
        resource=kept.claims[0].resource,
    )


def is_told_first(status: GPUJobStatus, *, before: GPUJobStatus, child: Job | None = None) -> bool:
    """Whether the status has a new plan that must be written before any action follows.

    If the API server refused the job's batch Job, the plan is not written before the batch Job exists. Otherwise the
    job would appear to start with every attempt.
    """
    refused = before.reason in _REFUSALS and child is None
    return status.placement is not None and status.placement != before.placement and not refused


def with_plan(
    template: Manifest, *, job: GPUJob, placement: Placement | None, cluster_nodes: int | None = None
) -> Manifest:
    """Add the plan to a pod template: its nodes as required affinity, and an annotation.

    The extender steers each pod to its node. The affinity only spares kube-scheduler the other nodes. In a small
    cluster it considers every node anyway, and many names would only enlarge each pod of a gang.
    """
    if placement is None:
        return template
    nodes = [node.name for node in placement.nodes]
    is_small = cluster_nodes is not None and cluster_nodes < _LOOKED_AT_WHOLE
    spec = template["spec"]
    metadata = template["metadata"]
    annotation = {names.PLAN: plan.annotation_of(placement, job_uid=job.metadata.uid)}
    return {
        **template,
        "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotation}},
        "spec": spec if is_small and len(nodes) >= _MANY_TERMS else _on_nodes(spec, nodes=nodes),
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


def unrest(job: GPUJob, child: Job | None, pods: Sequence[Pod]) -> Obstacle | None:
    """Why a suspended batch Job cannot take another plan yet.

    It has to report that it is suspended, and its pods have to be deleted.
    """
    if child is None or not child.spec.suspend or job.status.phase in FINISHED:
        return None
    # The Job controller may count a pod that ends by the suspension as failed. Once deleted, it no longer does.
    left = [pod for pod in pods if pod.status.phase not in _ENDED or pod.metadata.deletion_timestamp is not None]
    started = child.status.start_time is not None
    if left or child.status.active or (started and not true_condition(child, "Suspended")):
        return Obstacle(reason="Evaluating", message=_ENDING)
    return None


def left_behind(pods: Sequence[Pod]) -> Obstacle | None:
    """Why a job does not start while pods of a deleted batch Job remain: it would run twice."""
    left = [pod for pod in pods if not pod.metadata.owner_references and pod.metadata.deletion_timestamp is None]
    if left:
        message = f"Pod {left[0].metadata.name} of the run before goes on without its Job: waiting for it to end"
        return Obstacle(reason="Evaluating", message=f"{message} or to be deleted")
    return Obstacle(reason="Evaluating", message=_ENDING) if pods else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a plan does not seem to hold. After `patience_seconds` it counts as overtaken.

    The job then gets no new plan for `rest_seconds`, and its status shows `words` with `reason`. `why` is the short
    form for the message about the overtaken plan.
    """

    why: str
    patience_seconds: float = 0.0
    rest_seconds: float = 0.0
    words: str = ""
    reason: Reason = "Resources"


def doubt_about(node: str, *, view: ClusterView) -> Doubt:
    """The doubt about the plan of a worker that has no room on its planned node."""
    found = view.nodes.get(node)
    if found is None:
        return Doubt(why=f"node {node} is gone")
    if found.spec.unschedulable:
        return Doubt(why=f"node {node} is cordoned")
    if obstacle := view.ledger.obstacle(node):
        return Doubt(why=f"{node}: {obstacle}")
    # Another pod there may be about to end, or this is a state between two events.
    return Doubt(why=f"the room on {node} is taken", patience_seconds=_PATIENCE_SECONDS)


def doubt_of_refusal(job: GPUJob, pods: Sequence[Pod]) -> Doubt:
    """Doubt a plan that kube-scheduler refuses, perhaps by rules that Dovetail does not model.

    The patience doubles with each plan, up to 60 s. It stays at 5 s if some workers have started, because they would
    wait for the others. From the second plan on, other jobs may use the room before the next try.
    """
    times = max(0, job.status.plans - 1)
    half_started = any(pod.spec.node_name and pod.status.phase not in _ENDED for pod in pods)
    patience = min(_LONGEST_REFUSED_SECONDS, _REFUSED_SECONDS * 2.0 ** min(10, times))
    rest = min(_LONGEST_REST_SECONDS, _REFUSED_SECONDS * 2.0 ** min(10, times - 1)) if times else 0.0
    return Doubt(
        why="kube-scheduler found no place for a worker on its planned node",
        patience_seconds=_REFUSED_SECONDS if half_started else patience,
        rest_seconds=rest,
        words=f"kube-scheduler: {_words_of_refusal(pods)}",
    )


def _words_of_refusal(pods: Sequence[Pod]) -> str:
    """kube-scheduler's message on the first worker that it cannot place."""
    refused = [pod for pod in pods if refused_since([pod]) is not None]
    for pod in sorted(refused, key=worker_of):
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.message:
                return condition.message
    return "no node takes the pod"


def rest_after(doubt: Doubt, *, now: datetime) -> Obstacle | None:
    """The pause before a job with an overtaken plan gets a new one; None without a pause."""
    if not doubt.rest_seconds:
        return None
    until = after(now, seconds=doubt.rest_seconds)
    message = f"Gets a new plan at {timestamp(until)}: {doubt.words}"
    return Obstacle(reason=doubt.reason, message=message, until=until)


class Doubts:
    """Since when plans are doubtful, by the job's UID."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def overtaken(self, doubts: Mapping[str, Doubt], *, now: float) -> dict[str, str]:
        """Return the plans that have been doubtful for too long, with the reason.

        `now` is in seconds.
        """
        self._since = {uid: self._since.get(uid, now) for uid in doubts}
        return {uid: each.why for uid, each in doubts.items() if now - self._since[uid] >= each.patience_seconds}
