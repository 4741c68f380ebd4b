"""A snapshot as the start of an experiment: nodes, allocations, waiting pods, and the mix.

Pure.

The experiment knows one model per node and no device memory: of a node with several models the most frequent counts,
and memory that is promised or used apart from the shares does not. Its devices are the GPUs, or the MIG instances of
one profile. What pods with other devices take of CPU and memory counts in either case.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from dovetail.fragmentation.capacity import needs
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.gpu.models import model_of, normalise
from dovetail.gpu.request import GPURequest, RequestError, parse
from dovetail.simulator.snapshot import (
    Snapshot,
    SnapshotClaim,
    SnapshotDevice,
    SnapshotError,
    SnapshotJob,
    SnapshotNode,
)
from dovetail.simulator.trace import Node, columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The start of an experiment.

    - `nodes`: nodes that take pods
    - `taken`: what is allocated at the start
    - `waiting`: pods that arrive first, in the queue's order
    - `mix`: the shapes of all pods that run, wait or have run
    - `closed_nodes`: number of nodes that are left out because they take no pods
    - `impossible`: number of waiting pods that are left out because they fit on no empty node
    - `of_other_devices`: number of waiting pods that are left out because they request devices of another kind
    """

    nodes: tuple[Node, ...]
    taken: tuple[Choice, ...]
    waiting: tuple[Shape, ...]
    mix: tuple[Shape, ...]
    closed_nodes: int = 0
    impossible: int = 0
    of_other_devices: int = 0


def stage(snapshot: Snapshot, *, profile: str = "") -> Stage:
    """The start of an experiment from a snapshot. Raises `SnapshotError` for an invalid request.

    With a MIG profile, its devices are the instances of that profile.
    """
    kinds = {(node.name, device.index): device.mig_profile for node in snapshot.nodes for device in node.devices}
    snapshot = _of_kind(snapshot, kinds=kinds, profile=profile)
    usable = [node for node in snapshot.nodes if not node.obstacle and not node.cordoned]
    rows = {node.name: row for row, node in enumerate(usable)}
    devices = {node.name: [device for device in node.devices if _usable(device)] for node in usable}
    claims = [claim for claim in snapshot.claims if claim.node in rows]
    turn_milli = max(1, WHOLE_MILLI // snapshot.turns_per_device)
    shapes_of = _Shapes(snapshot, turn_milli=turn_milli, profile=profile)
    named = [each for claim in claims for each in _choices(claim, rows=rows, devices=devices, turn_milli=turn_milli)]
    taken = [*_others(usable), *named, *_unnamed(claims, rows=rows, devices=devices, beside=named)]
    waiting = sorted((job for job in snapshot.jobs if _waits(job)), key=lambda job: (-job.priority, job.submitted_at))
    plain = [shape for claim in snapshot.claims if not claim.job for shape in _claimed(claim, turn_milli=turn_milli)]
    nodes = tuple(_node(node, devices=devices[node.name]) for node in usable)
    possible = _Possible(nodes)
    arriving = [shape for job in waiting for shape in shapes_of.job(job)]
    first = tuple(filter(possible, arriving))
    return Stage(
        nodes=nodes,
        taken=tuple(taken),
        waiting=first,
        mix=tuple(filter(possible, (*plain, *(shape for job in snapshot.jobs for shape in shapes_of.job(job))))),
        closed_nodes=len(snapshot.nodes) - len(usable),
        impossible=len(arriving) - len(first),
        of_other_devices=sum(job.workers for job in waiting if not shapes_of.is_of_kind(job)),
    )


def _of_kind(snapshot: Snapshot, *, kinds: Mapping[tuple[str, int], str], profile: str) -> Snapshot:
    """The snapshot with the devices of one kind alone; claims keep what they take of the host."""
    return msgspec.structs.replace(
        snapshot,
        nodes=[
            msgspec.structs.replace(node, devices=[each for each in node.devices if each.mig_profile == profile])
            for node in snapshot.nodes
        ],
        claims=[
            msgspec.structs.replace(
                claim,
                devices=[each for each in claim.devices if kinds.get((claim.node, each.index), "") == profile],
                unnamed=claim.instances.get(profile, 0) if profile else claim.unnamed,
            )
            for claim in snapshot.claims
        ],
    )


class _Possible:
    """Whether a shape fits on any of some nodes while they are empty."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._columns = columns_of(nodes) if nodes else None
        self._known: dict[Shape, bool] = {}

    def __call__(self, shape: Shape) -> bool:
        columns = self._columns
        if shape not in self._known and columns is not None:
            enough = (columns.capacity >= needs(shape)).all(axis=1) & columns.allowed(shape)
            self._known[shape] = bool(enough.any())
        return self._known.get(shape, False)


def _usable(device: SnapshotDevice) -> bool:
    return device.healthy and not device.cordoned


def _waits(job: SnapshotJob) -> bool:
    return job.phase in {"Queued", "Starting", "Preempted"}


def _node(node: SnapshotNode, *, devices: Sequence[SnapshotDevice]) -> Node:
    models = Counter(_model(device) for device in devices)
    return Node(
        name=node.name,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        gpus=len(devices),
        model=min(models, key=lambda model: (-models[model], model)) if models else "",
    )


def _model(device: SnapshotDevice) -> str:
    """The model with its memory, which the driver's name may leave out.

    A request may want a V100 of 16 GB.
    """
    known = normalise(device.model)
    return device.model if known.memory_gb is not None else f"{device.model} {round(device.memory_mib / 1024)}GB"


def _others(nodes: Iterable[SnapshotNode]) -> Iterable[Choice]:
    for row, node in enumerate(nodes):
        if node.other_cpu_milli or node.other_memory_mib:
            yield Choice(shape=Shape(cpu_milli=node.other_cpu_milli, memory_mib=node.other_memory_mib), node=row)


def _choices(
    claim: SnapshotClaim,
    *,
    rows: Mapping[str, int],
    devices: Mapping[str, Sequence[SnapshotDevice]],
    turn_milli: int,
) -> Iterable[Choice]:
    """What a claim takes, one choice per device.

    The first one also takes the CPU and the memory.
    """
    row = rows[claim.node]
    slots = {device.index: slot for slot, device in enumerate(devices[claim.node])}
    yield Choice(shape=Shape(cpu_milli=claim.cpu_milli, memory_mib=claim.memory_mib), node=row)
    for share in claim.devices:
        if share.index in slots:
            milli = turn_milli if claim.mode == "TimeShared" else share.share_milli
            shape = Shape(cpu_milli=0, memory_mib=0, gpus=1, share_milli=milli)
            yield Choice(shape=shape, node=row, devices=(slots[share.index],))


def _unnamed(
    claims: Iterable[SnapshotClaim],
    *,
    rows: Mapping[str, int],
    devices: Mapping[str, Sequence[SnapshotDevice]],
    beside: Iterable[Choice],
) -> Iterable[Choice]:
    """Devices that kubelet picked and that have no name yet: the first ones that are free."""
    used = {(choice.node, slot) for choice in beside for slot in choice.devices}
    for claim in claims:
        row = rows[claim.node]
        free = (slot for slot in range(len(devices[claim.node])) if (row, slot) not in used)
        for slot in list(free)[: claim.unnamed]:
            used.add((row, slot))
            yield Choice(
                shape=Shape(cpu_milli=0, memory_mib=0, gpus=1, share_milli=WHOLE_MILLI), node=row, devices=(slot,)
            )


def _claimed(claim: SnapshotClaim, *, turn_milli: int) -> list[Shape]:
    """What a pod outside GPUJobs once requested, as far as its claim shows."""
    count = len(claim.devices) + claim.unnamed
    if not count:
        return []
    share_milli = claim.devices[0].share_milli if claim.devices else WHOLE_MILLI
    milli = turn_milli if claim.mode == "TimeShared" else share_milli
    return _apart(Shape(cpu_milli=claim.cpu_milli, memory_mib=claim.memory_mib, gpus=count, share_milli=milli))


def _apart(shape: Shape) -> list[Shape]:
    """Several shares of one pod, as one pod each.

    The experiment knows shares of one device only.
    """
    if shape.gpus <= 1 or shape.share_milli == WHOLE_MILLI:
        return [shape]
    each = replace(shape, gpus=1, cpu_milli=shape.cpu_milli // shape.gpus, memory_mib=shape.memory_mib // shape.gpus)
    return [each] * shape.gpus


def _suits(device: SnapshotDevice, *, request: GPURequest) -> bool:
    """Whether the device has the vendor, one of the models and the nominal size of a request."""
    actual = model_of(device.model, memory_mib=device.memory_mib)
    return request.admits(actual) and request.vendor in {None, device.vendor}


def _request_of(job: SnapshotJob) -> GPURequest:
    """What each worker of a job requests. Raises `SnapshotError`."""
    try:
        return parse(job.request)
    except RequestError as error:
        raise SnapshotError(f"job {job.name}: {error}") from error


class _Shapes:
    """The requests of jobs as shapes: one for each worker."""

    def __init__(self, snapshot: Snapshot, *, turn_milli: int, profile: str) -> None:
        self._turn_milli = turn_milli
        self._profile = profile
        self._devices = [device for node in snapshot.nodes for device in node.devices]

    def is_of_kind(self, job: SnapshotJob) -> bool:
        """Whether a job requests the devices of the experiment, or none. Raises `SnapshotError`."""
        return job.request == "cpu" or _request_of(job).mig == self._profile

    def job(self, job: SnapshotJob) -> list[Shape]:
        """The shapes of a job's workers; none for a job that requests other devices. Raises `SnapshotError`."""
        if job.request == "cpu":
            return [Shape(cpu_milli=job.cpu_milli, memory_mib=job.memory_mib)] * job.workers
        request = _request_of(job)
        if request.mig != self._profile:
            return []
        shape = Shape(
            cpu_milli=job.cpu_milli,
            memory_mib=job.memory_mib,
            gpus=request.count,
            share_milli=self._turn_milli if job.mode == "TimeShared" else request.share_milli,
            models=self._models_for(request),
        )
        return _apart(shape) * job.workers

    def _models_for(self, request: GPURequest) -> tuple[str, ...]:
        """The models that a shape names for a request; where it says vendor or size, the snapshot's models with it."""
        is_by_name = not request.excluded_models and request.min_nominal_gb is None
        if is_by_name and (request.vendor is None or request.models):
            return tuple(sorted(request.models))
        found = {device.model for device in self._devices if _suits(device, request=request)}
        return tuple(sorted(found)) or (str(request),)
