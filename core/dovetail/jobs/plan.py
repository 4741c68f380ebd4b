"""Plans: the nodes for a job's workers, in its status and in the annotation of its pods.

Pure.

The status is written by the operator and decides; the annotation says which plan a pod belongs to. A pod counts for a
plan only where the two agree. A batch Job may carry the first plan of its job in that annotation of its template, until
the status has it too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, Placement, PlannedNode, PlannedWorker, Policy
from dovetail.decoding import Decoder, UnreadableError
from dovetail.engine.model.claims import Ask, Claim
from dovetail.formats.quantities import read_whole
from dovetail.gpu.memory_strategy import fraction_of, text_of
from dovetail.gpu.request import GPURequest, parse
from dovetail.jobs.batch_job import needs_no_room, taken_workers, worker_of


class PlanOfPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod's annotation: plan `generation` of the GPUJob with the UID `job`.

    With `worker`, what its worker takes, the batch Job carries the plan: the status does not have it yet.
    """

    job: str
    generation: int
    nodes: list[str] = []
    worker: PlannedWorker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOfPlan:
    """Which worker of which plan a pod is."""

    plan: PlanOfPod
    worker: int


_DECODER: Final = Decoder(PlanOfPod)


def annotation_of(placement: Placement, *, job_uid: str, carried: bool = False) -> str:
    """The annotation for the pods of a plan. With `carried`, the whole plan can be read from it."""
    said = PlanOfPod(
        job=job_uid,
        generation=placement.generation,
        nodes=[node.name for node in placement.nodes],
        worker=placement.worker if carried else None,
    )
    return msgspec.json.encode(said).decode()


def worker_of_plan(pod: Pod) -> WorkerOfPlan | None:
    """Which worker of which plan the pod claims to be.

    None without a plan or with an invalid annotation.
    """
    plan = _plan_in(pod.metadata.annotations.get(names.PLAN))
    return None if plan is None else WorkerOfPlan(plan=plan, worker=worker_of(pod))


def _plan_in(text: str | None) -> PlanOfPod | None:
    if text is None:
        return None
    try:
        return _DECODER.decode(text)
    except UnreadableError:
        return None


def with_carried(job: GPUJob, *, child: Job) -> GPUJob:
    """The job as its status will be: with the plan and the number that its batch Job carries and the status lacks.

    The same object if there is nothing to add. The number of a plan counts even after its batch Job was suspended, so
    that no other plan gets it. The template of a batch Job that runs cannot change, so it is as the operator wrote it.
    """
    if job.status.plans:
        return job
    made = child.spec.template.metadata
    carried = _plan_in(made.annotations.plan)
    if carried is None or carried.worker is None or carried.job != job.metadata.uid:
        return job
    if carried.generation != 1 or len(carried.nodes) != 1:
        # The operator carries the first plan of one worker alone. Another text would hold room on more nodes.
        return job
    stands = not child.spec.suspend and child.metadata.deletion_timestamp is None
    placement = Placement(
        generation=carried.generation,
        nodes=[PlannedNode(name=name, workers=1) for name in carried.nodes],
        worker=carried.worker,
    )
    status = msgspec.structs.replace(
        job.status,
        number=job.status.number or read_whole(made.labels.job_number, otherwise=0) or None,
        plans=carried.generation,
        placement=placement if stands else None,
        admitted_time=child.metadata.creation_timestamp if stands else job.status.admitted_time,
    )
    return msgspec.structs.replace(job, status=status)


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
