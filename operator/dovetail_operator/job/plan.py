"""The plan of a job: what its status says of it, how its pods are held to it, and whether it still holds. Pure.

The queue admits a job with a place for each worker. That place is written to the status first, and named in the pod
template after that: kube-scheduler then looks at those nodes only, and the extender keeps the room for the workers.
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
# Of a cluster of fewer nodes kube-scheduler looks at each (minFeasibleNodesToFind in its schedule_one.go); and from how
# many terms on a pod is so much larger that everybody who handles it is slower.
_LOOKED_AT_WHOLE: Final = 100
_MANY_TERMS: Final = 16
_REFUSALS: Final = frozenset({"Invalid", "Quota"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_ENDING: Final = "Waiting for the pods of the run before to end"
# Annotations of pods that follow what may change while a job waits: its plan, policy and priority.
_FOLLOWED: Final = (names.PLAN, names.POLICY, names.PRIORITY)
# For how long a plan is believed that seems not to hold: without room, and refused by kube-scheduler.
_PATIENCE_SECONDS: Final = 3.0
_REFUSED_SECONDS: Final = 5.0
_LONGEST_REFUSED_SECONDS: Final = 60.0
# For how long at most a job is not planned anew that kube-scheduler refuses again and again.
_LONGEST_REST_SECONDS: Final = 300.0


def placement_of(job: GPUJob, verdict: Verdict | None) -> Placement | None:
    """The plan that follows from a verdict; the one that stands in the status where it is the same."""
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
    """What a waiting job has reserved, as its status says it."""
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
    """Whether the status has a plan that has to be written before anything is done about it.

    A job whose Job was refused before is told of its plan only once it is not: else it would seem to start each time.
    """
    refused = before.reason in _REFUSALS and child is None
    return status.placement is not None and status.placement != before.placement and not refused


def with_plan(
    template: Manifest, *, job: GPUJob, placement: Placement | None, cluster_nodes: int | None = None
) -> Manifest:
    """A pod template whose pods go to the nodes of the plan and say so.

    The extender leads each to its node. Nodes are named to kube-scheduler to spare it the others; where it looks at so
    few nodes in any case, many names would only make each pod of a gang large.
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
    """The pod's spec with a required affinity that names `nodes`, beside what it requires itself."""
    affinity = dict(pod_spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    # A field requirement takes one name: so a term for each node. Within a term all must hold, of the terms any one.
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
    """What has to change in the spec of a suspended batch Job so that it goes on by the plan of `manifest`.

    In one patch: pods that come of it must not be of the plan before.
    """
    template = manifest["spec"]["template"]
    annotations = template["metadata"].get("annotations", {})
    of_nodes = (template["spec"].get("affinity") or {}).get("nodeAffinity")
    change: Manifest = {
        "metadata": {"annotations": {name: annotations.get(name) for name in _FOLLOWED}},
        # Null where there is none any more: a pool that it was held to, for one.
        "spec": {"affinity": {"nodeAffinity": of_nodes}},
    }
    return {"suspend": False, "parallelism": manifest["spec"]["parallelism"], "template": change}


def unrest(job: GPUJob, child: Job | None, pods: Sequence[Pod]) -> Obstacle | None:
    """Why a suspended batch Job takes no other plan yet: it has to say so itself, and its pods have to be gone."""
    if child is None or not child.spec.suspend or job.status.phase in FINISHED:
        return None
    # What ends by the suspension may be told as a failure: gone, it is none of the Job that goes on.
    left = [pod for pod in pods if pod.status.phase not in _ENDED or pod.metadata.deletion_timestamp is not None]
    started = child.status.start_time is not None
    if left or child.status.active or (started and not true_condition(child, "Suspended")):
        return Obstacle(reason="Evaluating", message=_ENDING)
    return None


def left_behind(pods: Sequence[Pod]) -> Obstacle | None:
    """Why a job does not start while there are `pods` of a run whose batch Job was deleted: it would run twice."""
    left = [pod for pod in pods if not pod.metadata.owner_references and pod.metadata.deletion_timestamp is None]
    if left:
        message = f"Pod {left[0].metadata.name} of the run before goes on without its Job: waiting for it to end"
        return Obstacle(reason="Evaluating", message=f"{message} or to be deleted")
    return Obstacle(reason="Evaluating", message=_ENDING) if pods else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a plan does not seem to hold; after `patience_seconds` it is taken for overtaken.

    Then the job is not planned anew for `rest_seconds`, and told `words` with that `reason` meanwhile.
    """

    why: str
    patience_seconds: float = 0.0
    rest_seconds: float = 0.0
    words: str = ""
    reason: Reason = "Resources"


def doubt_about(node: str, *, view: ClusterView) -> Doubt:
    """Why a worker has no room on its planned node."""
    found = view.nodes.get(node)
    if found is None:
        return Doubt(why=f"node {node} is gone")
    if found.spec.unschedulable:
        return Doubt(why=f"node {node} is cordoned")
    if obstacle := view.ledger.obstacle(node):
        return Doubt(why=f"{node}: {obstacle}")
    # What others hold there may be about to go, or this may be a glimpse between two events.
    return Doubt(why=f"the room on {node} is taken", patience_seconds=_PATIENCE_SECONDS)


def doubt_of_refusal(job: GPUJob, pods: Sequence[Pod]) -> Doubt:
    """Why a plan does not hold that kube-scheduler does not follow: it may by rules that are not planned for.

    Each time it is believed for longer, but for no longer than at first where some workers have started: they would
    wait for the others in vain. From the second time on others may have the room before it is tried again.
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
    """What kube-scheduler says of the first worker that it finds no place for."""
    refused = [pod for pod in pods if refused_since([pod]) is not None]
    for pod in sorted(refused, key=worker_of):
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.message:
                return condition.message
    return "no node takes the pod"


def rest_after(doubt: Doubt, *, now: datetime) -> Obstacle | None:
    """Why a job whose plan is overtaken is not planned anew at once; None where it is."""
    if not doubt.rest_seconds:
        return None
    until = after(now, seconds=doubt.rest_seconds)
    message = f"Gets a new plan at {timestamp(until)}: {doubt.words}"
    return Obstacle(reason=doubt.reason, message=message, until=until)


class Doubts:
    """Since when plans are doubted, by the job's UID."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def overtaken(self, doubts: Mapping[str, Doubt], *, now: float) -> dict[str, str]:
        """Those of the plans that are overtaken, and by what; `now` is in seconds."""
        self._since = {uid: self._since.get(uid, now) for uid in doubts}
        return {uid: each.why for uid, each in doubts.items() if now - self._since[uid] >= each.patience_seconds}
