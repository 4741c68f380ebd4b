"""The proof of the ledger: the promises of the API server's objects against the capacities.

Pure.

It sums everything again without the engine, so that a fault in the engine's sums cannot hide itself: it uses only the
objects, request texts and allocation texts. Each finding names one object and says in one sentence what is wrong.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dovetail import names
from dovetail.answers.questions import Audit, Finding, FindingKind
from dovetail.api.builtin import Container, Node, Pod, ResourceSlice, is_terminated
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Device, GPUNode
from dovetail.audit.device_kinds import unwanted
from dovetail.audit.device_plugins import VendorPods, instance_resources, served_twice
from dovetail.audit.jobs import holdings, of_jobs
from dovetail.audit.liveness import Kept, preempted_for_nothing, waiting_though_they_fit, withheld
from dovetail.audit.quota_use import DatedQuota, above, binding, holders, subject_of
from dovetail.audit.room import open_nodes
from dovetail.formats import quantities
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import WHOLE_MILLI, RequestError, parse
from dovetail.pods.allocation import Allocation, AllocationError, allocation_in
from dovetail.pods.containers import host_room_mib

# By default, what lasts a minute is no delay of programs that write within seconds, on a busy machine too.
OLDER_THAN_SECONDS: Final = 60.0
# What the programs put right a moment after a change of the objects: such a finding counts only once it
# has lasted, because the objects do not say since when it holds.
LAGGING: Final[frozenset[FindingKind]] = frozenset(
    {
        "AllocationWithoutPod", "HoldsMoreThanAsked", "AboveQuota", "CapacityWithheld", "WaitsThoughItFits",
        "PreemptionUnused",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be promised: a part of a shared device's memory, and a number of tenants.

    `vendor_resources` are whole devices that kubelet assigns; the pods that request them have no allocation.
    `memory_specs` are configured nominal sizes of models in GB by family, in addition to the table of models.
    What is put right within `older_than_seconds` is no finding: see `LAGGING`.
    """

    guard_fraction: float = 0.8
    turns_per_device: int = 4
    vendor_resources: Sequence[str] = DEFAULT_VENDORS.resources
    memory_specs: Mapping[str, float] = field(default_factory=dict)
    older_than_seconds: float = OLDER_THAN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    pod: str
    mode: str
    device: AllocatedDevice
    fraction: float
    movable: bool


def audit(
    *,
    nodes: Iterable[Node],
    gpunodes: Iterable[GPUNode],
    pods: Iterable[Pod],
    jobs: Iterable[GPUJob] = (),
    rules: Rules | None = None,
    slices: Iterable[ResourceSlice] = (),
    quotas: Iterable[DatedQuota] | None = None,
    now: datetime | None = None,
) -> Audit:
    """Everything that the objects promise and must not promise, and what loses capacity. Ended pods promise nothing.

    `slices` are the ResourceSlices of GPU vendors' DRA drivers. Without `now`, nothing is judged by its age. Without
    `quotas`, which a reader may not be allowed to see, neither their limits nor jobs that fit and wait are judged.
    """
    rules = rules or Rules()
    nodes, gpunodes, pods, jobs = list(nodes), list(gpunodes), list(pods), list(jobs)
    ours = [
        pod for pod in pods if not is_terminated(pod) and (names.ALLOCATION in pod.metadata.annotations or _asked(pod))
    ]
    known = {node.metadata.name for node in nodes}
    by_vendor = VendorPods(
        [pod for pod in pods if not is_terminated(pod)],
        gpunodes=gpunodes,
        resources=[*rules.vendor_resources, *instance_resources(nodes)],
        memory_specs=rules.memory_specs,
    )
    devices = {
        (gpunode.metadata.name, device.uuid): device for gpunode in gpunodes for device in gpunode.status.devices
    }
    allocations, findings = _read(ours)
    for pod in ours:
        findings += _of_pod(
            pod, allocation=allocations.get(_name(pod)), nodes=known, devices=devices, memory_specs=rules.memory_specs
        )
    promises = {
        place: held for place, held in _promises(ours, allocations=allocations, rules=rules).items() if place in devices
    }
    for place, tenants in promises.items():
        findings += _of_device(devices[place], tenants=tenants, node=place[0], rules=rules)
    findings += by_vendor.findings(nodes)
    findings += served_twice(nodes, slices=slices)
    held = holdings(ours, allocations=allocations, by_vendor=by_vendor)
    findings += of_jobs(jobs, held=held, devices=devices)
    if quotas is not None:
        quotas = list(quotas)
        everyone = holders(jobs, pods=pods, held=held, devices=devices, memory_specs=rules.memory_specs)
        findings += above(quotas, everyone=everyone)
    if now is not None:
        objects = _Objects(nodes=nodes, gpunodes=gpunodes, pods=pods, jobs=jobs, quotas=quotas)
        taken = {*promises, *((pod.spec.node_name, uuid) for pod in by_vendor.pods for uuid in by_vendor.given(pod))}
        findings += _of_time(objects, promised=taken, rules=rules, now=now)
    moving = {each.metadata.name for each in gpunodes if _moves(each)}
    return Audit(
        pods=len(ours) + len(by_vendor.pods),
        devices=len(devices),
        findings=len(findings),
        items=sorted(findings),
        notes=sorted(_stranded(promises, devices=devices, moving=moving)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objects:
    nodes: Sequence[Node]
    gpunodes: Sequence[GPUNode]
    pods: Sequence[Pod]
    jobs: Sequence[GPUJob]
    quotas: Sequence[DatedQuota] | None


def _of_time(
    objects: _Objects, *, promised: AbstractSet[tuple[str, str]], rules: Rules, now: datetime
) -> Iterator[Finding]:
    """What lasts too long: see `liveness`."""
    older_than, quotas, jobs = timedelta(seconds=rules.older_than_seconds), objects.quotas or (), objects.jobs
    yield from withheld(
        jobs, pods=objects.pods, gpunodes=objects.gpunodes, quotas=quotas, now=now, older_than=older_than
    )
    yield from preempted_for_nothing(
        jobs, nodes=objects.nodes, gpunodes=objects.gpunodes, now=now, older_than=older_than
    )
    if objects.quotas is None:
        return
    room = open_nodes(nodes=objects.nodes, gpunodes=objects.gpunodes, pods=objects.pods, promised=promised)
    waiting = [job for job in jobs if job.status.phase == "Queued"]
    yield from waiting_though_they_fit(
        waiting,
        nodes=room,
        kept=Kept(jobs, quotas=quotas, pods=objects.pods),
        pools={job.metadata.uid: _pools_of(job, quotas=quotas) for job in waiting},
        memory_specs=rules.memory_specs,
        now=now,
        older_than=older_than,
    )


def _pools_of(job: GPUJob, *, quotas: Sequence[DatedQuota]) -> AbstractSet[str] | None:
    """The pools that all quotas of a job allow; None for any."""
    allowed = [set(each.spec.pools) for each in binding(subject_of(job), quotas=quotas) if each.spec.pools]
    return set.intersection(*allowed) if allowed else None


def _read(pods: Iterable[Pod]) -> tuple[dict[str, Allocation], list[Finding]]:
    """The allocations by `namespace/name` of the pod, and a finding for each broken one."""
    allocations: dict[str, Allocation] = {}
    findings: list[Finding] = []
    for pod in pods:
        try:
            allocation = allocation_in(pod.metadata.annotations)
        except AllocationError as error:
            findings.append(Finding(kind="BrokenAllocation", subject=_name(pod), message=str(error)))
            continue
        if allocation is not None:
            allocations[_name(pod)] = allocation
    return allocations, findings


def _promises(
    pods: Iterable[Pod], *, allocations: Mapping[str, Allocation], rules: Rules
) -> dict[tuple[str, str], list[_Promise]]:
    found: dict[tuple[str, str], list[_Promise]] = defaultdict(list)
    for pod in pods:
        allocation = allocations.get(_name(pod))
        if allocation is None:
            continue
        for device in allocation.devices:
            fraction = _or_else(allocation.guard_fraction, configured=rules.guard_fraction)
            promise = _Promise(
                pod=_name(pod),
                mode=allocation.mode,
                device=device,
                fraction=fraction,
                movable=_movable(pod, allocation=allocation),
            )
            found[allocation.node, device.uuid].append(promise)
    return found


def _movable(pod: Pod, *, allocation: Allocation) -> bool:
    """Contracts §3.1: whether its memory can leave the device for another tenant's turn.

    Its one container must have room for it.
    """
    if not allocation.movable or allocation.mode != "TimeShared" or len(allocation.containers) != 1:
        return False
    room = host_room_mib(pod.spec, container=allocation.containers[0].index)
    return room >= sum(device.memory_mib for device in allocation.devices)


def _moves(gpunode: GPUNode) -> bool:
    return gpunode.status.enforcement.turns and gpunode.status.enforcement.checkpoint


def _or_else(said: float | None, *, configured: float) -> float:
    return configured if said is None else said


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _list(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.removeprefix(f'{names.GROUP}/')} {amount}" for name, amount in sorted(amounts.items()))


# --- one pod --------------------------------------------------------------------------------------------------------


def _of_pod(
    pod: Pod,
    *,
    allocation: Allocation | None,
    nodes: set[str],
    devices: Mapping[tuple[str, str], Device],
    memory_specs: Mapping[str, float],
) -> Iterator[Finding]:
    asked = _asked(pod)
    if allocation is None:
        # A broken allocation has its own finding; here it counts as missing.
        if asked and pod.spec.node_name and names.ALLOCATION not in pod.metadata.annotations:
            message = f"it is bound to {pod.spec.node_name} and asks {_list(asked)}, but has no allocation"
            yield Finding(kind="NotAllocated", subject=_name(pod), message=message)
        return
    yield from _of_place(pod, allocation=allocation, nodes=nodes, devices=devices)
    if not asked:
        message = (
            f"it holds {len(allocation.devices)} devices but asks for none of {', '.join(names.MANAGED_RESOURCES)}"
        )
        yield Finding(kind="NotAsked", subject=_name(pod), message=message)
        return
    problems = [_against_resources(asked, allocation=allocation), _against_mode(pod, allocation=allocation)]
    for text, held in _requests(pod, allocation=allocation):
        there = [devices[place] for each in held if (place := (allocation.node, each.uuid)) in devices]
        problems += [
            _against_request(text, held=held, devices=there),
            _against_kind(text, devices=there, memory_specs=memory_specs),
        ]
    for problem in problems:
        if problem:
            yield Finding(kind="Mismatch", subject=_name(pod), message=problem)


def _of_place(
    pod: Pod, *, allocation: Allocation, nodes: set[str], devices: Mapping[tuple[str, str], Device]
) -> Iterator[Finding]:
    subject, node = _name(pod), allocation.node
    if not pod.spec.node_name:
        yield Finding(kind="NotBound", subject=subject, message=f"it has an allocation on {node} but no node")
    elif pod.spec.node_name != node:
        message = f"it runs on {pod.spec.node_name}, but its allocation names {node}"
        yield Finding(kind="WrongNode", subject=subject, message=message)
    if node not in nodes:
        yield Finding(kind="UnknownNode", subject=subject, message=f"its allocation names {node}: no such node")
        return
    for container in allocation.containers:
        # Two containers may each have a share of one device.
        uuids = [held.uuid for held in container.devices]
        for uuid in dict.fromkeys(uuid for uuid in uuids if uuids.count(uuid) > 1):
            yield Finding(kind="DeviceTwice", subject=subject, message=f"it holds device {uuid} twice")
    for held in allocation.devices:
        device = devices.get((node, held.uuid))
        if device is None:
            message = f"its allocation names device {held.uuid}, which {node} does not report"
            yield Finding(kind="UnknownDevice", subject=subject, message=message)
        elif device.index != held.index:
            message = f"its allocation calls {held.uuid} index {held.index}, {node} reports index {device.index}"
            yield Finding(kind="UnknownDevice", subject=subject, message=message)


def _against_resources(asked: Mapping[str, int], *, allocation: Allocation) -> str:
    """What kube-scheduler and kubelet count for the pod, against what it holds.

    Empty when they agree.
    """
    held: dict[str, int] = {}
    if allocation.mode == "TimeShared":
        held[names.GPU_TURN] = len(allocation.devices)
    else:
        held[names.GPU_MILLI] = sum(device.share_milli for device in allocation.devices)
    if names.GPU_MEMORY_MIB in asked and allocation.mode != "Exclusive":
        held[names.GPU_MEMORY_MIB] = sum(device.memory_mib for device in allocation.devices)
    expected = {name: amount for name, amount in asked.items() if name in held or name != names.GPU_MEMORY_MIB}
    if held == expected:
        return ""
    return f"it asks {_list(asked)}, but its {allocation.mode} allocation holds {_list(held)}"


def _requests(pod: Pod, *, allocation: Allocation) -> Iterator[tuple[str, Sequence[AllocatedDevice]]]:
    """The text of each container's request, with what that container holds.

    A pod's own text is for one container.
    """
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    annotations = pod.metadata.annotations
    for held in allocation.containers:
        name = containers[held.index].name if 0 <= held.index < len(containers) else ""
        text = annotations.get(f"{names.REQUEST}.{name}", annotations.get(names.REQUEST))
        if text is not None:
            yield text, held.devices


def _against_request(text: str, *, held: Sequence[AllocatedDevice], devices: Sequence[Device]) -> str:
    """A request's text against what its container holds of `devices`; empty when they agree."""
    try:
        request = parse(text)
    except RequestError as error:
        return f"it holds devices, but its request cannot be read: {error}"
    if len(held) != request.count:
        return f"its request {text} is for {request.count} devices, but it holds {len(held)}"
    if any(device.share_milli != request.share_milli for device in held):
        shares = ", ".join(str(device.share_milli) for device in held)
        return f"its request {text} is for a share of {request.share_milli}, but it holds {shares}"
    if request.memory_mib is not None and any(device.memory_mib < request.memory_mib for device in held):
        least = min(device.memory_mib for device in held)
        return f"its request {text} is for {request.memory_mib} MiB on each device, but it holds {least}"
    if (percent := request.memory_percent) is not None:
        parts = {each.uuid: (each.memory_mib - each.reserved_mib) * percent // 100 for each in devices}
        for device in held:
            if device.memory_mib < (part := parts.get(device.uuid, 0)):
                return f"its request {text} is for {part} MiB of {device.uuid}, but it holds {device.memory_mib}"
    return ""


def _against_mode(pod: Pod, *, allocation: Allocation) -> str:
    mode = pod.metadata.annotations.get(names.MODE)
    if mode is None or mode == allocation.mode:
        return ""
    return f"it asks mode {mode}, but its allocation is {allocation.mode}"


def _against_kind(text: str, *, devices: Sequence[Device], memory_specs: Mapping[str, float]) -> str:
    """The vendor, the models and the nominal size that a request names, against the devices of its container."""
    try:
        request = parse(text)
    except RequestError:
        return ""
    found = unwanted(request, devices=devices, memory_specs=memory_specs)
    return "" if found is None else f"its request {request} is not for {found[1]}, but it holds {found[0].uuid}"


def _asked(pod: Pod) -> dict[str, int]:
    """The most of our resources that the pod requests at one time.

    Either its containers and sidecars, or an init container.
    """
    asked: dict[str, int] = {}
    brief = [each for each in pod.spec.init_containers if each.restart_policy != "Always"]
    lasting = [*pod.spec.containers, *(each for each in pod.spec.init_containers if each not in brief)]
    for name in names.MANAGED_RESOURCES:
        together = sum(_amount(container, name=name) for container in lasting)
        most = max(together, *(_amount(container, name=name) for container in brief), 0)
        if most:
            asked[name] = most
    return asked


def _amount(container: Container, *, name: str) -> int:
    resources = container.resources
    return quantities.whole(resources.requests.get(name) or resources.limits.get(name) or 0)


# --- one device -----------------------------------------------------------------------------------------------------


def _of_device(device: Device, *, tenants: Sequence[_Promise], node: str, rules: Rules) -> Iterator[Finding]:
    subject = f"{node}/{device.index}"
    modes = sorted({tenant.mode for tenant in tenants})
    pods = ", ".join(sorted(tenant.pod for tenant in tenants))
    if len(modes) > 1:
        yield Finding(kind="ModeConflict", subject=subject, message=f"it serves {' and '.join(modes)} at once: {pods}")
    if "Exclusive" in modes and len(tenants) > 1:
        yield Finding(kind="NotSole", subject=subject, message=f"it is exclusive, but {len(tenants)} hold it: {pods}")
    turns = [tenant for tenant in tenants if tenant.mode == "TimeShared"]
    if len(turns) > rules.turns_per_device:
        message = f"{len(turns)} take turns on it, allowed are {rules.turns_per_device}: {pods}"
        yield Finding(kind="TooManyTurns", subject=subject, message=message)
    # Tenants in turns overlap by design: together they use at most one device's compute.
    share = sum(tenant.device.share_milli for tenant in tenants if tenant.mode != "TimeShared")
    share += max((tenant.device.share_milli for tenant in turns), default=0)
    if share > WHOLE_MILLI:
        message = f"{share} thousandths of it are promised, it has {WHOLE_MILLI}: {pods}"
        yield Finding(kind="ShareOverpromised", subject=subject, message=message)
    promised, usable = _at_one_time_mib(tenants), _usable_mib(device, tenants=tenants)
    if promised > usable:
        message = f"{promised} MiB of it are promised, usable are {usable} of {device.memory_mib} MiB: {pods}"
        yield Finding(kind="MemoryOverpromised", subject=subject, message=message)


def _at_one_time_mib(tenants: Sequence[_Promise]) -> int:
    """Device memory in MiB in use at one time: all that stays, and the largest that leaves."""
    stays = sum(tenant.device.memory_mib for tenant in tenants if not tenant.movable)
    return stays + max((tenant.device.memory_mib for tenant in tenants if tenant.movable), default=0)


def _stranded(
    promises: Mapping[tuple[str, str], Sequence[_Promise]],
    *,
    devices: Mapping[tuple[str, str], Device],
    moving: Collection[str],
) -> Iterator[str]:
    """Devices whose tenants rely on moves by turns, on nodes that cannot move them now."""
    for (node, uuid), tenants in promises.items():
        device = devices[node, uuid]
        promised, usable = sum(tenant.device.memory_mib for tenant in tenants), _usable_mib(device, tenants=tenants)
        if node not in moving and promised > usable >= _at_one_time_mib(tenants):
            yield (
                f"{node}/{device.index}: {promised} MiB are promised by turns, usable are {usable}, and the node moves "
                f"no tenant to the host now: {', '.join(sorted(tenant.pod for tenant in tenants))}"
            )


def _usable_mib(device: Device, *, tenants: Sequence[_Promise]) -> int:
    """Usable device memory in MiB.

    Contracts §3.1: the strictest tenant decides; a whole device is exempt from the guard.
    """
    total = max(0, device.memory_mib - device.reserved_mib)
    exclusive = any(tenant.mode == "Exclusive" for tenant in tenants)
    return total if exclusive else int(total * min(tenant.fraction for tenant in tenants))
