"""The batch Job that runs a GPUJob, as a manifest.

Pure: the same GPUJob gives the same manifest.

The pods are complete: on our scheduler every container states which devices it sees. Neither an image's own variable
nor a user's can therefore add a device that was not promised.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob, MemoryUse, Placement, TemplateMetadata, spec_of
from dovetail.api.meta import Described
from dovetail.engine.model.claims import Ask
from dovetail.gpu.device_plugins import is_nvidias, may_set_visible_devices
from dovetail.jobs.batch_job import deadline_seconds, owner_reference
from dovetail.pods.containers import Part, Parts
from dovetail.pods.demand import resources_of, template_spec
from dovetail.pods.device_plugin import with_cuda_numbers, with_devices
from dovetail.pods.injection import completed
from dovetail.pods.options import annotations as options
from dovetail.queue.limits.pools import in_pools
from dovetail_operator.job import cpu_fallback, failure_policy
from dovetail_operator.manifests import rendezvous
from dovetail_operator.manifests.planned_template import with_plan

Manifest = dict[str, Any]

# GPUJob pods share one priority class that preempts nothing: only the operator evicts them.
_ADMISSION_SETS: Final = ("priority", "preemptionPolicy")
# Written at bind time; and each container's request, which the job's spec has.
_NOT_THE_USERS: Final = (
    names.ALLOCATION, names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY, names.REQUEST, names.PLAN,
    names.PREEMPTING_AT,
)  # fmt: skip
# The labels by which a pod proves what it is.
_PROOFS: Final = frozenset(
    {
        names.LABEL_JOB,
        names.LABEL_JOB_NUMBER,
        names.LABEL_RESERVATION,
        names.LABEL_ARRAY,
        names.LABEL_TASK,
        names.LABEL_PLACEHOLDER,
    }
)


def build_job(
    job: GPUJob,
    *,
    ask: Ask,
    number: int,
    memory: MemoryUse | None = None,
    placement: Placement | None = None,
    carries_plan: bool = False,
    cluster_nodes: int | None = None,
    on_cpu: str = "",
) -> Manifest:
    """The batch Job of `job`. It has the GPUJob's name, so that a second one can never exist.

    `memory` is the basis of the promise in `ask`. The pods go where `placement` says, in a cluster of `cluster_nodes`
    nodes; with `carries_plan` the status does not say it yet. `on_cpu` is why they run without the GPUs that the job
    requests.
    """
    spec = job.spec
    labels = {names.LABEL_JOB: job.metadata.name, names.LABEL_JOB_NUMBER: str(number)}
    if job.spec.reservation is not None:
        labels[names.LABEL_RESERVATION] = "true"
    gpus = ask.gpu.count if ask.gpu else 0
    pod_spec = rendezvous.joined(_pod_spec(job, ask=ask), job=job, gpus=gpus)
    template = {"metadata": _pod_metadata(job, ask=ask, labels=labels), "spec": pod_spec}
    batch: Manifest = {
        "completionMode": "Indexed",
        "completions": spec.workers,
        "parallelism": spec.workers,
        "backoffLimit": failure_policy.inner_backoff_limit(job),
        # A replacement next to a pod that is still terminating would hold a second set of devices.
        "podReplacementPolicy": "Failed",
        "template": with_plan(
            template, job=job, placement=placement, cluster_nodes=cluster_nodes, carried=carries_plan
        ),
    }
    if pod_spec["restartPolicy"] == "Never":
        batch["podFailurePolicy"] = {"rules": failure_policy.failure_rules(job)}
    if (success := rendezvous.success_policy(job)) is not None:
        batch["successPolicy"] = success
    if (limit := deadline_seconds(job)) is not None:
        batch["activeDeadlineSeconds"] = limit
    metadata = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": [msgspec.to_builtins(owner_reference(job))],
    }
    annotations = {names.ATTEMPT: str(job.status.attempt)} | cpu_fallback.annotations(job, ask=ask, why=on_cpu)
    annotations[names.TEMPLATE] = _digest(job)
    annotations |= {names.GPU_RESOURCE: ask.resource} if ask.resource else {}
    annotations |= _right_size(job, ask=ask)
    if memory is not None:
        annotations |= {names.MEMORY_ESTIMATE: msgspec.json.encode(memory).decode()}
    metadata["annotations"] = annotations
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": batch}


class _Written(Described, frozen=True, kw_only=True):
    """A template in the form that its digest covers."""

    spec: dict[str, Any]
    metadata: TemplateMetadata = TemplateMetadata()


def is_of_another_template(child: Job, *, job: GPUJob) -> bool:
    """Whether the batch Job comes from another template than the job has now."""
    made_of = child.metadata.annotations.get(names.TEMPLATE)
    return made_of is not None and made_of != _digest(job)


def is_of_another_size(child: Job, *, job: GPUJob, ask: Ask) -> bool:
    """Whether the pods of the batch Job request something else than the job's right size allows now."""
    said = _right_size(job, ask=ask).get(names.RIGHT_SIZE)
    return child.metadata.annotations.get(names.RIGHT_SIZE) != said


def _right_size(job: GPUJob, *, ask: Ask) -> dict[str, str]:
    """The annotation with the request of each worker, where the job has a right size."""
    if job.spec.right_size is None or ask.gpu is None or ask.resource:
        return {}
    return {names.RIGHT_SIZE: str(ask.gpu)}


def _digest(job: GPUJob) -> str:
    """The digest of the template's values. How a JSON encoder escapes them makes no difference."""
    template = job.spec.template
    written = _Written(spec=spec_of(template), metadata=template.metadata)
    return hashlib.sha256(msgspec.json.encode(written, order="deterministic")).hexdigest()[:16]


def _pod_metadata(job: GPUJob, *, ask: Ask, labels: Mapping[str, str]) -> Manifest:
    metadata = job.spec.template.metadata
    annotations = {
        name: value
        for name, value in metadata.annotations.items()
        if not any(name == ours or name.startswith(f"{ours}.") for ours in _NOT_THE_USERS)
    }
    if ask.gpu is not None:
        said = {names.REQUEST: str(ask.gpu), **options.of_job(job, ask=ask)}
        annotations = {name: text for name, text in (annotations | said).items() if text is not None}
    hosts = rendezvous.pod_annotations(job, gpus=ask.gpu.count if ask.gpu else 0)
    theirs = {name: value for name, value in metadata.labels.items() if name not in _PROOFS}
    return {"labels": {**theirs, **labels}, "annotations": annotations | hosts}


def _pod_spec(job: GPUJob, *, ask: Ask) -> Manifest:
    spec: Manifest = template_spec(job)
    for field in _ADMISSION_SETS:
        spec.pop(field, None)
    spec["schedulerName"] = names.SCHEDULER_NAME
    spec["priorityClassName"] = names.PRIORITY_CLASS
    spec.setdefault("restartPolicy", "Never")
    if ask.resource:
        # The plugin decides what the container sees, and the site decides which runtime class that needs.
        first, *others = spec["containers"]
        first = with_devices(first, amounts=resources_of(ask))
        if ask.gpu is not None and is_nvidias(ask.resource) and not ask.profile:
            first = with_cuda_numbers(first, count=ask.gpu.count)
        spec["containers"] = [first, *others]
    else:
        spec.pop("runtimeClassName", None)
    if ask.gpu is not None:
        spec = with_notice(spec)
    if job.spec.pool is not None:
        spec = in_pools(spec, pools=[job.spec.pool])
    by_plugin = [ask.resource] if ask.resource and may_set_visible_devices(ask.resource) else []
    return _with_job_id(completed(spec, asked=_asked(ask), by_plugin=by_plugin))


def _asked(ask: Ask) -> Parts:
    """The job's devices: all are the first container's, and none with a vendor's plugin."""
    if ask.gpu is None or ask.resource:
        return Parts()
    return Parts(mode=ask.mode, parts=(Part(index=0, container="", request=ask.gpu),))


def _with_job_id(spec: Manifest) -> Manifest:
    """The number as a variable of the first container, from the pod's label.

    As a value, the containers would differ between clusters, which number jobs by themselves: MultiKueue starts a job
    only if its containers are equal.
    """
    first, *others = spec["containers"]
    theirs = [entry for entry in first.get("env") or () if entry.get("name") != names.ENV_JOB_ID]
    # First, so that the user's own variables may refer to it.
    path = f"metadata.labels['{names.LABEL_JOB_NUMBER}']"
    # With the version that the API server would add: Kueue compares templates field by field.
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
    environment = [{"name": names.ENV_JOB_ID, "valueFrom": source}, *theirs]
    return {**spec, "containers": [{**first, "env": environment}, *others]}


_NOTICE_FILE: Final = "preempting-at"


def with_notice(spec: dict[str, Any]) -> dict[str, Any]:
    """Mount /etc/dovetail/preempting-at in the first container.

    The file is empty without a notice.

    Returns the spec unchanged if the pod already uses the volume's name or the mount path.
    """
    first, *others = spec["containers"]
    taken = {volume.get("name") for volume in spec.get("volumes") or ()}
    places = {mount.get("mountPath") for mount in first.get("volumeMounts") or ()}
    if names.NOTICE_VOLUME in taken or names.NOTICE_FOLDER in places:
        return spec
    annotation = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.PREEMPTING_AT}']"}
    volume = {"name": names.NOTICE_VOLUME, "downwardAPI": {"items": [{"path": _NOTICE_FILE, "fieldRef": annotation}]}}
    mount = {"name": names.NOTICE_VOLUME, "mountPath": names.NOTICE_FOLDER, "readOnly": True}
    shown = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    return {**spec, "containers": [shown, *others], "volumes": [*(spec.get("volumes") or ()), volume]}
