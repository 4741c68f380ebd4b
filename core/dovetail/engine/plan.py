"""Placing all workers of one job, or the shortage in one sentence. Never mutates the ledger that it is given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.gpujob import Reason
from dovetail.engine.claims import Ask, Claim
from dovetail.engine.fit import Fit, Judgement, check
from dovetail.engine.ledger import Ledger
from dovetail.engine.refusals import RefusalKind
from dovetail.engine.score import rank
from dovetail.engine.sentences import gpus, need
from dovetail.requests import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a job cannot start now: a reason of the closed set and a sentence with numbers."""

    reason: Reason
    message: str


def place(
    ledger: Ledger, ask: Ask, *, workers: int, key: str, nodes: Sequence[str] | None = None
) -> list[Claim] | Shortage:
    """Claims for all workers, keyed `key/0`, `key/1`, …, or the shortage; all of them or none.

    `nodes` are those that the job may go to, all by default.
    """
    scratch = ledger if workers == 1 else ledger.copy()
    nodes = ledger.nodes() if nodes is None else nodes
    claims: list[Claim] = []
    for worker in range(workers):
        claim = _best(scratch, ask, nodes=nodes, key=f"{key}/{worker}")
        if claim is None:
            return _shortage(ledger, ask, nodes=nodes, workers=workers)
        claims.append(claim)
        if workers > 1:
            scratch.commit(claim)
    return claims


def _best(ledger: Ledger, ask: Ask, *, nodes: Sequence[str], key: str) -> Claim | None:
    judged = Judgement(ledger, ask, nodes=nodes, key=key)
    fits = [name for name, fit in zip(nodes, judged.fits.tolist(), strict=True) if fit]
    if not fits:
        return None
    scores = rank(ledger, ask, nodes=fits, key=key)
    found = check(ledger, ask, node=fits[int(np.argmax(scores))], key=key)
    assert isinstance(found, Fit), "a node that fits has devices"
    return found.claim


def _shortage(ledger: Ledger, ask: Ask, *, nodes: Sequence[str], workers: int) -> Shortage:
    judged = Judgement(ledger, ask, nodes=nodes, key="")
    kinds: dict[RefusalKind, int] = {}
    for row in np.flatnonzero(~judged.fits):
        refusal = judged.refusal(int(row))
        assert refusal is not None, "a node that does not fit has a refusal"
        kinds[refusal.kind] = kinds.get(refusal.kind, 0) + 1
    if ask.gpu is None:
        return Shortage(reason="Resources", message=_host_message(ask, workers=workers))
    return _gpu_shortage(judged, ask.gpu, kinds=kinds, workers=workers)


def _gpu_shortage(judged: Judgement, gpu: GPURequest, *, kinds: Mapping[RefusalKind, int], workers: int) -> Shortage:
    wanted = gpu.count * workers
    most_on_one, in_all, capacity = _ever(judged, gpu)
    if most_on_one < gpu.count or capacity < workers:
        return Shortage(
            reason="ExceedsCapacity",
            message=_exceeds(judged, gpu, workers=workers, most_on_one=most_on_one, in_all=in_all, capacity=capacity),
        )
    free = judged.free_devices.sum(axis=1)
    free_in_all, free_on_one = int(free.sum()), int(free.max(initial=0))
    message = need(wanted, min(free_in_all, wanted - 1)) if free_in_all < wanted else ""
    if not message and free_on_one < gpu.count:
        return Shortage(
            reason="Fragmentation",
            message=f"{need(gpu.count, free_on_one)} on one node: {gpus(free_in_all)} are free, but not together",
        )
    return _other_shortage(judged, gpu, kinds=kinds, message=message or need(wanted, _placeable(free, gpu)))


def _other_shortage(judged: Judgement, gpu: GPURequest, *, kinds: Mapping[RefusalKind, int], message: str) -> Shortage:
    told = {kind for kind in kinds if kind not in {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "TooFewDevices"}}
    if told and told <= {"Unhealthy", "Cordoned"}:
        return Shortage(reason="NodeUnhealthy", message=f"{message}: the others are unhealthy or cordoned")
    if told == {"MemoryGuard"}:
        most = int(np.where(judged.candidates, judged.free_mib, 0).max(initial=0))
        wanted = gpu.memory_mib or int(judged.needed_mib[judged.candidates].min(initial=1 << 40))
        return Shortage(
            reason="MemoryGuard",
            message=f"{message}: need {wanted} MiB of memory on a GPU, the most left on one is {max(0, most)} MiB",
        )
    if told == {"CPUOrMemoryShort"}:
        return Shortage(reason="Resources", message=f"{message} with {_host(judged.ask)} beside them")
    if not gpu.whole:
        best = int(np.where(judged.candidates, judged.columns.share_left, 0).max(initial=0))
        return Shortage(
            reason="Resources", message=f"{message}: the largest share left on one is {best / WHOLE_MILLI:g}"
        )
    return Shortage(reason="Resources", message=message)


def _placeable(free: np.typing.NDArray[np.int64], gpu: GPURequest) -> int:
    """GPUs that whole workers could take now."""
    return int((free // gpu.count).sum()) * gpu.count


def _ever(judged: Judgement, gpu: GPURequest) -> tuple[int, int, int]:
    """On an empty cluster: the most devices of this kind on one node, in all, and how many workers would fit."""
    columns = judged.columns
    host_ok = (columns.cpu_milli >= judged.ask.cpu_milli) & (columns.memory_mib >= judged.ask.memory_mib)
    per_node = np.where(host_ok & columns.managed & columns.known, judged.indexed_devices.sum(axis=1), 0)
    layers = 1 if gpu.whole else WHOLE_MILLI // gpu.share_milli
    # Shares of one device go to different workers; one worker's devices are distinct.
    workers = per_node * layers if gpu.count == 1 else (per_node // gpu.count) * layers
    return int(per_node.max(initial=0)), int(per_node.sum()), int(workers.sum())


def _exceeds(judged: Judgement, gpu: GPURequest, *, workers: int, most_on_one: int, in_all: int, capacity: int) -> str:
    wanted = gpu.count * workers
    if most_on_one >= gpu.count:
        return (
            f"{need(wanted, in_all)}: at most {capacity} of {workers} workers with {gpus(gpu.count)} each could ever "
            "run together"
        )
    most = int(judged.indexed_devices.sum(axis=1).max(initial=0))
    if 0 < most < gpu.count:
        return f"{need(gpu.count, most)} on one node: the largest request that could ever fit is {most}"
    if most_on_one > 0:
        return f"{need(gpu.count, most_on_one)} on one node with {_host(judged.ask)} beside them"
    return f"{need(wanted, 0)}: {_nothing_like_it(judged, gpu)}"


def _nothing_like_it(judged: Judgement, gpu: GPURequest) -> str:
    """Why not one device will ever do, and the nearest that there is."""
    ledger = judged.ledger
    there = [device for name in judged.nodes for device in ledger.devices(name)]
    if not there:
        return "no node reports a GPU"
    if gpu.vendor is not None and all(device.vendor != gpu.vendor for device in there):
        return f"no node has vendor {gpu.vendor}, there is {_listed(device.vendor for device in there)}"
    if not judged.candidates.any():
        return f"no node has model {' or '.join(gpu.models)}, there is {_listed(device.model for device in there)}"
    if not judged.sized_devices.any():
        most = int(np.where(judged.candidates, judged.usable_mib, 0).max())
        return f"need {gpu.memory_mib} MiB on a GPU, the largest that could ever be promised is {most} MiB"
    if gpu.device_index is not None and not judged.indexed_devices.any():
        most = int(np.where(judged.sized_devices, judged.columns.index, 0).max())
        return f"no node has a device cuda:{gpu.device_index}, the highest is cuda:{most}"
    return f"no node has the {_host(judged.ask)} beside its GPUs"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _host(ask: Ask) -> str:
    return f"{ask.cpu_milli}m CPU and {ask.memory_mib} MiB of memory"


def _host_message(ask: Ask, *, workers: int) -> str:
    each = "" if workers == 1 else f" for each of {workers} workers"
    return f"Need {_host(ask)}{each}, no node has it available"
