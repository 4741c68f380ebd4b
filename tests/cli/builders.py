"""Objects for tests: each names only what its test is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.conversion import values_of
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import AssignedDevice, GPUJob, GPUJobSpec, GPUJobStatus, template_of
from dovetail.api.gpunode import Device, GPUNode, GPUNodeStatus
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import ObjectMeta
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_job(
    name: str = "train",
    *,
    priority: int = 10,
    workers: int = 1,
    namespace: str = "default",
    resource_version: str = "1",
    **status: Any,
) -> GPUJob:
    devices = [_assigned(*device) for device in status.pop("devices", ())]
    return GPUJob(
        metadata=ObjectMeta(
            name=name, namespace=namespace, creation_timestamp=ago(hours=1), resource_version=resource_version
        ),
        spec=GPUJobSpec(
            gpu="1", priority=priority, workers=workers, template=template_of({"containers": [{"name": "main"}]})
        ),
        status=GPUJobStatus(devices=devices, **status),
    )


def _assigned(node: str, index: int, share_milli: int = 1000) -> AssignedDevice:
    return AssignedDevice(
        worker=0, node=node, index=index, uuid=f"GPU-{node}-{index}", share_milli=share_milli, memory_mib=1024
    )


def make_quota(name: str = "q", **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def make_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name))


def make_gpunode(name: str, *, gpus: int = 2, memory_mib: int = 32768, **device: Any) -> GPUNode:
    devices = [
        Device(index=index, uuid=f"GPU-{name}-{index}", vendor="nvidia", model="V100", memory_mib=memory_mib, **device)
        for index in range(gpus)
    ]
    return GPUNode(
        metadata=ObjectMeta(name=name), status=GPUNodeStatus(devices=devices, observed_at="2100-01-01T00:00:00Z")
    )


def make_pod(
    name: str = "train-0",
    *,
    node: str = "a",
    held: tuple[tuple[int, int, int], ...] = (),
    asks: dict[str, str] | None = None,
    mode: str = "Exclusive",
    request: str | None = None,
    phase: str = "Running",
    guard: float | None = None,
    **changes: Any,
) -> Pod:
    """A bound pod. `held` has index, share and memory of each device that its allocation names.

    One with a GPUJob's label is of the batch Job of that name.
    """
    labels = changes.pop("labels", {})
    job = labels.get(names.LABEL_JOB, "")
    annotations = {} if request is None else {names.REQUEST: request}
    if held:
        place = changes.pop("allocated_on", node)
        annotations |= annotations_of(
            msgspec.structs.replace(allocation(node=place, mode=mode, held=held), guard_fraction=guard)
        )
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": {**annotations, **changes.pop("annotations", {})},
                "labels": labels,
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-job-{job}", "controller": True}
                ]
                if job
                else [],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": asks or {}}}],
            },
            "status": {"phase": phase},
        },
        Pod,
    )


def allocation(*, node: str, mode: str, held: tuple[tuple[int, int, int], ...]) -> Allocation:
    devices = [
        AllocatedDevice(uuid=f"GPU-{node}-{index}", index=index, share_milli=share, memory_mib=memory)
        for index, share, memory in held
    ]
    return msgspec.convert(
        {
            "node": node,
            "mode": mode,
            "containers": values_of([ContainerAllocation(index=0, devices=devices)]),
        },
        Allocation,
    )
