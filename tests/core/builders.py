"""API objects for tests: each takes only what matters to the test."""

from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.gpunode import GPUNode


def make_node(name: str = "a", **more: Any) -> Node:
    node = {
        "metadata": {"name": name, "labels": {names.LABEL_MANAGED: "true"}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi"},
            "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}],
        },
    } | more
    return msgspec.convert(node, Node)


def make_gpunode(
    name: str = "a",
    *,
    gpus: int = 2,
    cordoned: tuple[str, ...] = (),
    ready: str = "True",
    observed_at: str | None = None,
    limits: dict[str, Any] | None = None,
    **device: Any,
) -> GPUNode:
    devices = [
        {"index": i, "uuid": f"{name}-{i}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768} | device
        for i in range(gpus)
    ]
    condition = {"type": "Ready", "status": ready, "reason": "", "message": "", "lastTransitionTime": ""}
    gpunode = {
        "metadata": {"name": name},
        "spec": {"cordoned": list(cordoned), "tenantLimits": limits or {}},
        "status": {"devices": devices, "conditions": [condition], "observedAt": observed_at},
    }
    return msgspec.convert(gpunode, GPUNode)


def make_pod(
    resources: dict[str, Any] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    uid: str = "pod-1",
) -> Pod:
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": uid, "annotations": annotations or {}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": resources or {}}}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(pod, Pod)


def make_job(**spec: Any) -> GPUJob:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return job_of({"metadata": {"name": "j"}, "spec": {"template": template} | spec})
