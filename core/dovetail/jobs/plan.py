"""Plans: the nodes for a job's workers, in its status and in the annotation of its pods.

Pure.

The status is written by the operator and decides; the annotation says which plan a pod belongs to. A pod counts for a
plan only where the two agree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, Placement, PlannedNode, PlannedWorker, Policy
from dovetail.decoding import Decoder, UnreadableError
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.memory_strategy import fraction_of, text_of
from dovetail.gpu.request import GPURequest, parse
from dovetail.jobs.batch_job import needs_no_room, taken_workers, worker_of


class PlanOfPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's annotation: plan `generation` of the GPUJob with the UID `job`."""

    job: str
    generation: int
    nodes: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOfPlan:
    """Which worker of which plan a pod is."""

    plan: PlanOfPod
    worker: int


_DECODER: Final = Decoder(PlanOfPod)


def annotation_of(placement: Placement, *, job_uid: str) -> str:
    """The annotation for the pods of a plan."""
    nodes = [node.name for node in placement.nodes]
    return msgspec.json.encode(PlanOfPod(job=job_uid, generation=placement.generation, nodes=nodes)).decode()


def worker_of_plan(pod: Pod) -> WorkerOfPlan | None:
    """Which worker of which plan the pod claims to be.

    None without a plan or with an invalid annotation.
    """
    text = pod.metadata.annotations.get(names.PLAN)
    if text is None:
        return None
    try:
        plan = _DECODER.decode(text)
    except UnreadableError:
        return None
    return WorkerOfPlan(plan=plan, worker=worker_of(pod))


def planned_nodes(claims: Iterable[Claim]) -> list[PlannedNode]:
    """The nodes of a plan in the order of its workers; the workers of a node are consecutive."""
    workers: dict[str, int] = {}
    for claim in claims:
        workers[claim.node] = workers.get(claim.node, 0) + 1
    return [PlannedNode(name=name, workers=count) for name, count in workers.items()]


def nodes_by_worker(placement: Placement) -> tuple[str, ...]:
    """The node of each worker."""
    return nodes_of_workers(placement.nodes)


def nodes_of_workers(planned: Iterable[PlannedNode]) -> tuple[str, ...]:
    """The node of each worker of a plan with these nodes."""
    return tuple(node.name for node in planned for _ in range(node.workers))


def open_nodes(job: GPUJob, *, pods: Sequence[Pod], workers: int) -> tuple[str, ...]:
    """The planned nodes of `workers` workers that have none yet; empty without a plan."""
    placement = job.status.placement
    if placement is None:
        return ()
    nodes = nodes_by_worker(placement)
    return tuple(nodes[worker] for worker in open_workers(placement, pods=pods)[:workers])


def open_workers(placement: Placement, *, pods: Sequence[Pod]) -> list[int]:
    """The workers of a plan that have no node yet."""
    out = {worker_of(pod) for pod in pods if needs_no_room(pod)} | set(placement.released)
    return [worker for worker, _ in enumerate(nodes_by_worker(placement)) if worker not in out]


def with_released(placement: Placement, *, pods: Sequence[Pod], workers: int) -> Placement:
    """The plan of a guest's record without the room for which no pod comes: `workers` exist or can still come.

    A worker with an unfinished pod stays, also when the pod is about to go. Of the others the last ones go first.
    """
    taken = taken_workers(pods)
    free = [each for each in range(len(nodes_by_worker(placement))) if each not in taken | set(placement.released)]
    kept = max(0, workers - len(taken))
    if len(free) <= kept:
        return placement
    return msgspec.structs.replace(placement, released=sorted([*placement.released, *free[kept:]]))


def with_other_nodes(placement: Placement, *, nodes: Mapping[int, str]) -> Placement:
    """The plan with another node for some of its workers. It stays the same plan: the other workers go on."""
    named = [nodes.get(worker, node) for worker, node in enumerate(nodes_by_worker(placement))]
    return msgspec.structs.replace(
        placement,
        nodes=[PlannedNode(name=name, workers=len(list(run))) for name, run in groupby(named)],
        replaced=placement.replaced + len(nodes),
    )


def planned_worker(ask: Ask) -> PlannedWorker:
    """What each worker of a plan takes, as its status says it."""
    assert ask.gpu is not None, "only what needs devices is planned"
    return PlannedWorker(
        request=str(ask.gpu),
        mode=ask.mode,
        resource=ask.resource,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        guard=None if ask.guard_fraction is None else text_of(ask.guard_fraction),
        workload=ask.workload,
    )


def ask_of(worker: PlannedWorker, *, policy: Policy = "Balanced") -> Ask:
    """What each worker of a plan requests of its node. Raises `RequestError`."""
    return Ask(
        gpu=parse(worker.request),
        mode=worker.mode,
        policy=policy,
        cpu_milli=worker.cpu_milli,
        memory_mib=worker.memory_mib,
        resource=worker.resource,
        guard_fraction=None if worker.guard is None else fraction_of(worker.guard),
        workload=worker.workload,
    )


def kept_texts(claims: Sequence[Claim]) -> list[str]:
    """What `claims` take of one node, as request texts: whole devices in one, also of a MIG profile, shares alone."""
    whole = sum(claim.unnamed for claim in claims)
    instances: Counter[str] = Counter()
    for claim in claims:
        instances.update(dict(claim.instances))
        instances.update(device.mig for device in claim.devices if device.mig)
    shares = []
    for device in (device for claim in claims for device in claim.devices):
        if device.mig:
            continue
        if device.share_milli == 1000:
            whole += 1
        elif device.share_milli:
            shares.append(f"{max(1, device.memory_mib)}M,0.{device.share_milli:03d}")
    profiles = [str(GPURequest(count=count, mig=profile)) for profile, count in sorted(instances.items())]
    return [*([str(whole)] if whole else []), *profiles, *sorted(shares)]
