"""Why the workers of a job do not fit: one reason of the closed set, and one sentence with numbers. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.api.gpujob import Reason
from dovetail.api.reasons import capacity as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.codes import EXCEEDS_CAPACITY
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.messages import no_tenant, nominal_sizes, of_models, within_models
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, CORDONED_NODE, Unavailable, first_of, in_order
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Ints, count_devices
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.engine.model.refusals import RefusalKind
from dovetail.formats.suggestions import nearest
from dovetail.gpu.request import WHOLE_MILLI, GPURequest

_MILLI: Final = 1000
# How alike two spellings of a model are, from 0 to 1: V10 and V100 are, A100 and V100 are two models.
_ALIKE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage(Sentence):
    """Why a job cannot start now: a reason of the closed set and a sentence with numbers."""

    reason: Reason


def shortage(now: Judgement, *, after: Judgement, workers: int, placed: int) -> Shortage:
    """Why not all workers fit. `after` judges the ledger with the `placed` workers on it, for the next worker."""
    return Shortage.of(_shortage(now, after=after, workers=workers, placed=placed))


def _shortage(now: Judgement, *, after: Judgement, workers: int, placed: int) -> Sentence:
    gpu = now.ask.gpu
    if gpu is None:
        return _host_short(now.ask, workers=workers)
    wanted, profile = gpu.count * workers, gpu.mig
    most_on_one, capacity = int(devices_on_empty(now).max(initial=0)), int(workers_on_empty(now, gpu=gpu).sum())
    if most_on_one < gpu.count or capacity < workers:
        exceeds = _exceeds(now, gpu=gpu, workers=workers, most_on_one=most_on_one, capacity=capacity)
        return exceeds + missing_reports(now)
    free = _free(now)
    free_in_all, free_on_one = int(free.sum()), int(free.max(initial=0))
    if free_on_one < gpu.count and wanted <= free_in_all:
        need = says.NEED(count=gpu.count, available=free_on_one, profile=profile)
        return need + says.ON_ONE_NODE() + says.NOT_TOGETHER(free=free_in_all, profile=profile)
    if workers > 1 and (now.ask.mode != "Exclusive" or wanted <= free_in_all):
        available = gpu.count * placed
    else:
        available = free_in_all if free_in_all < wanted else int(free[now.host_fits].max(initial=0))
    need = says.NEED(count=wanted, available=available, profile=profile)
    if now.ask.apart and wanted <= free_in_all:
        return need + says.APART(free=free_in_all, profile=profile)
    return need + _other_shortage(now, after=after, more_free=available < free_in_all)


def machine_shortage(ledger: Ledger, *, ask: Ask, workers: int) -> Shortage | None:
    """Why workers without GPUs can never run on one's own machine; None where they can, and in a cluster.

    In a cluster a larger node may come at any time, so there kube-scheduler looks for the room.
    """
    machine = ledger.one_machine()
    if machine is None:
        return None
    if ask.cpu_milli > machine.cpu_milli:
        wanted, most = ask.cpu_milli / _MILLI, machine.cpu_milli / _MILLI
        return Shortage.of(says.MACHINE_CPUS(cpus=wanted, most=most))
    if ask.memory_mib > machine.memory_mib:
        return Shortage.of(says.MACHINE_MEMORY(needed_mib=ask.memory_mib, most_mib=machine.memory_mib))
    amounts = ((ask.cpu_milli, machine.cpu_milli), (ask.memory_mib, machine.memory_mib), (1, machine.pods))
    capacity = min(in_all // each for each, in_all in amounts if each)
    if capacity < workers:
        return Shortage.of(says.MACHINE_TOGETHER(capacity=capacity, workers=workers, **_host(ask)))
    return None


def missing_reports(judged: Judgement) -> Sentence:
    """What to add to the sentence on a job that exceeds what the known devices could ever serve.

    A node that has not reported yet may have what is missing, so the job is not hopeless then.
    """
    facts = (judged.ledger.facts(name) for name in judged.nodes)
    silent = [each.name for each in facts if each is not None and each.unreported]
    if not silent:
        return NOTHING
    if len(silent) == 1:
        return says.NOT_REPORTED(node=silent[0])
    return says.NOT_REPORTED_MORE(node=min(silent), count=len(silent) - 1)


def _free(judged: Judgement) -> np.typing.NDArray[np.int64]:
    """How many devices of each node could take the ask now, whatever CPU and memory is left, [n]."""
    return np.where(judged.schedulable, count_devices(judged.free_devices), 0)


def _other_shortage(now: Judgement, *, after: Judgement, more_free: bool) -> Sentence:
    """The end of the sentence on a shortage. `more_free`: more GPUs are free than its beginning counts."""
    kinds, ask = _kinds(after), now.ask
    assert ask.gpu is not None, "only asked where a device is wanted"
    if _kinds(now) and _kinds(now) <= {"Unhealthy", "Cordoned"}:
        return says.COLON() + _closed(now)
    if kinds == {"MemoryGuard"}:
        most = int(np.where(after.candidates, after.free_mib, 0).max(initial=0))
        wanted = int(after.needed_mib[after.candidates].min(initial=1 << 40))
        return says.MEMORY_LEFT(needed_mib=wanted, left_mib=max(0, most))
    if "CPUOrMemoryShort" in kinds and (more_free or ask.mode != "Exclusive"):
        full = bool((after.columns.pods_free[_free(after) >= ask.gpu.count] <= 0).all())
        return says.WITH_ROOM_FOR_A_POD() if full else says.WITH_HOST(**_host(ask))
    if "ShareShort" in kinds and kinds <= {"ShareShort", "DevicesBusy"}:
        best = int(np.where(after.candidates, after.columns.share_left, 0).max(initial=0))
        return says.SHARE_LEFT(share=best / WHOLE_MILLI)
    if "TenantLimit" in kinds and kinds <= {"TenantLimit", "DevicesBusy"}:
        return says.COLON() + no_tenant(ask)
    return NOTHING


def _closed(judged: Judgement) -> Sentence:
    """Why the candidates take no work: the first cause in a sentence, and how many more there are.

    What an administrator must repair comes before a node that is not ready, which ends by itself.
    """
    rows = np.flatnonzero(judged.candidates.any(axis=1)).tolist()
    found = [each for row in rows for each in _causes(judged, row=row)]
    found.sort(key=lambda each: each[0].cause == "NodeNotReady")
    said = (cause.on(node, index=index) for cause, node, index in found)
    first, *others = {each.message: each for each in said}.values() or [says.OTHERS_CLOSED()]
    return first + says.AND_MORE(count=len(others)) if others else first


def _causes(judged: Judgement, *, row: int) -> list[tuple[Unavailable, str, int | None]]:
    """The causes of a node's candidates with node and index: that of the node, or else one of each device."""
    node = judged.nodes[row]
    facts = judged.ledger.facts(node)
    of_node = None if facts is None else first_of(facts.unavailable, causes=BLOCKING | CORDONED_NODE)
    if of_node is not None:
        return [(of_node, node, None)]
    devices: list[DeviceFacts] = [
        device
        for device, candidate in zip(judged.ledger.devices(node), judged.candidates[row].tolist(), strict=False)
        if candidate
    ]
    return [(in_order(each.unavailable)[0], node, each.index) for each in devices if each.unavailable]


def _kinds(judged: Judgement) -> set[RefusalKind]:
    """Why nodes refuse, without the nodes that never could run the job."""
    causes = np.unique(judged.first_cause[judged.first_cause >= 0]).tolist()
    kinds = {judged.outline(cause, node="").kind for cause in causes}
    return kinds - {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "TooFewDevices", "DeviceIndex"}


def _exceeds(judged: Judgement, *, gpu: GPURequest, workers: int, most_on_one: int, capacity: int) -> Sentence:
    wanted, profile, host = gpu.count * workers, gpu.mig, _host(judged.ask)
    if most_on_one >= gpu.count:
        need = says.NEED(count=wanted, available=capacity * gpu.count, profile=profile)
        apart = says.ON_OWN_NODES() if judged.ask.apart else NOTHING
        if capacity < int(workers_without_host(judged, gpu=gpu).sum()):
            together = says.TOGETHER_WITH_HOST
            return need + together(capacity=capacity, workers=workers, count=gpu.count, profile=profile, **host) + apart
        return need + says.TOGETHER(capacity=capacity, workers=workers, count=gpu.count, profile=profile) + apart
    most = int(count_devices(judged.indexed_devices).max(initial=0))
    if 0 < most < gpu.count:
        need = says.NEED(count=gpu.count, available=most, profile=profile)
        return need + says.ON_ONE_NODE() + says.LARGEST_EVER(most=most)
    if most_on_one > 0:
        need = says.NEED(count=gpu.count, available=most_on_one, profile=profile)
        return (need + says.ON_ONE_NODE() + says.WITH_HOST(**host)).with_reason(EXCEEDS_CAPACITY.code)
    need = says.NEED(count=wanted, available=0, profile=profile)
    return need + says.COLON() + _nothing_like_it(judged, gpu=gpu)


def _nothing_like_it(judged: Judgement, *, gpu: GPURequest) -> Sentence:
    """Why no device qualifies, and the nearest one that exists."""
    ledger = judged.ledger
    nodes = [name for name, right in zip(judged.nodes, judged.right_kind, strict=True) if right]
    there = [device for name in nodes for device in ledger.devices(name)]
    if gpu.mig and not there:
        return _no_such_profile(judged, profile=gpu.mig)
    if not there:
        return _no_such_nodes(judged)
    if gpu.vendor is not None and all(device.vendor != gpu.vendor for device in there):
        return says.NO_VENDOR(vendor=gpu.vendor, vendors=_listed(device.vendor for device in there))
    if not judged.candidates.any():
        return _no_such_model(judged, gpu=gpu, there=[device.model for device in there])
    if not judged.sized_devices.any():
        most = int(np.where(judged.candidates, judged.usable_mib, 0).max())
        if gpu.memory_percent is not None:
            return says.NO_SUCH_MEMORY_SHARE(percent=gpu.memory_percent, most_mib=most)
        return says.NO_SUCH_MEMORY(needed_mib=gpu.memory_mib or 0, most_mib=most)
    if gpu.device_index is not None and not judged.indexed_devices.any():
        return _no_such_index(judged, gpu=gpu, index=gpu.device_index)
    return says.NO_HOST(**_host(judged.ask))


def _no_such_index(judged: Judgement, *, gpu: GPURequest, index: int) -> Sentence:
    if gpu.device_node is not None and not judged.devices_of_named_node.any():
        return says.DEVICE_NOWHERE(device=str(gpu.device))
    most = int(np.where(judged.devices_of_named_node, judged.columns.index, 0).max())
    if gpu.device_node is None:
        return says.NO_INDEX(index=index, highest=most)
    return says.NO_INDEX_ON_NODE(node=gpu.device_node, index=index, highest=most)


def _no_such_model(judged: Judgement, *, gpu: GPURequest, there: Sequence[str]) -> Sentence:
    columns, within = judged.columns, within_models(gpu)
    wanted = np.isin(columns.model, judged.ledger.model_codes(gpu.admits))
    elsewhere = (wanted & columns.present & (columns.resource > 0)[:, np.newaxis]).any()
    models = " or ".join(gpu.models)
    if elsewhere and not judged.ask.resource:
        what = says.MODELS(models=models) if models else says.A_GPU() + within
        return what + says.BY_PLUGIN_ALONE()
    if gpu.min_nominal_gb is not None:
        of_any_size = replace(gpu, min_nominal_gb=None)
        alike = judged.of_vendor & np.isin(columns.model, judged.ledger.model_codes(of_any_size.admits))
        if sizes := nominal_sizes(judged.ledger, models=columns.model[alike]):
            return says.NO_GPU_OF() + of_models(gpu) + within + says.THERE_IS(found=sizes)
    kind = says.NO_MODEL(models=models) if models else says.NO_GPU_OF()
    near = (nearest(model, known=there, cutoff=_ALIKE) for model in gpu.models)
    meant = next((says.DID_YOU_MEAN(model=model) for model in near if model), NOTHING)
    return kind + within + says.THERE_IS(found=_listed(there)) + meant


def _no_such_nodes(judged: Judgement) -> Sentence:
    """Why no node serves devices in the way that the job asks for them."""
    if judged.ask.resource:
        return says.NOT_ADVERTISED(resource=judged.ask.resource)
    if any(judged.ledger.devices(name) for name in judged.nodes):
        return says.NODES_BY_PLUGIN()
    return says.NO_GPU_REPORTED() if judged.ledger.one_machine() is None else says.NO_GPU_ON_MACHINE()


def _no_such_profile(judged: Judgement, *, profile: str) -> Sentence:
    """That no node has instances of the profile, and the profiles that there are."""
    if profile in judged.profiles:
        return says.NO_PROFILE_ALLOWED(profile=profile)
    if not judged.profiles:
        return says.NO_PROFILE_AT_ALL(profile=profile)
    return says.NO_PROFILE(profile=profile, profiles=", ".join(judged.profiles))


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _host(ask: Ask) -> dict[str, int]:
    """What a worker takes of its node, as parameters."""
    return {"cpu_milli": ask.cpu_milli, "memory_mib": ask.memory_mib}


def _host_short(ask: Ask, *, workers: int) -> Sentence:
    if workers == 1:
        return says.HOST_SHORT(**_host(ask))
    return says.HOST_SHORT_EACH(workers=workers, **_host(ask))


def devices_on_empty(judged: Judgement) -> Ints:
    """How many matching devices each node has, if the node is large enough for one worker, [n]."""
    columns, ask = judged.columns, judged.ask
    host_ok = (columns.cpu_milli >= ask.cpu_milli) & (columns.memory_mib >= ask.memory_mib)
    return np.where(host_ok & columns.known, count_devices(judged.indexed_devices), 0)


def workers_on_empty(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """How many workers each node could run if it were empty, [n].

    An upper bound: a job that exceeds it can never run, so it must not be too low.
    """
    columns, ask = judged.columns, judged.ask
    workers = workers_without_host(judged, gpu=gpu)
    for each, in_all in ((ask.cpu_milli, columns.cpu_milli), (ask.memory_mib, columns.memory_mib)):
        if each:
            workers = np.minimum(workers, in_all // each)
    return workers


def workers_without_host(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """The same if CPU and memory did not matter, [n]. A device can serve several workers, each of them once."""
    columns = judged.columns
    places = np.where(judged.indexed_devices, _places(judged, gpu=gpu), 0)
    most = places.sum(axis=1) // gpu.count
    while True:
        fewer = np.minimum(places, most[:, np.newaxis]).sum(axis=1) // gpu.count
        if (fewer >= most).all():
            break
        most = fewer
    return np.where(columns.known, np.minimum(most, 1 if judged.ask.apart else columns.pods), 0)


def _places(judged: Judgement, *, gpu: GPURequest) -> Ints:
    """How many such tenants an empty device takes, [n, d]."""
    ask, columns = judged.ask, judged.columns
    if ask.mode == "Exclusive":
        return np.ones_like(columns.total)
    most = judged.ledger.limits.turns_per_device if ask.mode == "TimeShared" else WHOLE_MILLI // gpu.share_milli
    of_share = judged.usable_mib * gpu.share_milli // WHOLE_MILLI
    needed = of_share if judged.asked_mib is None else judged.asked_mib
    # Tenants that move to the host in turns do not add up.
    by_memory = np.where(judged.movable[:, np.newaxis], most, judged.usable_mib // np.maximum(1, needed))
    places = np.minimum(most, by_memory)
    if ask.workload is not None:
        limit = columns.training_limit if ask.workload == "Training" else columns.inference_limit
        # An administrator may set a limit to 0 for a time, as with a cordon.
        places = np.minimum(places, np.maximum(1, limit))
    return np.asarray(places)
