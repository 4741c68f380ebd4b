"""Refusals in words: one sentence with a node's numbers, and one text that all nodes with this cause share."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dovetail.api.reasons import capacity
from dovetail.api.reasons import refusals as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.reasons.end import IN_WORDS
from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, BROKEN, CLOSED, CORDONED_NODE, Unavailable, first_of
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Ints
from dovetail.engine.model.refusals import Refusal, RefusalKind
from dovetail.gpu.memory import HOST_MARGIN_MIB
from dovetail.gpu.request import GPURequest

# Refusals whose words depend on the node's own devices.
OF_DEVICES: Final[frozenset[RefusalKind]] = frozenset({"Unhealthy", "Cordoned"})


def refusal(kind: RefusalKind, *, masks: Feasibility, row: int, left: int) -> Refusal:
    """The refusal of one node. `left` is how many of its devices pass this cause and those before it."""
    shared = own_words(kind, ledger=masks.ledger, name=masks.nodes[row], ask=masks.ask)
    own = _with_numbers(kind, masks=masks, row=row, left=left)
    return refused(kind, node=masks.nodes[row], own=own, shared=shared)


def refused(kind: RefusalKind, *, node: str, own: Sentence, shared: Sentence) -> Refusal:
    """The refusal of one node in its own words, and in those that all nodes of the cause share."""
    message = f"{node}: {own.message}"
    return Refusal(kind=kind, message=message, text=shared.message, details=own.clauses, text_details=shared.clauses)


def node_words(ledger: Ledger, *, name: str) -> Sentence:
    """Why a node takes no pods at all now."""
    facts, obstacle = ledger.facts(name), ledger.obstacle(name)
    blocking = None if facts is None else first_of(facts.unavailable, causes=BLOCKING)
    if obstacle:
        return says.NODE_UNKNOWN() if blocking is None or blocking.text != obstacle else blocking.shared
    cordon = None if facts is None else first_of(facts.unavailable, causes=CORDONED_NODE)
    return NOTHING if cordon is None else cordon.shared


def device_cause(ledger: Ledger, *, name: str, kind: RefusalKind) -> tuple[Unavailable, int] | None:
    """Why devices of a node are unhealthy or cordoned: the first cause, with the index of the device."""
    causes = BROKEN if kind == "Unhealthy" else CLOSED
    found = (
        (cause, each.index) for each in ledger.devices(name) if (cause := first_of(each.unavailable, causes=causes))
    )
    return next(found, None)


def own_words(kind: RefusalKind, *, ledger: Ledger, name: str, ask: Ask) -> Sentence:
    """The words of `ask_words`, with the cause where devices of the node are unhealthy or cordoned."""
    found = device_cause(ledger, name=name, kind=kind) if kind in OF_DEVICES and not ask.resource else None
    words = ask_words(kind, ask=ask)
    return words if found is None or found[0].cause == "Cordoned" else words + capacity.COLON() + found[0].shared


def gpus(count: int, *, profile: str = "") -> str:
    """`1 GPU`, `4 GPUs`; with the profile of MIG instances `4 instances of 1g.10gb`."""
    unit = f"{'instance' if count == 1 else 'instances'} of {profile}" if profile else "GPU" if count == 1 else "GPUs"
    return f"{count} {unit}"


def need(count: int, *, available: int, profile: str = "") -> str:
    """The beginning of every shortage: `Need 4 GPUs, only 1 available`."""
    return capacity.NEED(count=count, available=available, profile=profile).message


def ask_words(kind: RefusalKind, *, ask: Ask) -> Sentence:
    """The words that all nodes share that refuse an ask for this cause."""
    if kind == "CPUOrMemoryShort" or ask.gpu is None:
        return says.HOST_TOO_SMALL()
    return _SHARED[kind](ask, ask.gpu)


def _of_size(gpu: GPURequest) -> Sentence:
    """` of at least 32 GB`; empty for a request that says no nominal size."""
    return NOTHING if gpu.min_nominal_gb is None else capacity.OF_AT_LEAST(gb=gpu.min_nominal_gb)


def _with_memory(gpu: GPURequest) -> Sentence:
    """The memory that a request takes of a GPU; empty for one that names none."""
    if not gpu.names_memory:
        return NOTHING
    if gpu.memory_percent is not None:
        return says.WITH_MEMORY_SHARE(percent=gpu.memory_percent)
    return says.WITH_MEMORY(memory_mib=gpu.memory_mib or 0)


def of_models(gpu: GPURequest) -> Sentence:
    """The models of a request: ` of model V100 or A100`."""
    return capacity.OF_MODEL(models=" or ".join(gpu.models)) if gpu.models else NOTHING


def within_models(gpu: GPURequest) -> Sentence:
    """What a request excludes, and its nominal size: ` but V100M16 of at least 32 GB`."""
    excluded = capacity.BUT_MODEL(models=" and ".join(gpu.excluded_models)) if gpu.excluded_models else NOTHING
    return excluded + _of_size(gpu)


def nominal_sizes(ledger: Ledger, *, models: Ints) -> str:
    """`16 GB, 80 GB`: the nominal sizes of the models with these codes, [codes]."""
    sizes = sorted({ledger.nominal_gb(code) for code in np.unique(models).tolist()})
    return ", ".join(f"{size} GB" for size in sizes)


def no_tenant(ask: Ask) -> Sentence:
    """Why no device takes one more tenant: no turn, or no place for the ask's workload, is free."""
    if ask.workload is None:
        return capacity.TURNS_TAKEN()
    of_both = capacity.TURNS_OR_WORKLOAD if ask.mode == "TimeShared" else capacity.WORKLOAD_FULL
    return of_both(workload=ask.workload)


def _fewer(gpu: GPURequest) -> Sentence:
    return says.FEWER(count=gpu.count, profile=gpu.mig)


# What nodes share that refuse a request for devices, by the cause.
_SHARED: Final[Mapping[RefusalKind, Callable[[Ask, GPURequest], Sentence]]] = {
    "NoGPU": lambda _, gpu: says.NO_INSTANCE(profile=gpu.mig) if gpu.mig else says.NO_GPU(),
    "NotManaged": lambda ask, _: says.NO_RESOURCE(resource=ask.resource) if ask.resource else says.NOT_MANAGED(),
    "WrongVendor": lambda _, gpu: says.WRONG_VENDOR(vendor=str(gpu.vendor)),
    "WrongModel": lambda _, gpu: says.WRONG_MODEL() + of_models(gpu) + within_models(gpu),
    "TooFewDevices": lambda _, gpu: _fewer(gpu) + _of_size(gpu) + _with_memory(gpu),
    "DeviceIndex": lambda _, gpu: says.WRONG_INDEX(device=str(gpu.device)),
    "Unhealthy": lambda _, gpu: _fewer(gpu) + says.HEALTHY(),
    "Cordoned": lambda ask, gpu: says.COULD_BE_CORDONED() if ask.resource else _fewer(gpu) + says.NOT_CORDONED(),
    "DevicesBusy": lambda _, gpu: says.BUSY(count=gpu.count, profile=gpu.mig),
    "ModeConflict": lambda ask, _: says.OTHER_MODE(mode=ask.mode),
    "TenantLimit": lambda ask, _: no_tenant(ask),
    "ShareShort": lambda _, gpu: says.NO_SHARE(share=gpu.share_milli / 1000),
    "MemoryGuard": lambda _, gpu: says.NO_MEMORY() + _of_size(gpu) + _with_memory(gpu),
    "Held": lambda _ask, _gpu: says.HELD(),
    "Quota": lambda _ask, _gpu: says.BEYOND_QUOTA(),
}


def _tenant_message(masks: Feasibility, *, row: int) -> Sentence:
    columns, ask = masks.columns, masks.ask
    if ask.workload is None:
        return no_tenant(ask)
    limits = columns.training_limit if ask.workload == "Training" else columns.inference_limit
    return no_tenant(ask) + says.MOST_TENANTS(most=int(limits[row][columns.present[row]].max()))


def _not_movable(masks: Feasibility, *, row: int) -> str:
    """Why this tenant cannot move to the host, where others do; empty where it can."""
    ask, columns = masks.ask, masks.columns
    if ask.mode != "TimeShared" or masks.movable[row] or not columns.movable[row].any():
        return ""
    needed = int(masks.host_needed_mib[row]) + HOST_MARGIN_MIB
    if ask.host_room_mib + HOST_MARGIN_MIB >= needed:
        return ""
    return says.MUST_BE_MOVABLE(needed_mib=needed).message


def _with_numbers(kind: RefusalKind, *, masks: Feasibility, row: int, left: int) -> Sentence:
    columns, ask, name = masks.columns, masks.ask, masks.nodes[row]
    if kind == "CPUOrMemoryShort" and columns.pods_free[row] <= 0:
        return says.PODS_FULL(pods=int(columns.pods[row]))
    if kind == "CPUOrMemoryShort" or ask.gpu is None:
        return says.HOST_FREE(
            cpu_milli=ask.cpu_milli,
            memory_mib=ask.memory_mib,
            free_cpu_milli=int(columns.cpu_free[row]),
            free_memory_mib=int(columns.memory_free[row]),
        )
    present = columns.present[row]
    if kind == "ShareShort":
        best = int(columns.share_left[row][present].max())
        return says.SHARE_FREE(share=ask.gpu.share_milli / 1000, left=best / 1000)
    if kind == "MemoryGuard":
        most = max(0, int(masks.free_mib[row][present].max()))
        wanted = int(masks.needed_mib[row][present].min())
        note = masks.ledger.unmeasured_reason(name) or _not_movable(masks, row=row)
        found = says.MEMORY_FREE(needed_mib=wanted, left_mib=most)
        return found + IN_WORDS(word=note) if note else found
    count = int(present.sum())
    if kind == "TenantLimit":
        return _tenant_message(masks, row=row) + says.OF_SO_MANY(count=count, profile="")
    if kind == "WrongModel" and ask.gpu.min_nominal_gb is not None:
        there = nominal_sizes(masks.ledger, models=columns.model[row][present])
        return ask_words(kind, ask=ask) + says.OF_SIZES(count=count, sizes=there)
    if kind in {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "DeviceIndex", "ModeConflict"}:
        return ask_words(kind, ask=ask) + says.OF_SO_MANY(count=count, profile=ask.gpu.mig)
    closed = device_cause(masks.ledger, name=name, kind=kind) if kind in OF_DEVICES and not ask.resource else None
    why = ask_words(kind, ask=ask) if closed is None else closed[0].on(name, index=closed[1])
    return capacity.NEED(count=ask.gpu.count, available=left, profile=ask.gpu.mig) + capacity.COLON() + why
