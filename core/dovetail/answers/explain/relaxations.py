"""Smaller requests: the largest that fits now, for one part of the request at a time.

For a gang with a topology that is the narrowest level of the network at which it would start now, where its own has no
room.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dovetail.answers.explain.answer import ChangeKind, change
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.questions import ExplainedChange
from dovetail.api.reasons import remedies as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.partitions import profiles as mig_profiles
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import Floats, Ints
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu import mig
from dovetail.gpu.request import WHOLE_MILLI, GPURequest
from dovetail.pods.node_affinity import Exclusion


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
        instead = (
            says.WIDER_TOPOLOGY(level=level, required=required) if level else says.PREFERRED_TOPOLOGY(required=required)
        )
        yield change("WiderTopology", node=nodes, says=instead + says.STARTS_ON(nodes=nodes))
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
        yield change("FewerWorkers", says=says.FEWER_WORKERS(count=workers, asked=question.workers))


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
        other = replace(gpu, models=(), excluded_models=(), vendor=None)
        yield from _instead(question, gpu=other, kind="OtherModel", instead=says.ANY_MODEL(asked=asked))
    yield from _smaller_cards(question, gpu=gpu)
    if gpu.device_index is not None:
        instead = says.ANY_DEVICE(device=str(gpu.device))
        anywhere = replace(gpu, device_index=None, device_node=None)
        yield from _instead(question, gpu=anywhere, kind="OtherIndex", instead=instead)


def _fewer_gpus(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    count = _most(gpu.count - 1, fits=lambda count: _fits_gpu(question, gpu=replace(gpu, count=count)))
    if count:
        instead = says.FEWER_GPUS(count=count, asked=gpu.count, profile=gpu.mig)
        yield from _instead(question, gpu=replace(gpu, count=count), kind="FewerGPUs", instead=instead)


def _other_profile(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    """The smallest profile that is at least as large, else the largest one, of which instances are free."""
    profiles = mig_profiles(question.view.ledger)
    other = [profile for profile in profiles if profile != gpu.mig]
    larger = [profile for profile in other if mig.memory_mib(profile) >= mig.memory_mib(gpu.mig)]
    for profile in (*larger, *reversed([profile for profile in other if profile not in larger])):
        instead = says.OTHER_PROFILE(profile=profile, asked=gpu.mig)
        found = list(_instead(question, gpu=replace(gpu, mig=profile), kind="OtherProfile", instead=instead))
        if found:
            yield from found
            return


def _smaller_share(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    """For one device: a part may be enough, if the request does not need all the memory."""
    if gpu.count > 1 or question.ask.mode == "TimeShared" or question.ask.resource:
        return
    share = _most(gpu.share_milli - 1, fits=lambda milli: _fits_gpu(question, gpu=replace(gpu, share_milli=milli)))
    if share:
        most, asked = share / WHOLE_MILLI, gpu.share_milli / WHOLE_MILLI
        instead = says.SHARE_OF_WHOLE(share=most) if gpu.whole else says.SMALLER_SHARE(share=most, asked=asked)
        yield from _instead(question, gpu=replace(gpu, share_milli=share), kind="SmallerShare", instead=instead)


def _less_memory(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    if gpu.memory_percent is not None:
        yield from _less_percent(question, gpu=gpu, percent=gpu.memory_percent)
    if gpu.memory_mib is None:
        return
    most = _most(gpu.memory_mib - 1, fits=lambda mib: _fits_gpu(question, gpu=replace(gpu, memory_mib=mib)))
    if most:
        instead = says.LESS_MEMORY(memory_mib=most, asked_mib=gpu.memory_mib)
        yield from _instead(question, gpu=replace(gpu, memory_mib=most), kind="LessMemory", instead=instead)


def _less_percent(question: Question, *, gpu: GPURequest, percent: int) -> Iterator[ExplainedChange]:
    most = _most(percent - 1, fits=lambda part: _fits_gpu(question, gpu=replace(gpu, memory_percent=part)))
    if most:
        instead = says.LESS_PERCENT(percent=most, asked=percent)
        yield from _instead(question, gpu=replace(gpu, memory_percent=most), kind="LessMemory", instead=instead)


def _smaller_cards(question: Question, *, gpu: GPURequest) -> Iterator[ExplainedChange]:
    if gpu.min_nominal_gb is None:
        return
    most = _most(gpu.min_nominal_gb - 1, fits=lambda gb: _fits_gpu(question, gpu=replace(gpu, min_nominal_gb=gb)))
    if most:
        instead = says.SMALLER_CARDS(gb=most, asked_gb=gpu.min_nominal_gb)
        yield from _instead(question, gpu=replace(gpu, min_nominal_gb=most), kind="SmallerGPU", instead=instead)


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
    node = question.nodes[row]
    yield change("LessHost", node=node, says=_less_of_host(ask, less=less) + says.FITS_ON(node=node))


def _part(amounts: Ints, *, of: int) -> Floats:
    """The available part of the requested amount, 0 to 1, [n]; an amount of 0 is never short."""
    return amounts / of if of else np.ones(len(amounts))


def _less_of_host(ask: Ask, *, less: Ask) -> Sentence:
    cpu = {"most_milli": less.cpu_milli, "asked_milli": ask.cpu_milli}
    memory = {"most_mib": less.memory_mib, "asked_mib": ask.memory_mib}
    if less.memory_mib == ask.memory_mib:
        return says.LESS_CPU(**cpu)
    if less.cpu_milli == ask.cpu_milli:
        return says.LESS_HOST_MEMORY(**memory)
    return says.LESS_CPU_AND_MEMORY(**cpu, **memory)


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
            freed = _without(kind, excluded=question.exclusions.get(node))
            yield change(kind, node=node, says=freed + says.FITS_ON(node=node))


def _without(kind: ChangeKind, *, excluded: Exclusion | None) -> Sentence:
    """What to change of the constraint that excludes the node."""
    what = "" if excluded is None else excluded.what
    match kind:
        case "NodeSelector":
            return says.DROP_SELECTOR(what=what)
        case "Taint":
            return says.TOLERATE(what=what)
        case _:
            return says.DROP_AFFINITY()


def _instead(question: Question, *, gpu: GPURequest, kind: ChangeKind, instead: Sentence) -> Iterator[ExplainedChange]:
    node = _place(question, ask=_ask_with(question.ask, gpu=gpu), workers=question.workers)
    if node is not None:
        request = str(gpu)
        yield change(kind, node=node, request=request, says=instead + says.FITS_AS(request=request, node=node))


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
