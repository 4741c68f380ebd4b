"""Why the workers of a job do not fit: one reason of the closed set, and one sentence with numbers. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dovetail.api.gpujob import Reason
from dovetail.engine.filter.empty_capacity import devices_on_empty, workers_on_empty, workers_without_host
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.messages import gpus, kind_text, memory_text, need, nominal_sizes, tenants_text
from dovetail.engine.model.availability import BLOCKING, CORDONED_NODE, Unavailable, first_of, in_order
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.engine.model.refusals import RefusalKind
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a job cannot start now: a reason of the closed set and a sentence with numbers."""

    reason: Reason
    message: str


def shortage(now: Judgement, *, after: Judgement, workers: int, placed: int) -> Shortage:
    """Why not all workers fit. `after` judges the ledger with the `placed` workers on it, for the next worker."""
    gpu = now.ask.gpu
    if gpu is None:
        return Shortage(reason="Resources", message=_host_message(now.ask, workers=workers))
    wanted = gpu.count * workers
    most_on_one, capacity = int(devices_on_empty(now).max(initial=0)), int(workers_on_empty(now, gpu=gpu).sum())
    if most_on_one < gpu.count or capacity < workers:
        return Shortage(
            reason="ExceedsCapacity",
            message=_exceeds(now, gpu=gpu, workers=workers, most_on_one=most_on_one, capacity=capacity),
        )
    free = _free(now)
    free_in_all, free_on_one = int(free.sum()), int(free.max(initial=0))
    if free_on_one < gpu.count and wanted <= free_in_all:
        return Shortage(
            reason="Fragmentation",
            message=f"{need(gpu.count, available=free_on_one, profile=gpu.mig)} on one node: "
            f"{gpus(free_in_all, profile=gpu.mig)} are free, but not together",
        )
    if workers > 1 and (now.ask.mode != "Exclusive" or wanted <= free_in_all):
        available = gpu.count * placed
    else:
        available = free_in_all if free_in_all < wanted else int(free[now.host_fits].max(initial=0))
    if now.ask.apart and wanted <= free_in_all:
        on_others = f"{gpus(free_in_all, profile=gpu.mig)} are free, but each worker takes a node of its own"
        return Shortage(
            reason="Resources", message=f"{need(wanted, available=available, profile=gpu.mig)}: {on_others}"
        )
    return _other_shortage(
        now, after=after, message=need(wanted, available=available, profile=gpu.mig), more_free=available < free_in_all
    )


def _free(judged: Judgement) -> np.typing.NDArray[np.int64]:
    """How many devices of each node could take the ask now, whatever CPU and memory is left, [n]."""
    return np.where(judged.schedulable, judged.free_devices.sum(axis=1), 0)


def _other_shortage(now: Judgement, *, after: Judgement, message: str, more_free: bool) -> Shortage:
    """The shortage that begins with `message`. `more_free`: more GPUs are free than it counts."""
    kinds, ask = _kinds(after), now.ask
    assert ask.gpu is not None, "only asked where a device is wanted"
    if _kinds(now) and _kinds(now) <= {"Unhealthy", "Cordoned"}:
        return Shortage(reason="NodeUnhealthy", message=f"{message}: {_closed(now)}")
    if kinds == {"MemoryGuard"}:
        most = int(np.where(after.candidates, after.free_mib, 0).max(initial=0))
        wanted = int(after.needed_mib[after.candidates].min(initial=1 << 40))
        return Shortage(
            reason="MemoryGuard",
            message=f"{message}: need {wanted} MiB of memory on a GPU, the most left on one is {max(0, most)} MiB",
        )
    if "CPUOrMemoryShort" in kinds and (more_free or ask.mode != "Exclusive"):
        full = bool((after.columns.pods_free[_free(after) >= ask.gpu.count] <= 0).all())
        host_too = "on a node that takes one more pod" if full else f"with {_host(ask)} in addition"
        return Shortage(reason="Resources", message=f"{message} {host_too}")
    if "ShareShort" in kinds and kinds <= {"ShareShort", "DevicesBusy"}:
        best = int(np.where(after.candidates, after.columns.share_left, 0).max(initial=0))
        return Shortage(
            reason="Resources", message=f"{message}: the largest share left on one is {best / WHOLE_MILLI:g}"
        )
    if "TenantLimit" in kinds and kinds <= {"TenantLimit", "DevicesBusy"}:
        return Shortage(reason="Resources", message=f"{message}: {tenants_text(ask)}")
    return Shortage(reason="Resources", message=message)


def _closed(judged: Judgement) -> str:
    """Why the candidates take no work: the first cause in a sentence, and how many more there are.

    What an administrator must repair comes before a node that is not ready, which ends by itself.
    """
    rows = np.flatnonzero(judged.candidates.any(axis=1)).tolist()
    found = [each for row in rows for each in _causes(judged, row=row)]
    found.sort(key=lambda each: each[0].cause == "NodeNotReady")
    sentences = list(dict.fromkeys(cause.on(node, index=index) for cause, node, index in found))
    if not sentences:
        return "the others are unhealthy or cordoned"
    more = len(sentences) - 1
    return f"{sentences[0]}, and {more} more" if more else sentences[0]


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


def _exceeds(judged: Judgement, *, gpu: GPURequest, workers: int, most_on_one: int, capacity: int) -> str:
    wanted, profile = gpu.count * workers, gpu.mig
    if most_on_one >= gpu.count:
        with_host = f", {_host(judged.ask)}" if capacity < int(workers_without_host(judged, gpu=gpu).sum()) else ""
        each = f"{gpus(gpu.count, profile=profile)}{with_host} each"
        together = f"at most {capacity} of {workers} workers with {each} could ever run together"
        together += ", each on a node of its own" if judged.ask.apart else ""
        return f"{need(wanted, available=capacity * gpu.count, profile=profile)}: {together}"
    most = int(judged.indexed_devices.sum(axis=1).max(initial=0))
    if 0 < most < gpu.count:
        short = need(gpu.count, available=most, profile=profile)
        return f"{short} on one node: the largest request that could ever fit is {most}"
    if most_on_one > 0:
        short = need(gpu.count, available=most_on_one, profile=profile)
        return f"{short} on one node with {_host(judged.ask)} in addition"
    return f"{need(wanted, available=0, profile=profile)}: {_nothing_like_it(judged, gpu=gpu)}"


def _nothing_like_it(judged: Judgement, *, gpu: GPURequest) -> str:
    """Why no device qualifies, and the nearest one that exists."""
    ledger = judged.ledger
    nodes = [name for name, right in zip(judged.nodes, judged.right_kind, strict=True) if right]
    there = [device for name in nodes for device in ledger.devices(name)]
    if gpu.mig and not there:
        return _no_such_profile(judged, profile=gpu.mig)
    if not there:
        return _no_such_nodes(judged)
    if gpu.vendor is not None and all(device.vendor != gpu.vendor for device in there):
        return f"no node has vendor {gpu.vendor}, there is {_listed(device.vendor for device in there)}"
    if not judged.candidates.any():
        return _no_such_model(judged, gpu=gpu, there=[device.model for device in there])
    if not judged.sized_devices.any():
        most = int(np.where(judged.candidates, judged.usable_mib, 0).max())
        return f"need {memory_text(gpu)} on a GPU, the largest that could ever be promised is {most} MiB"
    if gpu.device_index is not None and not judged.indexed_devices.any():
        return _no_such_index(judged, gpu=gpu)
    return f"no node has the {_host(judged.ask)} in addition to its GPUs"


def _no_such_index(judged: Judgement, *, gpu: GPURequest) -> str:
    if gpu.device_node is not None and not judged.devices_of_named_node.any():
        return f"{gpu.device} is on no node with such a GPU"
    most = int(np.where(judged.devices_of_named_node, judged.columns.index, 0).max())
    where = "no node has a" if gpu.device_node is None else f"node {gpu.device_node} has no"
    return f"{where} device cuda:{gpu.device_index}, the highest is cuda:{most}"


def _no_such_model(judged: Judgement, *, gpu: GPURequest, there: Iterable[str]) -> str:
    columns = judged.columns
    wanted = np.isin(columns.model, judged.ledger.model_codes(gpu.admits))
    elsewhere = (wanted & columns.present & (columns.resource > 0)[:, np.newaxis]).any()
    if elsewhere and not judged.ask.resource:
        what = " or ".join(gpu.models) or f"a GPU{kind_text(gpu)}"
        return f"{what} is served by a vendor's plugin alone, which gives whole ones only"
    if gpu.min_nominal_gb is not None:
        of_any_size = replace(gpu, min_nominal_gb=None)
        alike = judged.of_vendor & np.isin(columns.model, judged.ledger.model_codes(of_any_size.admits))
        if sizes := nominal_sizes(judged.ledger, models=columns.model[alike]):
            return f"no node has a GPU{kind_text(gpu)}, there is {sizes}"
    kind = kind_text(gpu).removeprefix(" of") if gpu.models else f" a GPU{kind_text(gpu)}"
    return f"no node has{kind}, there is {_listed(there)}"


def _no_such_nodes(judged: Judgement) -> str:
    """Why no node serves devices in the way that the job asks for them."""
    if judged.ask.resource:
        return f"no node advertises {judged.ask.resource}"
    if any(judged.ledger.devices(name) for name in judged.nodes):
        return "the nodes with GPUs are served by a vendor's plugin, which gives whole ones only"
    return "no node reports a GPU"


def _no_such_profile(judged: Judgement, *, profile: str) -> str:
    """That no node has instances of the profile, and the profiles that there are."""
    if profile in judged.profiles:
        return f"none of the nodes that may be used has a MIG instance of {profile}"
    return f"no node has a MIG instance of {profile}, there is {', '.join(judged.profiles) or 'none of any profile'}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _host(ask: Ask) -> str:
    return f"{ask.cpu_milli}m CPU and {ask.memory_mib} MiB of memory"


def _host_message(ask: Ask, *, workers: int) -> str:
    each = "" if workers == 1 else f" for each of {workers} workers"
    return f"Need {_host(ask)}{each}, no node has it available"
