"""Refusals in words: one sentence with a node's numbers, and one text that all nodes with this cause share."""

from typing import Final

import numpy as np

from dovetail.api.reasons import capacity
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BROKEN, CLOSED, CORDONED_NODE, Unavailable, first_of
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Ints
from dovetail.engine.model.refusals import Refusal, RefusalKind
from dovetail.gpu.memory import HOST_MARGIN_MIB
from dovetail.gpu.request import GPURequest

# Refusals whose words depend on the node's own devices.
OF_DEVICES: Final[frozenset[RefusalKind]] = frozenset({"Unhealthy", "Cordoned"})


def refusal(kind: RefusalKind, *, masks: Feasibility, row: int, left: int) -> Refusal:
    """The refusal of one node. `left` is how many of its devices pass this cause and those before it."""
    message = _message(kind, masks=masks, row=row, left=left)
    text = own_text(kind, ledger=masks.ledger, name=masks.nodes[row], ask=masks.ask)
    return Refusal(kind=kind, text=text, message=message)


def node_text(ledger: Ledger, *, name: str) -> str:
    """Why a node takes no pods at all now."""
    facts = ledger.facts(name)
    cordon = None if facts is None else first_of(facts.unavailable, causes=CORDONED_NODE)
    return ledger.obstacle(name) or ("" if cordon is None else cordon.text)


def device_cause(ledger: Ledger, *, name: str, kind: RefusalKind) -> tuple[Unavailable, int] | None:
    """Why devices of a node are unhealthy or cordoned: the first cause, with the index of the device."""
    causes = BROKEN if kind == "Unhealthy" else CLOSED
    found = (
        (cause, each.index) for each in ledger.devices(name) if (cause := first_of(each.unavailable, causes=causes))
    )
    return next(found, None)


def own_text(kind: RefusalKind, *, ledger: Ledger, name: str, ask: Ask) -> str:
    """The words of `ask_text`, with the cause where devices of the node are unhealthy or cordoned."""
    found = device_cause(ledger, name=name, kind=kind) if kind in OF_DEVICES and not ask.resource else None
    text = ask_text(kind, ask=ask)
    return text if found is None or found[0].cause == "Cordoned" else f"{text}: {found[0].text}"


def gpus(count: int, *, profile: str = "") -> str:
    """`1 GPU`, `4 GPUs`; with the profile of MIG instances `4 instances of 1g.10gb`."""
    unit = f"{'instance' if count == 1 else 'instances'} of {profile}" if profile else "GPU" if count == 1 else "GPUs"
    return f"{count} {unit}"


def need(count: int, *, available: int, profile: str = "") -> str:
    """The beginning of every shortage: `Need 4 GPUs, only 1 available`."""
    return capacity.NEED(count=count, available=available, profile=profile).message


def ask_text(kind: RefusalKind, *, ask: Ask) -> str:
    """The words that all nodes share that refuse an ask for this cause."""
    if kind == "CPUOrMemoryShort" or ask.gpu is None:
        return "too little CPU or memory in addition to the GPUs"
    gpu = ask.gpu
    count = gpus(gpu.count, profile=gpu.mig)
    memory = size_text(gpu) + (f" with {memory_text(gpu)}" if gpu.names_memory else "")
    texts: dict[RefusalKind, str] = {
        "NoGPU": f"no MIG instance of {gpu.mig}" if gpu.mig else "no GPU reported",
        "NotManaged": f"no {ask.resource} here" if ask.resource else "not a node that Dovetail manages",
        "WrongVendor": f"no GPU of vendor {gpu.vendor}",
        "WrongModel": f"no GPU{kind_text(gpu)}",
        "TooFewDevices": f"fewer than {count}{memory}",
        "DeviceIndex": f"no such device as {gpu.device}",
        "Unhealthy": f"fewer than {count} healthy",
        "Cordoned": "kubelet could pick a cordoned GPU" if ask.resource else f"fewer than {count} not cordoned",
        "DevicesBusy": f"need {count} free, too many are busy",
        "ModeConflict": f"GPUs are in another mode than {ask.mode}",
        "TenantLimit": tenants_text(ask),
        "ShareShort": f"no GPU has a share of {gpu.share_milli / 1000:g} left",
        "MemoryGuard": f"no GPU has the memory left{memory}",
        "Held": "GPUs are held for other pods",
        "Quota": "beyond a quota",
    }
    return texts[kind]


def memory_text(gpu: GPURequest) -> str:
    """`8192 MiB` or `50 % of its memory`: the memory that a request takes of a GPU."""
    return f"{gpu.memory_mib} MiB" if gpu.memory_percent is None else f"{gpu.memory_percent} % of its memory"


def size_text(gpu: GPURequest) -> str:
    """` of at least 32 GB`; empty for a request that says no nominal size."""
    return "" if gpu.min_nominal_gb is None else capacity.OF_AT_LEAST(gb=gpu.min_nominal_gb).message


def kind_text(gpu: GPURequest) -> str:
    """The models and the nominal size of a request: ` of model V100 or A100 but V100M16 of at least 32 GB`."""
    return (of_models(gpu) + within_models(gpu)).message


def of_models(gpu: GPURequest) -> Sentence:
    """The models of a request: ` of model V100 or A100`."""
    return capacity.OF_MODEL(models=" or ".join(gpu.models)) if gpu.models else NOTHING


def within_models(gpu: GPURequest) -> Sentence:
    """What a request excludes, and its nominal size: ` but V100M16 of at least 32 GB`."""
    excluded = capacity.BUT_MODEL(models=" and ".join(gpu.excluded_models)) if gpu.excluded_models else NOTHING
    return excluded + (NOTHING if gpu.min_nominal_gb is None else capacity.OF_AT_LEAST(gb=gpu.min_nominal_gb))


def nominal_sizes(ledger: Ledger, *, models: Ints) -> str:
    """`16 GB, 80 GB`: the nominal sizes of the models with these codes, [codes]."""
    sizes = sorted({ledger.nominal_gb(code) for code in np.unique(models).tolist()})
    return ", ".join(f"{size} GB" for size in sizes)


def tenants_text(ask: Ask) -> str:
    """Why no device takes one more tenant: no turn, or no place for the ask's workload, is free."""
    return no_tenant(ask).message


def no_tenant(ask: Ask) -> Sentence:
    """The same as a sentence of the table."""
    if ask.workload is None:
        return capacity.TURNS_TAKEN()
    of_both = capacity.TURNS_OR_WORKLOAD if ask.mode == "TimeShared" else capacity.WORKLOAD_FULL
    return of_both(workload=ask.workload)


def _tenant_message(masks: Feasibility, *, row: int) -> str:
    columns, ask = masks.columns, masks.ask
    if ask.workload is None:
        return tenants_text(ask)
    limits = columns.training_limit if ask.workload == "Training" else columns.inference_limit
    return f"{tenants_text(ask)}, at most {limits[row][columns.present[row]].max()} on one"


def _not_movable(masks: Feasibility, *, row: int) -> str:
    """Why this tenant cannot move to the host, where others do; empty where it can."""
    ask, columns = masks.ask, masks.columns
    if ask.mode != "TimeShared" or masks.movable[row] or not columns.movable[row].any():
        return ""
    needed = int(masks.host_needed_mib[row]) + HOST_MARGIN_MIB
    if ask.host_room_mib + HOST_MARGIN_MIB >= needed:
        return ""
    return f"tenants are moved to the host there, for which its one container must request {needed} MiB of memory"


def _message(kind: RefusalKind, *, masks: Feasibility, row: int, left: int) -> str:
    columns, ask, name = masks.columns, masks.ask, masks.nodes[row]
    if kind == "CPUOrMemoryShort" and columns.pods_free[row] <= 0:
        return f"{name}: it takes {columns.pods[row]} pods, and has them"
    if kind == "CPUOrMemoryShort" or ask.gpu is None:
        return (
            f"{name}: need {ask.cpu_milli}m CPU and {ask.memory_mib} MiB, only {columns.cpu_free[row]}m and "
            f"{columns.memory_free[row]} MiB available"
        )
    present = columns.present[row]
    if kind == "ShareShort":
        best = int(columns.share_left[row][present].max())
        return f"{name}: need a share of {ask.gpu.share_milli / 1000:g}, the most left on one GPU is {best / 1000:g}"
    if kind == "MemoryGuard":
        most = max(0, int(masks.free_mib[row][present].max()))
        wanted = int(masks.needed_mib[row][present].min())
        note = masks.ledger.unmeasured_reason(name) or _not_movable(masks, row=row)
        aside = f" ({note})" if note else ""
        return f"{name}: need {wanted} MiB on a GPU, the most left on one is {most} MiB{aside}"
    if kind == "TenantLimit":
        return f"{name}: {_tenant_message(masks, row=row)} ({gpus(int(present.sum()))})"
    if kind == "WrongModel" and ask.gpu.min_nominal_gb is not None:
        there = nominal_sizes(masks.ledger, models=columns.model[row][present])
        return f"{name}: {ask_text(kind, ask=ask)} ({gpus(int(present.sum()))}: {there})"
    if kind in {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "DeviceIndex", "ModeConflict"}:
        return f"{name}: {ask_text(kind, ask=ask)} ({gpus(int(present.sum()), profile=ask.gpu.mig)})"
    closed = device_cause(masks.ledger, name=name, kind=kind) if kind in OF_DEVICES and not ask.resource else None
    why = ask_text(kind, ask=ask) if closed is None else closed[0].on(name, index=closed[1]).message
    return f"{name}: {need(ask.gpu.count, available=left, profile=ask.gpu.mig)}: {why}"
