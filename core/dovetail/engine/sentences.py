"""Refusals in words: one sentence with a node's own numbers, and one text that all nodes of a cause share."""

from typing import TYPE_CHECKING

from dovetail.engine.refusals import Refusal, RefusalKind

if TYPE_CHECKING:
    from dovetail.engine.fit import Judgement


def refusal(kind: RefusalKind, *, judged: "Judgement", row: int, left: int) -> Refusal:
    """The refusal of one node. `left` is how many of its devices came through the causes up to this one."""
    if kind in {"Unhealthy", "Cordoned"} and left == 0 and (found := _of_the_node(judged, row)) is not None:
        return found
    text = _text(kind, judged)
    return Refusal(kind=kind, text=text, message=_message(kind, judged=judged, row=row, left=left))


def gpus(count: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def need(count: int, available: int) -> str:
    """The sentence that every shortage begins with: `Need 4 GPUs, only 1 available`."""
    return f"Need {gpus(count)}, only {available} available"


def _of_the_node(judged: "Judgement", row: int) -> Refusal | None:
    columns, name = judged.columns, judged.nodes[row]
    if not columns.known[row]:
        return Refusal(kind="Unhealthy", text="node is not known yet", message=f"{name} is not known yet")
    if columns.blocked[row]:
        obstacle = judged.ledger.obstacle(name)
        return Refusal(kind="Unhealthy", text=obstacle, message=f"{name}: {obstacle}")
    if columns.node_cordoned[row]:
        return Refusal(kind="Cordoned", text="node is cordoned", message=f"{name} is cordoned")
    return None


def _text(kind: RefusalKind, judged: "Judgement") -> str:
    ask = judged.ask
    if kind == "CPUOrMemoryShort" or ask.gpu is None:
        return "too little CPU or memory beside the GPUs"
    count = gpus(ask.gpu.count)
    models = " or ".join(ask.gpu.models)
    share = f"{ask.gpu.share_milli / 1000:g}"
    memory = "" if ask.gpu.memory_mib is None else f" with {ask.gpu.memory_mib} MiB"
    texts: dict[RefusalKind, str] = {
        "NoGPU": "no GPU reported",
        "NotManaged": "not a node that Dovetail manages",
        "WrongVendor": f"no GPU of vendor {ask.gpu.vendor}",
        "WrongModel": f"no GPU of model {models}",
        "TooFewDevices": f"fewer than {count}{memory}",
        "DeviceIndex": f"no such device as cuda:{ask.gpu.device_index}",
        "Unhealthy": f"fewer than {count} healthy",
        "Cordoned": f"fewer than {count} not cordoned",
        "DevicesBusy": f"need {count} free, too many are busy",
        "ModeConflict": f"GPUs are in another mode than {ask.mode}",
        "TenantLimit": "all turns on the GPUs are taken",
        "ShareShort": f"no GPU has a share of {share} left",
        "MemoryGuard": f"no GPU has the memory left{memory}",
        "Held": "GPUs are held for other pods",
    }
    return texts[kind]


def _message(kind: RefusalKind, *, judged: "Judgement", row: int, left: int) -> str:
    columns, ask, name = judged.columns, judged.ask, judged.nodes[row]
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
        most = max(0, int(judged.free_mib[row][present].max()))
        wanted = int(judged.needed_mib[row][present].min())
        return f"{name}: need {wanted} MiB on a GPU, the most left on one is {most} MiB"
    if kind in {"NoGPU", "NotManaged", "WrongVendor", "WrongModel", "DeviceIndex", "ModeConflict", "TenantLimit"}:
        return f"{name}: {_text(kind, judged)} ({gpus(int(present.sum()))})"
    return f"{name}: {need(ask.gpu.count, left)}: {_text(kind, judged)}"
