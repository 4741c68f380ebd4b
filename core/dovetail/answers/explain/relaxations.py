"""Smaller requests: the largest that fits now, for one part of the request at a time.

For a gang with a topology that is the narrowest level of the network at which it would start now, where its own has no
room.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dovetail.answers.explain.answer import ChangeKind
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.questions import ExplainedChange
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.filter.messages import gpus
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.partitions import profiles as mig_profiles
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats, Ints
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu import mig
from dovetail.gpu.request import WHOLE_MILLI, GPURequest


def wider_topology(question: Question) -> Iterator[ExplainedChange]:
    """The first wider level with room for all workers, or that they fit without a required level."""
    topology = question.ask.topology
    if topology is None or not topology.required:
        return
    required = topology.required
    names = [level.name for level in topology.levels]
    for level in (*reversed(names[: names.index(required)]), ""):
        wider = replace(question.ask, topology=replace(topology, required=level))
        found = place(question.view.ledger, ask=wider, workers=question.workers, key=KEY, nodes=question.nodes)
        if isinstance(found, Shortage):
            continue
        nodes = ",".join(sorted({claim.node for claim in found}))
        instead = f"require {level} instead of {required}" if level else f"prefer {required} instead of requiring it"
        yield ExplainedChange(kind="WiderTopology", node=nodes, text=f"{instead}: starts now on {nodes}")
        return


_FIELD_OF: Final[Mapping[ChangeKind, str]] = {
    "NodeSelector": "nodeSelector",
    "NodeAffinity": "affinity",
    "Taint": "tolerations",
}
_TOLERATES_ALL: Final = [{"operator": "Exists"}]


def relaxed(question: Question) -> Iterator[ExplainedChange]:
    """For each part of the request the most that fits now, where that is less than requested."""
    yield from _fewer_workers(question)
    if question.ask.gpu is not None:
        yield from _less_gpu(question, gpu=question.ask.gpu)
    yield from wider_topology(question)
    yield from _less_host(question)
    yield from _fewer_constraints(question)


def _fewer_workers(question: Question) -> Iterator[ExplainedChange]:
    workers = most_workers(question, below=question.workers)
    if workers:
        text = f"ask for at most {workers} worker{'s' if workers > 1 else ''} instead of {question.workers}"
        yield ExplainedChange(kind="FewerWorkers", text=text)


def most_workers(question: Question, *, below: int) -> int:
    """The largest number of workers below `below` that fits now."""
    return _most(below - 1, fits=lambda count: _fits(question, ask=question.ask, workers=count))


def _less_gpu(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    yield from _fewer_gpus(question, gpu=gpu)
    if gpu.mig:
        yield from _other_profile(question, gpu=gpu)
    else:
        yield from _smaller_share(question, gpu=gpu)
    yield from _less_memory(question, gpu=gpu)
    if gpu.models or gpu.excluded_models or gpu.vendor:
        excluded = [f"not {name}" for name in gpu.excluded_models]
        asked = " and ".join(filter(None, (" or ".join(gpu.models), *excluded, gpu.vendor or "")))
        text = f"ask for any model instead of {asked}"
        other = replace(gpu, models=(), excluded_models=(), vendor=None)
        yield from _instead(question, gpu=other, kind="OtherModel", text=text)
    yield from _smaller_cards(question, gpu=gpu)
    if gpu.device_index is not None:
        text = f"ask for any device instead of {gpu.device}"
        yield from _instead(
            question, gpu=replace(gpu, device_index=None, device_node=None), kind="OtherIndex", text=text
        )


def _fewer_gpus(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    count = _most(gpu.count - 1, fits=lambda count: _fits_gpu(question, gpu=replace(gpu, count=count)))
    if count:
        text = f"ask for at most {gpus(count, profile=gpu.mig)} instead of {gpu.count}"
        yield from _instead(question, gpu=replace(gpu, count=count), kind="FewerGPUs", text=text)


def _other_profile(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    """The smallest profile that is at least as large, else the largest one, of which instances are free."""
    profiles = mig_profiles(question.view.ledger)
    other = [profile for profile in profiles if profile != gpu.mig]
    larger = [profile for profile in other if mig.memory_mib(profile) >= mig.memory_mib(gpu.mig)]
    for profile in (*larger, *reversed([profile for profile in other if profile not in larger])):
        text = f"ask for the MIG profile {profile} instead of {gpu.mig}"
        found = list(_instead(question, gpu=replace(gpu, mig=profile), kind="OtherProfile", text=text))
        if found:
            yield from found
            return


def _smaller_share(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    """For one device: a part may be enough, if the request does not need all the memory."""
    if gpu.count > 1 or question.ask.mode == "TimeShared" or question.ask.resource:
        return
    share = _most(gpu.share_milli - 1, fits=lambda milli: _fits_gpu(question, gpu=replace(gpu, share_milli=milli)))
    if share:
        asked = "a whole GPU" if gpu.whole else f"{gpu.share_milli / WHOLE_MILLI:g}"
        text = f"ask for a share of at most {share / WHOLE_MILLI:g} instead of {asked}"
        yield from _instead(question, gpu=replace(gpu, share_milli=share), kind="SmallerShare", text=text)


def _less_memory(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    if gpu.memory_percent is not None:
        yield from _less_percent(question, gpu=gpu, percent=gpu.memory_percent)
    if gpu.memory_mib is None:
        return
    most = _most(gpu.memory_mib - 1, fits=lambda mib: _fits_gpu(question, gpu=replace(gpu, memory_mib=mib)))
    if most:
        text = f"ask for at most {most} MiB of memory on each GPU instead of {gpu.memory_mib} MiB"
        yield from _instead(question, gpu=replace(gpu, memory_mib=most), kind="LessMemory", text=text)


def _less_percent(question: Question, *, gpu: GPURequest, percent: int) -> Iterator[ExplainedChange]:
    most = _most(percent - 1, fits=lambda part: _fits_gpu(question, gpu=replace(gpu, memory_percent=part)))
    if most:
        text = f"ask for at most {most} % of the memory of each GPU instead of {percent} %"
        yield from _instead(question, gpu=replace(gpu, memory_percent=most), kind="LessMemory", text=text)


def _smaller_cards(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    if gpu.min_nominal_gb is None:
        return
    most = _most(gpu.min_nominal_gb - 1, fits=lambda gb: _fits_gpu(question, gpu=replace(gpu, min_nominal_gb=gb)))
    if most:
        text = f"ask for GPUs of at least {most} GB instead of {gpu.min_nominal_gb} GB"
        yield from _instead(question, gpu=replace(gpu, min_nominal_gb=most), kind="SmallerGPU", text=text)


def _less_host(question: Question) -> Iterator[ExplainedChange]:
    """CPU and memory: what the node with the most of the short resource has."""
    ask = question.ask
    if not (ask.cpu_milli or ask.memory_mib):
        return
    judged = Judgement(question.view.ledger, ask=replace(ask, cpu_milli=0, memory_mib=0), nodes=question.nodes, key=KEY)
    columns = judged.columns
    cpu = np.minimum(columns.cpu_free, ask.cpu_milli)
    memory = np.minimum(columns.memory_free, ask.memory_mib)
    kept = np.minimum(_part(cpu, of=ask.cpu_milli), _part(memory, of=ask.memory_mib))
    usable = judged.fits & (columns.cpu_free >= 0) & (columns.memory_free >= 0)
    if not usable.any():
        return
    row = int(np.where(usable, kept, -1.0).argmax())
    less = replace(ask, cpu_milli=int(cpu[row]), memory_mib=int(memory[row]))
    if less == ask or not _fits(question, ask=less, workers=question.workers):
        return
    short = _reduced("CPU", asked=ask.cpu_milli, most=less.cpu_milli, unit="m") + _reduced(
        "memory", asked=ask.memory_mib, most=less.memory_mib, unit=" MiB"
    )
    node = question.nodes[row]
    yield ExplainedChange(kind="LessHost", node=node, text=f"ask for at most {' and '.join(short)}: fits on {node}")


def _part(amounts: Ints, *, of: int) -> Floats:
    """The available part of the requested amount, 0 to 1, [n]; an amount of 0 is never short."""
    return amounts / of if of else np.ones(len(amounts))


def _reduced(word: str, *, asked: int, most: int, unit: str) -> list[str]:
    return [] if asked == most else [f"{most}{unit} of {word} instead of {asked}{unit}"]


def _fewer_constraints(question: Question) -> Iterator[ExplainedChange]:
    """Without the node selector, without the required affinity, or with every taint tolerated."""
    kinds = {found.kind for found in question.exclusions.values()}
    for kind, field in _FIELD_OF.items():
        if kind not in kinds:
            continue
        without: dict[str, Any] = {**question.pod_spec, field: _TOLERATES_ALL if kind == "Taint" else None}
        freer = replace(question, pod_spec=without)
        node = _place(freer, ask=freer.ask, workers=question.workers)
        if node is not None:
            yield ExplainedChange(
                kind=kind, node=node, text=f"{_constraint_text(question, kind=kind, node=node)}: fits on {node}"
            )


def _constraint_text(question: Question, *, kind: ChangeKind, node: str) -> str:
    excluded = question.exclusions.get(node)
    what = excluded.what if excluded is not None else ""
    match kind:
        case "NodeSelector":
            return f"drop {what} from the node selector"
        case "Taint":
            return f"tolerate the taint {what}"
        case _:
            return "drop the required node affinity"


def _instead(question: Question, *, gpu: GPURequest, kind: ChangeKind, text: str) -> Iterator[ExplainedChange]:
    node = _place(question, ask=_ask_with(question.ask, gpu=gpu), workers=question.workers)
    if node is not None:
        yield ExplainedChange(kind=kind, node=node, request=str(gpu), text=f"{text}: {gpu} fits on {node}")


def _ask_with(ask: Ask, *, gpu: GPURequest) -> Ask:
    # A part of a device is not exclusive, whatever the mode was.
    mode = "Fractional" if ask.mode == "Exclusive" and not gpu.whole else ask.mode
    resource = mig.resource_of(gpu.mig) if ask.resource and gpu.mig else ask.resource
    return replace(ask, gpu=gpu, mode=mode, resource=resource)


def _fits_gpu(question: Question, *, gpu: GPURequest) -> bool:
    return _fits(question, ask=_ask_with(question.ask, gpu=gpu), workers=question.workers)


def _fits(question: Question, *, ask: Ask, workers: int) -> bool:
    if workers > 1:
        return _place(question, ask=ask, workers=workers) is not None
    return bool(Judgement(question.view.ledger, ask=ask, nodes=question.nodes, key=KEY).fits.any())


def _place(question: Question, *, ask: Ask, workers: int) -> str | None:
    """The nodes where all workers would go; None when they do not fit."""
    ledger = question.view.ledger
    if workers == 1:
        best = FitCache(ledger, term=question.ranking).best(ask, nodes=question.nodes, key=KEY, limit=1)
        return best[0] if best else None
    found = place(ledger, ask=ask, workers=workers, key=KEY, nodes=question.nodes)
    return None if isinstance(found, Shortage) else ",".join(sorted({claim.node for claim in found}))


def _most(highest: int, *, fits: Callable[[int], bool]) -> int:
    """The largest number up to `highest` that fits, 0 when none does.

    Less of something that fits also fits.
    """
    low, high = 0, highest
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
