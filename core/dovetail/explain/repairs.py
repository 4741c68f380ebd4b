"""What administrators could repair: cordons, bad devices, foreign processes, unready nodes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.explain.answer import Change, ChangeKind
from dovetail.explain.question import KEY, Question
from dovetail.explain.what_if import Trial, needed

TRIED_NODES: Final = 16
TOLD: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mending:
    """One kind of repair: which devices need it, and their state after it."""

    kind: ChangeKind
    is_bad: Callable[[DeviceFacts], bool]
    mended: Callable[[DeviceFacts], DeviceFacts]
    node_too: bool = False


_MENDINGS: Final = (
    _Mending(
        kind="Uncordon",
        is_bad=lambda device: device.cordoned,
        mended=lambda device: replace(device, cordoned=False),
        node_too=True,
    ),
    _Mending(
        kind="Repair",
        is_bad=lambda device: not device.healthy,
        mended=lambda device: replace(device, healthy=True),
        node_too=True,
    ),
    _Mending(
        kind="Strangers",
        is_bad=lambda device: device.foreign_mib > 0 or device.strangers,
        mended=lambda device: replace(device, foreign_mib=0, strangers=False),
    ),
)


def mended(question: Question) -> Iterator[Change]:
    """For each kind, the nodes, by name, where this repair alone is enough."""
    judged = Judgement(question.view.ledger, ask=question.ask, nodes=question.nodes, key=KEY)
    refused = [question.nodes[row] for row in np.flatnonzero(~judged.fits).tolist()]
    ledger = question.view.ledger.copy()
    for mending in _MENDINGS:
        yield from _few(
            _try(question, ledger=ledger, node=node, mending=mending)
            for node in _bad(refused, question=question, mending=mending)
        )


def _few(changes: Iterable[Change | None]) -> list[Change]:
    found = [change for change in changes if change is not None]
    return found[:TOLD]


def _bad(refused: Iterable[str], *, question: Question, mending: _Mending) -> list[str]:
    """The nodes that refuse and have something of that kind to repair."""
    ledger, nodes = question.view.ledger, question.view.nodes
    found = []
    for name in refused:
        blocked = nodes[name].spec.unschedulable if mending.kind == "Uncordon" else bool(ledger.obstacle(name))
        if (mending.node_too and blocked) or any(mending.is_bad(device) for device in ledger.everything(name)):
            found.append(name)
    return found[:TRIED_NODES]


def _try(question: Question, *, ledger: Ledger, node: str, mending: _Mending) -> Change | None:
    trial = Trial(question, ledger=ledger, node=node)
    uncordoned, ready = mending.kind == "Uncordon", mending.kind == "Repair"
    bad = [device for device in trial.devices if mending.is_bad(device)]

    def enough(devices: Iterable[DeviceFacts]) -> bool:
        uuids = {device.uuid for device in devices}
        changed = [mending.mended(device) if device.uuid in uuids else device for device in trial.devices]
        return trial.fits_with(changed, node_ready=ready, uncordoned=uncordoned)

    found = needed(bad, enough=enough)
    if found is None:
        return None
    whole_node = trial.facts.cordoned if uncordoned else ready and bool(trial.facts.obstacle)
    text = _text(mending.kind, devices=found, node=node, whole_node=whole_node)
    if ready and trial.conflict:
        text = f"node {node} would have to be served by one side alone: {trial.conflict}"
    return Change(kind=mending.kind, node=node, text=text)


def _text(kind: ChangeKind, *, devices: list[DeviceFacts], node: str, whole_node: bool) -> str:
    uuids = ", ".join(device.uuid for device in devices)
    what = " and ".join(filter(None, (f"node {node}" if whole_node else "", uuids)))
    where = "" if whole_node else f" on {node}"
    match kind:
        case "Uncordon":
            return f"uncordon {what}{where}"
        case "Repair":
            state = "ready and healthy" if whole_node and devices else "ready" if whole_node else "healthy again"
            return f"{what}{where} would have to be {state}"
        case _:
            mib = sum(device.foreign_mib for device in devices)
            return f"end the processes that Dovetail does not manage on {uuids}{where} ({mib} MiB)"
