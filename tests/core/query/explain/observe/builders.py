"""Nodes and pods of clusters that Dovetail does not run: each takes only what matters to the test."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dovetail.answers.observe import Observation, WaitingPod
from dovetail.api.builtin import Node
from dovetail.cluster.observed import PlacedPod, Seen
from dovetail.query.explain.observe import hami
from dovetail.query.explain.observe.observation import observation

GPU: Final = "nvidia.com/gpu"
NOW: Final = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
CREATED: Final = "2026-11-28T11:00:00Z"


def make_node(
    name: str = "n1",
    *,
    gpus: int | None = 8,
    resource: str = GPU,
    cpu: str = "64",
    memory: str = "256Gi",
    ready: str = "True",
    cordoned: bool = False,
    taints: Sequence[dict[str, str]] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **more: str,
) -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | ({resource: str(gpus)} if gpus is not None else {}) | more
    raw = {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(raw, Node)


def make_pod(
    name: str = "p",
    *,
    gpus: int | None = 1,
    resource: str = GPU,
    on: str = "",
    namespace: str = "vision",
    cpu: str = "1",
    memory: str = "1Gi",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    job: str = "",
    phase: str = "",
    says: str = "",
    limits: dict[str, Any] | None = None,
    **spec: Any,
) -> PlacedPod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
    amounts = {} if gpus is None else {resource: str(gpus)}
    raw = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "creationTimestamp": CREATED,
            "annotations": annotations or {},
            "labels": labels or {},
            "ownerReferences": [owner] if job else [],
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": limits or amounts}}
            ],
            **spec,
        },
        "status": {
            "phase": phase or ("Running" if on else "Pending"),
            "conditions": [{"type": "PodScheduled", "status": "False", "message": says}] if says else [],
        },
    }
    return msgspec.convert(raw, PlacedPod)


def make_hami_node(name: str = "h1", *, devices: Sequence[dict[str, Any]] = ({},), count: int = 10) -> Node:
    """A node of HAMi: its plugin advertises each device `count` times."""
    known = [
        {"id": f"{name}-{at}", "count": count, "devmem": 16384, "devcore": 100, "type": "NVIDIA-Tesla T4",
         "numa": 0, "mode": "hami-core", "health": True} | device
        for at, device in enumerate(devices)
    ]  # fmt: skip
    return make_node(name, gpus=count * len(known), annotations={hami.REGISTER: json.dumps(known)})


def make_kai_group(group: str, *, on: str, parts: Sequence[str]) -> list[PlacedPod]:
    """A device that KAI shares: the pod that holds it, and those that share it."""
    label = {"runai-gpu-group": group}
    holder = make_pod(f"reserve-{group}", on=on, namespace="kai-resource-reservation", labels=label)
    sharing = [
        make_pod(f"{group}-{at}", gpus=None, on=on, labels=label, annotations={"gpu-fraction": part})
        for at, part in enumerate(parts)
    ]
    return [holder, *sharing]


def look(*, nodes: Sequence[Node] | None = (), pods: Sequence[PlacedPod] = (), **more: Any) -> Observation:
    return observation(Seen(nodes=nodes, pods=pods, **more), now=NOW)


def why(pod: PlacedPod, *, nodes: Sequence[Node] | None, pods: Sequence[PlacedPod] = (), **more: Any) -> WaitingPod:
    """Why a pod waits."""
    found = look(nodes=nodes, pods=[*pods, pod], **more)
    return next(each for each in found.pods if each.name == pod.metadata.name)
