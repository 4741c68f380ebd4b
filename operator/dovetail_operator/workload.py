"""A GPUJob as the batch Job that runs it. Pure: the same GPUJob gives the same manifest.

The pods are built complete: on our scheduler every container says which devices it sees, so that neither an image's own
variable nor a user's can bring in a device that was not promised.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import KIND, GPUJob, MemoryUse
from dovetail.api.meta import OwnerReference
from dovetail.asks import resources_of, template_spec
from dovetail.engine.claims import Ask
from dovetail.kube.objects import Job
from dovetail.pods.completion import completed
from dovetail.pods.parts import Part, Parts
from dovetail.pods.vendor import with_devices

Manifest = dict[str, Any]

# GPUJob pods share one priority class that preempts nothing: only the operator evicts them.
PRIORITY_CLASS: Final = "dovetail-gpujob"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ADMISSION_SETS: Final = ("priority", "preemptionPolicy", "nodeName", "schedulingGates")
# Written at bind; and what a container asks, which the job's spec says.
_NOT_THE_USERS: Final = (
    names.ALLOCATION, names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY, names.REQUEST,
)  # fmt: skip


def build_job(
    job: GPUJob, *, ask: Ask, number: int, memory: MemoryUse | None = None, avoid: Sequence[str] = ()
) -> Manifest:
    """The batch Job of `job`. Its name is the GPUJob's, so that a second one can never come to be.

    `memory` is what the promise of `ask` rests on; the pods keep off the nodes of `avoid`.
    """
    spec = job.spec
    labels = {names.LABEL_JOB: job.metadata.name, names.LABEL_JOB_NUMBER: str(number)}
    pod_spec = keeping_off(_pod_spec(job, ask=ask, number=number), nodes=avoid)
    batch: Manifest = {
        "completionMode": "Indexed",
        "completions": spec.workers,
        "parallelism": spec.workers,
        "backoffLimit": spec.backoff_limit,
        # A replacement beside a pod that is still leaving would hold a second set of devices.
        "podReplacementPolicy": "Failed",
        "template": {"metadata": _pod_metadata(job, ask=ask, labels=labels), "spec": pod_spec},
    }
    if pod_spec["restartPolicy"] == "Never":
        # A pod that was evicted has not failed by its own doing: it costs no retry.
        batch["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    if spec.active_deadline_seconds is not None:
        batch["activeDeadlineSeconds"] = spec.active_deadline_seconds
    metadata = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": [msgspec.to_builtins(owner_reference(job))],
    }
    annotations = {names.GPU_RESOURCE: ask.resource} if ask.resource else {}
    if memory is not None:
        annotations |= {names.MEMORY_ESTIMATE: msgspec.json.encode(memory).decode()}
    if avoid:
        annotations |= {names.AVOIDED_NODES: ",".join(avoid)}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": batch}


def avoided_nodes(child: Job) -> tuple[str, ...]:
    """The nodes that the pods of a batch Job keep off."""
    return tuple(node for node in child.metadata.annotations.get(names.AVOIDED_NODES, "").split(",") if node)


def keeping_off(pod_spec: Manifest, *, nodes: Sequence[str]) -> Manifest:
    """The pod's spec with a required affinity that leaves out `nodes`, beside what it requires itself."""
    if not nodes:
        return pod_spec
    affinity = dict(pod_spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    # Each field requirement takes one name; within a term all must hold, of the terms any one.
    off = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *off]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    of_nodes[_REQUIRED] = {**required, "nodeSelectorTerms": terms}
    return {**pod_spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}


def owner_reference(job: GPUJob) -> OwnerReference:
    """The reference by which what belongs to `job` goes when it goes."""
    return OwnerReference(
        api_version=names.API_VERSION,
        kind=KIND,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _pod_metadata(job: GPUJob, *, ask: Ask, labels: Mapping[str, str]) -> Manifest:
    metadata = job.spec.template.metadata
    annotations = {
        name: value
        for name, value in metadata.annotations.items()
        if not any(name == ours or name.startswith(f"{ours}.") for ours in _NOT_THE_USERS)
    }
    if ask.gpu is not None:
        annotations |= {names.REQUEST: str(ask.gpu), names.MODE: ask.mode, names.POLICY: ask.policy}
        for name, said in ((names.MEMORY_STRATEGY, ask.guard), (names.WORKLOAD, ask.workload)):
            annotations.pop(name, None)
            annotations |= {name: said} if said else {}
    return {"labels": {**metadata.labels, **labels}, "annotations": annotations}


def _pod_spec(job: GPUJob, *, ask: Ask, number: int) -> Manifest:
    spec: Manifest = template_spec(job)
    for field in _ADMISSION_SETS:
        spec.pop(field, None)
    spec["schedulerName"] = names.SCHEDULER_NAME
    spec["priorityClassName"] = PRIORITY_CLASS
    spec.setdefault("restartPolicy", "Never")
    if ask.resource:
        # The plugin says what the container sees, and in which runtime class that works is the site's business.
        first, *others = spec["containers"]
        spec["containers"] = [with_devices(first, amounts=resources_of(ask)), *others]
    else:
        spec.pop("runtimeClassName", None)
    return _with_job_id(completed(spec, asked=_asked(ask)), number=number)


def _asked(ask: Ask) -> Parts:
    """All devices of a job's pod are its first container's; a vendor's plugin gives them by resources alone."""
    if ask.gpu is None or ask.resource:
        return Parts()
    return Parts(mode=ask.mode, parts=(Part(index=0, container="", request=ask.gpu),))


def _with_job_id(spec: Manifest, *, number: int) -> Manifest:
    first, *others = spec["containers"]
    theirs = [entry for entry in first.get("env") or () if entry.get("name") != names.ENV_JOB_ID]
    # First, so that the user's own variables may refer to it.
    environment = [{"name": names.ENV_JOB_ID, "value": str(number)}, *theirs]
    return {**spec, "containers": [{**first, "env": environment}, *others]}
