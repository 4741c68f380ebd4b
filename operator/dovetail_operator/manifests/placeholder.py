"""The batch Job of placeholder pods: one pod for each worker that needs a node which does not exist yet. Pure.

Autoscalers add nodes for pods that no existing node takes. A waiting job has no pods, and planned pods name their node,
so a placeholder asks instead: with the worker's resources and constraints, and the labels of the pool. Its scheduler
does not exist, so it can never take the room that it asks for. A batch Job makes the pods, so the operator needs no
right to create or delete pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import owner_reference
from dovetail.pods.demand import resources_of
from dovetail.pods.node_affinity import requiring
from dovetail.queue.growing.pools import GrowingPool
from dovetail.queue.growing.requests import placeholder_name

Manifest = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"


def placeholder_job(
    job: GPUJob, *, ask: Ask, pool: GrowingPool, spec: Mapping[str, Any], besides: Sequence[str]
) -> Manifest | None:
    """The batch Job of the placeholders for the job's request (`status.provisioning`); None once it was given up.

    `ask` is what each worker requests of a node of `pool`, `spec` the job's pod spec with its quota pools, and
    `besides` are the host names of the pool's nodes that existed before the request.
    """
    request = job.status.provisioning
    if request is None or request.retry_time is not None:
        return None
    labels = {names.LABEL_PLACEHOLDER: job.metadata.uid}
    metadata = {
        "name": placeholder_name(request, of=job.metadata),
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": [msgspec.to_builtins(owner_reference(job))],
    }
    template = pod_template(job, ask=ask, pool=pool, spec=spec, besides=besides)
    # Without completions: the number of workers may grow.
    batch = {"parallelism": request.workers, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": batch}


def unschedulable(*, at: str) -> Manifest:
    """The status by which autoscalers find a placeholder, as kube-scheduler writes it on a pod that fits nowhere."""
    return {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "A placeholder of Dovetail for a node that does not exist yet",
                "lastTransitionTime": at,
            }
        ]
    }


def pod_template(
    job: GPUJob, *, ask: Ask, pool: GrowingPool, spec: Mapping[str, Any], besides: Sequence[str]
) -> Manifest:
    """The template of a pod that asks for a new node for one worker. The arguments are those of `placeholder_job`."""
    labels = {names.LABEL_PLACEHOLDER: job.metadata.uid}
    return {
        "metadata": {"labels": labels},
        "spec": _pod_spec(job, ask=ask, pool=pool, spec=spec, besides=besides),
    }


def _pod_spec(job: GPUJob, *, ask: Ask, pool: GrowingPool, spec: Mapping[str, Any], besides: Sequence[str]) -> Manifest:
    where: Manifest = {"nodeSelector": {**(spec.get("nodeSelector") or {}), **pool.labels}}
    of_nodes = (spec.get("affinity") or {}).get("nodeAffinity")
    if of_nodes:
        where["affinity"] = {"nodeAffinity": of_nodes}
    if besides:
        # Kubernetes sums up devices and does not see which of them are free: a node on which the plan finds no room may
        # look free to an autoscaler.
        where = requiring(where, expression={"key": HOSTNAME, "operator": "NotIn", "values": sorted(besides)})
    if ask.apart:
        like = {"matchLabels": {names.LABEL_PLACEHOLDER: job.metadata.uid}}
        term = {"topologyKey": HOSTNAME, "labelSelector": like}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        where["affinity"] = {**where.get("affinity", {}), **apart}
    if spec.get("tolerations"):
        where["tolerations"] = spec["tolerations"]
    return {
        **where,
        "schedulerName": names.PLACEHOLDER_SCHEDULER,
        "priorityClassName": names.PLACEHOLDER_CLASS,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(ask, image=_image_of(spec))],
    }


def _container(ask: Ask, *, image: str) -> Manifest:
    devices = resources_of(ask)
    host = {"cpu": f"{ask.cpu_milli}m", "memory": f"{ask.memory_mib}Mi"}
    container: Manifest = {
        "name": "placeholder",
        "image": image,
        "resources": {"requests": host | devices, "limits": devices},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if not ask.resource:
        container["env"] = [{"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}]
    return container


def _image_of(spec: Mapping[str, Any]) -> str:
    """The image of the job's own container, which the namespace's policies accept. Nothing ever pulls it for this."""
    return str(spec["containers"][0].get("image") or names.UNUSED_IMAGE)
