"""Nodes, pods and tenants for the agent's tests: each names only what it is about."""

import json
from datetime import UTC, datetime
from typing import Any

from dovetail import names
from dovetail.api.builtin import Container, Node, NodeInfo, NodeStatus, Pod, PodSpec, PodStatus, Resources
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_agent.devices.simulated.provider import device_uuid

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
V100S = {"model": "V100", "count": 2, "memoryMiB": 32768}


def make_node(
    name: str = "v100-0",
    *,
    devices: Any = V100S,
    faults: Any = None,
    capacity: dict[str, str] | None = None,
    uid: str = "node-uid",
    boot: str = "",
) -> Node:
    annotations = {}
    if devices is not None:
        annotations[names.SIMULATED_DEVICES] = devices if isinstance(devices, str) else json.dumps(devices)
    if faults is not None:
        annotations[names.SIMULATED_FAULTS] = faults if isinstance(faults, str) else json.dumps(faults)
    return Node(
        metadata=ObjectMeta(name=name, uid=uid, labels={names.LABEL_MANAGED: "true"}, annotations=annotations),
        status=NodeStatus(
            capacity=capacity or {},
            allocatable={"cpu": "64", "memory": "256Gi", **(capacity or {})},
            node_info=NodeInfo(boot_id=boot),
        ),
    )


def allocated(index: int, *, share_milli: int = 1000, memory_mib: int = 32768, node: str = "v100-0") -> AllocatedDevice:
    return AllocatedDevice(
        uuid=device_uuid(node, index=index), index=index, share_milli=share_milli, memory_mib=memory_mib
    )


def make_tenant(
    *devices: AllocatedDevice, uid: str = "pod-uid", running: bool = True, work: str = "ml/a"
) -> NodeTenant:
    namespace, job = work.split("/")
    return NodeTenant(
        uid=uid,
        namespace=namespace,
        name=f"{job}-0",
        job=job,
        running=running,
        cpu_milli=8000,
        memory_mib=65536,
        devices=list(devices),
    )


def make_pod(
    *devices: AllocatedDevice,
    node: str = "v100-0",
    phase: str = "Running",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    resources: dict[str, str] | None = None,
    mode: Mode = "Exclusive",
) -> Pod:
    asked = {"cpu": "2", "memory": "4Gi", **(resources or {})}
    if devices:
        allocation = Allocation(node=node, mode=mode, containers=[ContainerAllocation(index=0, devices=list(devices))])
        annotations = annotations_of(allocation) | (annotations or {})
    return Pod(
        metadata=ObjectMeta(
            name="train-0", namespace="ml", uid="pod-uid", labels=labels or {}, annotations=annotations or {}
        ),
        spec=PodSpec(node_name=node, containers=[Container(resources=Resources(requests=asked))]),
        status=PodStatus(phase=phase),
    )
