"""Placing all workers of one job, or the shortage in one sentence. The ledger is the same before and after."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.gpujob import Reason
from dovetail.engine.filter.empty_capacity import devices_on_empty, workers_on_empty, workers_without_host
from dovetail.engine.filter.fit import Fit, Judgement
from dovetail.engine.filter.messages import gpus, need, tenants_text
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import NOT_READY
from dovetail.engine.model.refusals import RefusalKind
from dovetail.engine.score.fit_cache import Shapes
from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a job cannot start now: a reason of the closed set and a sentence with numbers."""

    reason: Reason
    message: str


def place(
    ledger: Ledger,
    ask: Ask,
    *,
    workers: int,
    key: str,
    nodes: Sequence[str] | None = None,
    shapes: Shapes | None = None,
    least: int | None = None,
) -> list[Claim] | Shortage:
    """Claims for all workers, keyed `key/0`, `key/1`, …, or the shortage; all of them or none.

    With `least` also for fewer, as many as there is room for, but for no fewer than that.

    `nodes` are those that the job may go to, all by default. `shapes` of the same ledger spare the work of many jobs
    alike. The ledger is as before when this returns: workers that are tried on it are taken back.
    """
    nodes = ledger.nodes() if nodes is None else nodes
    shapes = shapes or Shapes(ledger)
    claims: list[Claim] = []
    if ask.apart:
        return _place_apart(ledger, ask, workers=workers, key=key, nodes=nodes, shapes=shapes, least=least or workers)
    try:
        while len(claims) < workers:
            claim = _best(ledger, ask, nodes=nodes, key=f"{key}/{len(claims)}", shapes=shapes)
            if claim is None:
                break
            claims.append(claim)
            ledger.commit(claim)
        after = None if len(claims) >= (least or workers) else Judgement(ledger, ask, nodes=nodes, key="")
    finally:
        for claim in claims:
            ledger.release(claim.key)
    if after is None:
        return claims
    now = Judgement(ledger, ask, nodes=nodes, key="")
    return _shortage(now, after, workers=least or workers, placed=len(claims))


def _place_apart(
    ledger: Ledger, ask: Ask, *, workers: int, key: str, nodes: Sequence[str], shapes: Shapes, least: int
) -> list[Claim] | Shortage:
    """The same for workers that take a node each: none is in another's way, so the best nodes for one will do."""
    claims = []
    for number, node in enumerate(shapes.best(ask, nodes=nodes, key=f"{key}/0", limit=workers)):
        found = shapes.check(ask, node=node, key=f"{key}/{number}")
        assert isinstance(found, Fit), "a node that fits has devices"
        claims.append(found.claim)
    if len(claims) >= least:
        return claims
    now = Judgement(ledger, ask, nodes=nodes, key="")
    return _shortage(now, now, workers=least, placed=len(claims))


def _best(ledger: Ledger, ask: Ask, *, nodes: Sequence[str], key: str, shapes: Shapes) -> Claim | None:
    assert ledger.claim(key) is None, "a plan's keys are its own"
    for node in shapes.best(ask, nodes=nodes, key=key, limit=1):
        found = shapes.check(ask, node=node, key=key)
        assert isinstance(found, Fit), "a node that fits has devices"
        return found.claim
    return None


def _shortage(now: Judgement, after: Judgement, *, workers: int, placed: int) -> Shortage:
    """Why not all workers fit. `after` judges what `placed` of them would leave to the next one."""
    gpu = now.ask.gpu
    if gpu is None:
        return Shortage(reason="Resources", message=_host_message(now.ask, workers=workers))
    wanted = gpu.count * workers
    most_on_one, capacity = int(devices_on_empty(now).max(initial=0)), int(workers_on_empty(now, gpu).sum())
    if most_on_one < gpu.count or capacity < workers:
        return Shortage(
            reason="ExceedsCapacity",
            message=_exceeds(now, gpu, workers=workers, most_on_one=most_on_one, capacity=capacity),
        )
    free = _free(now)
    free_in_all, free_on_one = int(free.sum()), int(free.max(initial=0))
    if free_on_one < gpu.count and wanted <= free_in_all:
        return Shortage(
            reason="Fragmentation",
            message=f"{need(gpu.count, free_on_one)} on one node: {gpus(free_in_all)} are free, but not together",
        )
    if workers > 1 and (now.ask.mode != "Exclusive" or wanted <= free_in_all):
        available = gpu.count * placed
    else:
        available = free_in_all if free_in_all < wanted else int(free[now.host_fits].max(initial=0))
    if now.ask.apart and wanted <= free_in_all:
        on_others = f"{gpus(free_in_all)} are free, but each worker takes a node of its own"
        return Shortage(reason="Resources", message=f"{need(wanted, available)}: {on_others}")
    return _other_shortage(now, after, message=need(wanted, available), beside=available < free_in_all)


def _free(judged: Judgement) -> np.typing.NDArray[np.int64]:
    """How many devices of each node could take the ask now, whatever CPU and memory there is beside them."""
    columns = judged.columns
    takes = columns.known & ~columns.blocked & ~columns.node_cordoned
    return np.where(takes, judged.free_devices.sum(axis=1), 0)


def _other_shortage(now: Judgement, after: Judgement, *, message: str, beside: bool) -> Shortage:
    """The shortage that begins with `message`. `beside` says that more GPUs are free than were counted there."""
    told, ask = _kinds(after), now.ask
    assert ask.gpu is not None, "only asked where a device is wanted"
    if _kinds(now) and _kinds(now) <= {"Unhealthy", "Cordoned"}:
        others = f"the others are unhealthy or cordoned{_closed(now)}"
        return Shortage(reason="NodeUnhealthy", message=f"{message}: {others}")
    if told == {"MemoryGuard"}:
        most = int(np.where(after.candidates, after.free_mib, 0).max(initial=0))
        wanted = ask.gpu.memory_mib or int(after.needed_mib[after.candidates].min(initial=1 << 40))
        return Shortage(
            reason="MemoryGuard",
            message=f"{message}: need {wanted} MiB of memory on a GPU, the most left on one is {max(0, most)} MiB",
        )
    if "CPUOrMemoryShort" in told and (beside or ask.mode != "Exclusive"):
        full = bool((after.columns.pods_free[_free(after) >= ask.gpu.count] <= 0).all())
        beside_them = "on a node that takes one more pod" if full else f"with {_host(ask)} beside them"
        return Shortage(reason="Resources", message=f"{message} {beside_them}")
    if "ShareShort" in told and told <= {"ShareShort", "DevicesBusy"}:
        best = int(np.where(after.candidates, after.columns.share_left, 0).max(initial=0))
        return Shortage(
            reason="Resources", message=f"{message}: the largest share left on one is {best / WHOLE_MILLI:g}"
        )
    if "TenantLimit" in told and told <= {"TenantLimit", "DevicesBusy"}:
        return Shortage(reason="Resources", message=f"{message}: {tenants_text(ask)}")
    return Shortage(reason="Resources", message=message)


def _closed(judged: Judgement) -> str:
    """Which nodes with such devices are closed for a reason that only people can take away, and why the first is."""
    there = judged.columns.blocked & judged.candidates.any(axis=1)
    nodes = sorted(judged.nodes[row] for row in np.flatnonzero(there).tolist())
    told = [(name, text) for name in nodes if (text := judged.ledger.obstacle(name)) != NOT_READY]
    if not told:
        return ""
    (name, text), more = told[0], len(told) - 1
    also = f", and {more} more {'node' if more == 1 else 'nodes'}" if more else ""
    return f" ({name}: {text}{also})"


def _kinds(judged: Judgement) -> set[RefusalKind]:
    """Why nodes refuse, but for those that never come into question."""
    causes = np.unique(judged.first_cause[judged.first_cause >= 0]).tolist()
    kinds = {judged.outline(cause, node="").kind for cause in causes}
    return kinds - {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "TooFewDevices"}


def _exceeds(judged: Judgement, gpu: GPURequest, *, workers: int, most_on_one: int, capacity: int) -> str:
    wanted = gpu.count * workers
    if most_on_one >= gpu.count:
        beside = f", {_host(judged.ask)}" if capacity < int(workers_without_host(judged, gpu).sum()) else ""
        together = (
            f"at most {capacity} of {workers} workers with {gpus(gpu.count)}{beside} each could ever run together"
        )
        together += ", each on a node of its own" if judged.ask.apart else ""
        return f"{need(wanted, capacity * gpu.count)}: {together}"
    most = int(judged.indexed_devices.sum(axis=1).max(initial=0))
    if 0 < most < gpu.count:
        return f"{need(gpu.count, most)} on one node: the largest request that could ever fit is {most}"
    if most_on_one > 0:
        return f"{need(gpu.count, most_on_one)} on one node with {_host(judged.ask)} beside them"
    return f"{need(wanted, 0)}: {_nothing_like_it(judged, gpu)}"


def _nothing_like_it(judged: Judgement, gpu: GPURequest) -> str:
    """Why not one device will ever do, and the nearest that there is."""
    ledger = judged.ledger
    nodes = [name for name, right in zip(judged.nodes, judged.right_kind, strict=True) if right]
    there = [device for name in nodes for device in ledger.devices(name)]
    if not there:
        return _no_such_nodes(judged)
    if gpu.vendor is not None and all(device.vendor != gpu.vendor for device in there):
        return f"no node has vendor {gpu.vendor}, there is {_listed(device.vendor for device in there)}"
    if not judged.candidates.any():
        return _no_such_model(judged, gpu, there=[device.model for device in there])
    if not judged.sized_devices.any():
        most = int(np.where(judged.candidates, judged.usable_mib, 0).max())
        return f"need {gpu.memory_mib} MiB on a GPU, the largest that could ever be promised is {most} MiB"
    if gpu.device_index is not None and not judged.indexed_devices.any():
        most = int(np.where(judged.sized_devices, judged.columns.index, 0).max())
        return f"no node has a device cuda:{gpu.device_index}, the highest is cuda:{most}"
    return f"no node has the {_host(judged.ask)} beside its GPUs"


def _no_such_model(judged: Judgement, gpu: GPURequest, *, there: Iterable[str]) -> str:
    models, columns = " or ".join(gpu.models), judged.columns
    wanted = np.isin(columns.model, judged.ledger.model_codes([normalise(name) for name in gpu.models]))
    elsewhere = (wanted & columns.present & (columns.resource > 0)[:, np.newaxis]).any()
    if elsewhere and not judged.ask.resource:
        return f"{models} is served by a vendor's plugin alone, which gives whole ones only"
    return f"no node has model {models}, there is {_listed(there)}"


def _no_such_nodes(judged: Judgement) -> str:
    """Why no node has devices that are to be had as asked."""
    if judged.ask.resource:
        return f"no node advertises {judged.ask.resource}"
    if any(judged.ledger.devices(name) for name in judged.nodes):
        return "the nodes with GPUs are served by a vendor's plugin, which gives whole ones only"
    return "no node reports a GPU"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def _host(ask: Ask) -> str:
    return f"{ask.cpu_milli}m CPU and {ask.memory_mib} MiB of memory"


def _host_message(ask: Ask, *, workers: int) -> str:
    each = "" if workers == 1 else f" for each of {workers} workers"
    return f"Need {_host(ask)}{each}, no node has it available"
