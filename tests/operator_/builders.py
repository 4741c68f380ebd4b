"""Builders of what the operator sees: a test names only what matters to it."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from dovetail.api.builtin import Job, LabelSelector, Node, Pod
from dovetail.api.conversion import values_of
from dovetail.api.devices import AllocatedDevice
from dovetail.api.disruption_budget import BudgetSpec, BudgetStatus, PodDisruptionBudget
from dovetail.api.gpujob import GPUJob, Mode, job_of
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import ObjectMeta
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.jobs.batch_job import owner_reference
from dovetail.jobs.cpu_fallback import on_cpu
from dovetail.jobs.guests.registry import KINDS
from dovetail.jobs.memory_use import Learning
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.size_limits import JobLimits
from dovetail.kube.client import Client
from dovetail.names import LABEL_JOB
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.pods.demand import ask_of_job
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.candidates import fell_back
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.job.failure_policy import inner_backoff_limit
from dovetail_operator.job.observation import COMPLETION_INDEX, Observed
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import State, build_state
from dovetail_operator.watchers.guests.keeper import GuestKeeper

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LET_GO = Admitted(key="uid-x")
NO_ROOM = Waits(key="uid-x", reason="Resources", message="Need 4 GPUs, only 1 available")


def at(seconds: float) -> str:
    """RFC 3339 time, in seconds from NOW."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_job(
    name: str = "x", *, status: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, **spec: Any
) -> GPUJob:
    """A GPUJob; `spec` is as in YAML."""
    if "gpu" not in spec and "resources" not in spec:
        spec["gpu"] = 1
    spec.setdefault("template", {"spec": {"containers": [{"name": "main", "image": "busybox"}]}})
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "10",
        "creationTimestamp": at(-100),
        **(meta or {}),
    }
    return job_of({"metadata": metadata, "spec": spec, "status": status or {}})


def make_child(
    job: GPUJob,
    *,
    status: dict[str, Any] | None = None,
    uid: str = "uid-child",
    queue: str = "",
    taken: bool = False,
    **spec: Any,
) -> Job:
    """The batch Job of `job` as the API server has it; in that queue of Kueue, which `taken`: took it by itself."""
    metadata = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": uid,
        "resourceVersion": "20",
        "ownerReferences": [values_of(owner_reference(job))],
        "labels": {LABEL_JOB: job.metadata.name} | ({"kueue.x-k8s.io/queue-name": queue} if queue else {}),
        "annotations": {"dovetail.dev/handed-to": queue} if queue and not taken else {},
    }
    limits = {"backoffLimit": inner_backoff_limit(job), "activeDeadlineSeconds": job.spec.active_deadline_seconds}
    return msgspec.convert({"metadata": metadata, "spec": limits | spec, "status": status or {}}, Job)


def make_budget(
    name: str = "web", *, allowed: int = 1, version: str = "5", disrupted: Sequence[str] = (), **labels: str
) -> PodDisruptionBudget:
    """A budget of the pods with these labels; of all pods without any."""
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", resource_version=version, generation=2),
        spec=BudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=BudgetStatus(
            disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(disrupted, at(0)), observed_generation=2
        ),
    )


def condition(
    type_: str, *, status: str = "True", reason: str = "", message: str = "", seconds: float = 0
) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(seconds),
    }


def make_pod(
    worker: int = 0,
    *,
    phase: str = "Running",
    node: str = "n1",
    devices: int = 0,
    mode: Mode = "Exclusive",
    started: float | None = None,
    exit_code: int | None = None,
    owner: str = "uid-child",
    conditions: list[dict[str, Any]] | None = None,
    state: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    created: float = -50,
) -> Pod:
    """A worker's pod; with `devices` it has an allocation of that many whole devices."""
    annotations = {COMPLETION_INDEX: str(worker)}
    if devices:
        held = [
            AllocatedDevice(uuid=f"GPU-{node}-{i}", index=i, share_milli=1000, memory_mib=100) for i in range(devices)
        ]
        containers = [ContainerAllocation(index=0, devices=held)]
        annotations |= annotations_of(Allocation(node=node, mode=mode, containers=containers))
    if state is None and exit_code is not None:
        state = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Error",
                "startedAt": None if started is None else at(started),
            }
        }
    elif state is None and started is not None:
        state = {"running": {"startedAt": at(started)}}
    job = (meta or {}).get("labels", {}).get(LABEL_JOB, "x")
    metadata = {
        "name": f"x-{worker}-{phase.lower()}",
        "namespace": "team",
        "uid": f"uid-pod-{worker}-{created}",
        "creationTimestamp": at(created),
        "labels": {LABEL_JOB: "x"},
        "annotations": annotations,
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": owner, "controller": True}],
        **(meta or {}),
    }
    status = {
        "phase": phase,
        "conditions": conditions or [],
        "containerStatuses": [{"name": "main", "state": state}] if state else [],
    }
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": status}, Pod)


def see(
    job: GPUJob,
    *pods: Pod,
    child: Job | None = None,
    verdict: Verdict | None = None,
    obstacle: Obstacle | None = None,
    number: int | None = 7,
    now: datetime = NOW,
) -> Observed:
    ask = ask_of_job(job, ranking=DEFAULT_RANKING)
    if fell_back(child) or (child is None and isinstance(verdict, Admitted) and verdict.on_cpu):
        ask = on_cpu(ask)
    return Observed(
        job=job, now=now, child=child, pods=pods, ask=ask, number=number, verdict=verdict, obstacle=obstacle
    )


def make_state(
    *,
    job_limits: JobLimits | None = None,
    records: Dues | None = None,
    learning: Learning | None = None,
    fragmentation: FragmentationPolicy = "ph",
    cpu_fallback: Mapping[str, int] = MappingProxyType({}),
    growing: GrowingRules | None = None,
    drain: DrainRules | None = None,
    **nodes: int,
) -> State:
    """A state whose cluster has V100 nodes: `make_state(a=8)`."""
    state = build_state(
        ClusterView(ledger=Ledger()),
        job_limits=job_limits,
        records=records,
        learning=learning,
        fragmentation=fragmentation,
        cpu_fallback=cpu_fallback,
        growing=growing,
        drain=drain,
    )
    for name, gpus in nodes.items():
        metadata = {"name": name, "labels": {"dovetail.dev/managed": "true"}}
        status = {
            "allocatable": {"cpu": "64", "memory": "256Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        state.store.view.node_changed(msgspec.convert({"metadata": metadata, "status": status}, Node))
        devices = [
            {"index": i, "uuid": f"GPU-{name}-{i}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
            for i in range(gpus)
        ]
        state.store.view.gpunode_changed(
            msgspec.convert({"metadata": {"name": name}, "status": {"devices": devices}}, GPUNode)
        )
    return state


def make_keeper(
    client: Client,
    *,
    state: State,
    pods: Mapping[str, Pod] = MappingProxyType({}),
    post: Callable[[Announcement], None] = lambda _news: None,
    clock: Callable[[], float] = time.monotonic,
) -> GuestKeeper:
    """The keeper of guests of all kinds, over all `pods`."""
    return GuestKeeper(
        client, state=state, kinds=KINDS, post=post, pods=pods, rng=random.Random(7), now=lambda: NOW, clock=clock
    )
