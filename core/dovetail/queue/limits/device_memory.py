"""How much device memory requests and claims count with in quotas, in MiB. Pure.

Whole GPUs count with all their memory, by the nominal size of their model: a quota of eight GPUs of 80 GB is 640Gi,
although their driver reports a little less. A share counts with the memory that it is promised, a MIG instance with
that of its profile.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu import mig
from dovetail.gpu.models import Model, model_of, vendor_of
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

_MIB_OF_GB: Final = 1024


def cluster_memory_mib(ledger: Ledger) -> tuple[int, int]:
    """The memory of the existing GPUs and MIG instances, and that of the healthy ones."""
    known = usable = 0
    partitions = [device for name in ledger.partitioned() for device in ledger.instances(name)]
    for model in ledger.models():
        there, healthy = ledger.device_counts(model)
        known += there * _size_mib(model)
        usable += healthy * _size_mib(model)
    for device in partitions:
        # No request can have an instance of an unknown profile.
        size = mig.memory_mib(device.mig) if mig.normalised(device.mig) else 0
        known += size
        usable += size * device.healthy
    return known, usable


def memory_of(
    ask: Ask | None,
    *,
    workers: int,
    ledger: Ledger,
    cards: Collection[Model],
    nodes: Mapping[str, int] | None = None,
) -> int:
    """The memory that all workers of a job count with.

    `cards` are the models of all GPUs of the ledger, and `nodes` the numbers of workers by node, as far as they are
    planned. A worker without a node counts with the largest GPU that its request allows: a limit must hold wherever it
    starts.
    """
    if ask is None or ask.gpu is None:
        return 0
    placed = {name: count for name, count in (nodes or {}).items() if ledger.devices(name)}
    left = max(0, workers - sum(placed.values()))
    total = left * _of_worker(ask, models=cards, ledger=ledger) if left else 0
    return total + sum(
        count * _of_worker(ask, models=ledger.models(name), ledger=ledger) for name, count in placed.items()
    )


def memory_of_claim(claim: Claim, *, ledger: Ledger) -> int:
    """The memory that a pod's promise counts with."""
    specs = ledger.limits.memory_specs
    sizes = {
        device.uuid: _size_mib(model_of(device.model, memory_mib=device.memory_mib, specs=specs))
        for device in ledger.devices(claim.node)
    }
    total = sum(count * mig.memory_mib(profile) for profile, count in claim.instances)
    total += claim.unnamed * max(sizes.values(), default=0)
    for device in claim.devices:
        if device.mig:
            total += mig.memory_mib(device.mig)
        else:
            whole = device.share_milli == WHOLE_MILLI
            total += sizes.get(device.uuid, device.memory_mib) if whole else device.memory_mib
    return total


def model_of_claim(claim: Claim, *, ledger: Ledger) -> str:
    """The one model of the GPUs that a pod holds; empty for several, and for MIG instances."""
    held = {device.uuid for device in claim.devices if not device.mig}
    models = {device.model for device in ledger.devices(claim.node) if claim.unnamed or device.uuid in held}
    return models.pop() if len(models) == 1 and (held or claim.unnamed) else ""


def _of_worker(ask: Ask, *, models: Iterable[Model], ledger: Ledger) -> int:
    assert ask.gpu is not None
    fraction = ledger.limits.guard_fraction if ask.guard_fraction is None else ask.guard_fraction
    known = list(models)
    return sum(_of_request(each, models=known, guard_fraction=fraction) for each in (ask.gpu, *ask.more))


def _of_request(request: GPURequest, *, models: Iterable[Model], guard_fraction: float) -> int:
    if request.mig:
        return request.count * mig.memory_mib(request.mig)
    card = max((_size_mib(model) for model in models if _admits(request, model=model)), default=0)
    if request.whole:
        return request.count * card
    if (asked := request.memory_on(card)) is not None:
        return request.count * asked
    return request.count * int(card * guard_fraction * request.share_milli / WHOLE_MILLI)


def _admits(request: GPURequest, *, model: Model) -> bool:
    return request.admits(model) and (request.vendor is None or vendor_of(model.family) in {None, request.vendor})


def _size_mib(model: Model) -> int:
    return _MIB_OF_GB * (model.memory_gb or 0)
