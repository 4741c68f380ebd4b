"""What the pods of each GPUJob hold, against what it requests and what its status says. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.answers.questions import Finding
from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import FINISHED, GPUJob, ResourceRequest
from dovetail.api.gpunode import Device
from dovetail.api.meta import key_of
from dovetail.audit.device_plugins import VendorPods
from dovetail.formats.quantities import QuantityError, mebibytes
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError, parse
from dovetail.pods.allocation import Allocation
from dovetail.pods.tenancy import job_of, tenancy_in

_HOLDING: Final = frozenset({"Starting", "Running"})
_CPU: Final = GPURequest(count=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A live pod of a job, and its devices: of a vendor's pod only the number is known for certain.

    `leaving`: it is being deleted, so its job may already have another pod in its place.
    """

    pod: str
    leaving: bool
    count: int
    devices: Sequence[AllocatedDevice] = ()

    @property
    def milli(self) -> int:
        """The compute that it holds, in thousandths of a device; a MIG instance counts as one."""
        return sum(each.share_milli for each in self.devices) if self.devices else self.count * WHOLE_MILLI


@dataclass(slots=True)
class Holding:
    """What all live pods of a job hold."""

    uuids: set[str] = field(default_factory=set)
    workers: list[Worker] = field(default_factory=list)


def holdings(
    pods: Iterable[Pod], *, allocations: Mapping[str, Allocation], by_vendor: VendorPods
) -> Mapping[str, Holding]:
    """What the pods of each job hold, by the job's `namespace/name`; pods outside jobs have their namespace alone."""
    found: dict[str, Holding] = defaultdict(Holding)
    for pod in pods:
        allocation = allocations.get(key_of(pod.metadata))
        if allocation is not None:
            holding = found[_owner(pod, job=tenancy_in(pod, allocation=allocation).job)]
            holding.uuids |= {device.uuid for device in allocation.devices}
            holding.workers.append(_worker(pod, count=len(allocation.devices), devices=allocation.devices))
    for pod in by_vendor.pods:
        if pod.spec.node_name:
            holding = found[_owner(pod, job=job_of(pod))]
            holding.uuids |= {card_of(each) for each in by_vendor.given(pod)}
            holding.workers.append(_worker(pod, count=by_vendor.asked(pod)))
    return found


def of_jobs(
    jobs: Iterable[GPUJob], *, held: Mapping[str, Holding], devices: Mapping[tuple[str, str], Device]
) -> Iterator[Finding]:
    """Jobs whose status names devices that no live pod of them holds, and jobs that hold more than they request."""
    for job in jobs:
        name = key_of(job.metadata)
        holding = held.get(name) or Holding()
        for message in _not_held(job, uuids=holding.uuids):
            yield Finding(kind="AllocationWithoutPod", subject=name, message=message)
        if job.status.phase not in FINISHED:
            for message in _beyond(job, holding=holding, devices=devices):
                yield Finding(kind="HoldsMoreThanAsked", subject=name, message=message)


def request_of(job: GPUJob) -> GPURequest | None:
    """What each worker requests, with 0 devices for a job on the CPU; None if it cannot be read."""
    try:
        if job.spec.resources is not None:
            return _structured(job.spec.resources)
        return None if job.spec.gpu is None else parse(job.spec.gpu)
    except (RequestError, QuantityError):
        return None


def _owner(pod: Pod, *, job: str) -> str:
    return f"{pod.metadata.namespace}/{job}"


def _worker(pod: Pod, *, count: int, devices: Sequence[AllocatedDevice] = ()) -> Worker:
    leaving = pod.metadata.deletion_timestamp is not None
    return Worker(pod=pod.metadata.name, leaving=leaving, count=count, devices=devices)


def _structured(resources: ResourceRequest) -> GPURequest:
    if resources.device == "cpu":
        return _CPU
    return GPURequest(
        count=resources.count,
        share_milli=round(resources.share * WHOLE_MILLI),
        memory_mib=None if resources.memory is None else mebibytes(resources.memory),
        memory_percent=resources.memory_percent,
        models=tuple(resources.models),
        excluded_models=tuple(resources.excluded_models),
        vendor=resources.vendor,
        min_nominal_gb=resources.min_nominal_memory_gb,
        mig=resources.mig_profile or "",
    )


def _not_held(job: GPUJob, *, uuids: set[str]) -> Iterator[str]:
    if job.status.phase in _HOLDING:
        for device in job.status.devices:
            if device.uuid not in uuids:
                yield f"its status names device {device.index} of {device.node}, but no pod of it holds that"


def _beyond(job: GPUJob, *, holding: Holding, devices: Mapping[tuple[str, str], Device]) -> Iterator[str]:
    """In which way the job's pods hold more than its workers request, whatever the pods themselves request."""
    workers = [each for each in holding.workers if not each.leaving and each.count]
    request = request_of(job)
    if request is None:
        return
    if len(workers) > job.spec.workers:
        pods = ", ".join(sorted(each.pod for each in workers))
        yield f"{len(workers)} pods of it hold GPUs, but the number of its workers is {job.spec.workers}: {pods}"
    most_milli = request.count * request.share_milli
    memory_mib = _promised_memory(job, request=request)
    for worker in workers:
        if worker.count > request.count or worker.milli > most_milli:
            held, most = _amount(worker.count, milli=worker.milli), _amount(request.count, milli=most_milli)
            yield f"its pod {worker.pod} holds {held}, but each of its workers requests {most}"
        elif not request.whole:
            yield from _beyond_memory(worker, request=request, memory_mib=memory_mib, devices=devices)


def _beyond_memory(
    worker: Worker, *, request: GPURequest, memory_mib: int | None, devices: Mapping[tuple[str, str], Device]
) -> Iterator[str]:
    sizes = {uuid: device.memory_mib for (_, uuid), device in devices.items()} if memory_mib is None else {}
    percent = request.memory_percent
    # A share without memory gets that share of its device, of which the guard leaves less.
    thousandths = request.share_milli if percent is None else percent * WHOLE_MILLI // 100
    for held in worker.devices:
        most = sizes.get(held.uuid, 0) * thousandths // WHOLE_MILLI if memory_mib is None else memory_mib
        if held.memory_mib > most and (memory_mib is not None or held.uuid in sizes):
            yield (
                f"its pod {worker.pod} holds {held.memory_mib} MiB of device {held.index}, but each of its workers "
                f"requests {most}"
            )


def _promised_memory(job: GPUJob, *, request: GPURequest) -> int | None:
    """The memory of a share in MiB: as requested, or as the queue has learned and put into the plan."""
    placement = job.status.placement
    if request.memory_mib is not None or placement is None:
        return request.memory_mib
    try:
        return parse(placement.worker.request).memory_mib
    except RequestError:
        return None


def _amount(count: int, *, milli: int) -> str:
    if milli == count * WHOLE_MILLI:
        return f"{count} GPU" if count == 1 else f"{count} GPUs"
    return f"{milli / WHOLE_MILLI:g} GPU on {count} device{'' if count == 1 else 's'}"
