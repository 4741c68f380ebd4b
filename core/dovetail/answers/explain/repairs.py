"""What administrators could repair: cordons, bad devices, foreign processes, unready nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.answers.explain.answer import ChangeKind
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.explain.what_if import Trial, needed
from dovetail.answers.questions import ExplainedChange
from dovetail.api.gpunode import Cause
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, BROKEN, first_of, without
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts

TRIED_NODES: Final = 16
TOLD: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mending:
    """One kind of repair: the causes that it ends, of devices and of the node."""

    kind: ChangeKind
    causes: frozenset[Cause]
    of_node: frozenset[Cause] = frozenset()

    def is_bad(self, device: DeviceFacts) -> bool:
        """Whether the device needs it."""
        foreign = self.kind == "Strangers" and device.foreign_mib > 0
        return foreign or first_of(device.unavailable, causes=self.causes) is not None

    def mended(self, device: DeviceFacts) -> DeviceFacts:
        """The device after it."""
        foreign_mib = 0 if self.kind == "Strangers" else device.foreign_mib
        return replace(device, unavailable=without(device.unavailable, causes=self.causes), foreign_mib=foreign_mib)

    def is_bad_node(self, facts: NodeFacts | None) -> bool:
        """Whether the node itself needs it."""
        return facts is not None and first_of(facts.unavailable, causes=self.of_node) is not None


_MENDINGS: Final = (
    _Mending(kind="Uncordon", causes=frozenset({"Cordoned", "Reshaping"}), of_node=frozenset({"NodeCordoned"})),
    _Mending(kind="Repair", causes=BROKEN, of_node=BLOCKING),
    _Mending(kind="Strangers", causes=frozenset({"Strangers"})),
)


def mended(question: Question) -> Iterator[ExplainedChange]:
    """For each kind, the nodes, by name, where this repair alone is enough."""
    judged = Judgement(question.view.ledger, ask=question.ask, nodes=question.nodes, key=KEY)
    refused = [question.nodes[row] for row in np.flatnonzero(~judged.fits).tolist()]
    ledger = question.view.ledger.copy()
    for mending in _MENDINGS:
        yield from _few(
            _try(question, ledger=ledger, node=node, mending=mending)
            for node in _bad(refused, question=question, mending=mending)
        )


def _few(changes: Iterable[ExplainedChange | None]) -> list[ExplainedChange]:
    found = [change for change in changes if change is not None]
    return found[:TOLD]


def _bad(refused: Iterable[str], *, question: Question, mending: _Mending) -> list[str]:
    """The nodes that refuse and have something of that kind to repair."""
    ledger = question.view.ledger
    found = [
        name
        for name in refused
        if mending.is_bad_node(ledger.facts(name)) or any(map(mending.is_bad, ledger.everything(name)))
    ]
    return found[:TRIED_NODES]


def _try(question: Question, *, ledger: Ledger, node: str, mending: _Mending) -> ExplainedChange | None:
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
    whole_node = mending.is_bad_node(trial.facts)
    text = _text(mending.kind, devices=found, node=node, whole_node=whole_node)
    if ready and trial.conflict:
        text = f"node {node} would have to be served by one side alone: {trial.conflict}"
    return ExplainedChange(kind=mending.kind, node=node, text=text)


def _text(kind: ChangeKind, *, devices: list[DeviceFacts], node: str, whole_node: bool) -> str:
    uuids = ", ".join(device.uuid for device in devices)
    what = " and ".join(filter(None, (f"node {node}" if whole_node else "", uuids)))
    where = "" if whole_node else f" on {node}"
    match kind:
        case "Uncordon":
            return f"uncordon {what}{where}"
        case "Repair":
            state = "ready and healthy" if whole_node and devices else "ready" if whole_node else "healthy again"
            causes = (each for device in devices if (each := first_of(device.unavailable, causes=BROKEN)) is not None)
            said = "; ".join(dict.fromkeys(each.detail for each in causes if each.detail))
            return f"{what}{where} would have to be {state}" + (f" ({said})" if said else "")
        case _:
            mib = sum(device.foreign_mib for device in devices)
            return f"end the processes that Dovetail does not manage on {uuids}{where} ({mib} MiB)"
