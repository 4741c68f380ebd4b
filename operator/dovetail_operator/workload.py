"""A GPUJob as the batch Job that runs it. Pure: the same GPUJob gives the same manifest.

The pods are built complete: on our scheduler every container says which devices it sees, so that neither an image's own
variable nor a user's can bring in a device that was not promised.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import KIND, GPUJob
from dovetail.api.meta import OwnerReference
from dovetail.asks import resources_of, template_spec
from dovetail.engine.claims import Ask

Manifest = dict[str, Any]

# GPUJob pods share one priority class that preempts nothing: only the operator evicts them.
PRIORITY_CLASS: Final = "dovetail-gpujob"
_ADMISSION_SETS: Final = ("priority", "preemptionPolicy", "nodeName", "schedulingGates")
_WRITTEN_AT_BIND: Final = (names.ALLOCATION, names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY)
_OUR_ENVIRONMENT: Final = frozenset(
    {
        names.ENV_VISIBLE_DEVICES,
        names.ENV_MPS_PERCENTAGE,
        names.ENV_MPS_MEMORY,
        names.ENV_CUDA_DEVICES,
        names.ENV_GPU_UUIDS,
        names.ENV_JOB_ID,
    }
)


def build_job(job: GPUJob, *, ask: Ask, number: int) -> Manifest:
    """The batch Job of `job`. Its name is the GPUJob's, so that a second one can never come to be."""
    spec = job.spec
    labels = {names.LABEL_JOB: job.metadata.name, names.LABEL_JOB_NUMBER: str(number)}
    pod_spec = _pod_spec(job, ask=ask, number=number)
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
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": batch}


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
        if not any(name == ours or name.startswith(f"{ours}.") for ours in _WRITTEN_AT_BIND)
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
    if ask.gpu is None:
        spec.pop("runtimeClassName", None)
    else:
        spec["runtimeClassName"] = names.RUNTIME_CLASS
    first, *others = spec["containers"]
    _give_devices(first, ask=ask, number=number)
    for container in (*others, *spec.get("initContainers", ())):
        _set_resources(container, {})
        _set_environment(container, [{"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}])
    return spec


def _give_devices(container: Manifest, *, ask: Ask, number: int) -> None:
    """Let the container that holds the devices ask for them and see them; index 0, for it is the first."""
    job_id = {"name": names.ENV_JOB_ID, "value": str(number)}
    _set_resources(container, resources_of(ask))
    if ask.gpu is None:
        _set_environment(container, [{"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}, job_id])
        return
    environment = [
        _from_annotation(names.ENV_VISIBLE_DEVICES, names.VISIBLE_DEVICES),
        _from_annotation(names.ENV_GPU_UUIDS, names.VISIBLE_DEVICES),
        {"name": names.ENV_CUDA_DEVICES, "value": ",".join(str(index) for index in range(ask.gpu.count))},
        job_id,
    ]
    if ask.mode != "Exclusive":
        environment.append(_from_annotation(names.ENV_MPS_PERCENTAGE, names.MPS_PERCENTAGE))
        environment.append(_from_annotation(names.ENV_MPS_MEMORY, names.MPS_MEMORY))
    _set_environment(container, environment)


def _from_annotation(variable: str, annotation: str) -> Manifest:
    path = f"metadata.annotations['{names.per_container(annotation, 0)}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _set_environment(container: Manifest, ours: list[Manifest]) -> None:
    # Ours first, so that the user's own variables may refer to them as $(NAME).
    theirs = [entry for entry in container.get("env") or () if entry.get("name") not in _OUR_ENVIRONMENT]
    container["env"] = [*ours, *theirs]


def _set_resources(container: Manifest, amounts: Mapping[str, str]) -> None:
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        theirs = {k: v for k, v in (resources.get(part) or {}).items() if k not in names.MANAGED_RESOURCES}
        resources[part] = {**theirs, **amounts}
    container["resources"] = {name: value for name, value in resources.items() if value}
