"""What administrators could repair: cordons, bad devices, foreign processes, unready nodes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dovetail.answers.explain.answer import ChangeKind, change
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.explain.what_if import Trial, needed
from dovetail.answers.questions import ExplainedChange
from dovetail.api.gpunode import Cause
from dovetail.api.reasons import remedies as says
from dovetail.api.reasons.clause import Clause, Sentence
from dovetail.api.reasons.explain import IN_BRACKETS
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, BROKEN, first_of, without
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts

TRIED_NODES: Final = 16
_MOST_CHANGES: Final = 2


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
    found = [each for each in changes if each is not None]
    return found[:_MOST_CHANGES]


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
    if ready and trial.conflict:
        return change(mending.kind, node=node, says=says.SERVE_BY_ONE_SIDE(node=node, conflict=trial.conflict))
    return change(mending.kind, node=node, says=_sentence(mending.kind, devices=found, node=node, whole=whole_node))


def _sentence(kind: ChangeKind, *, devices: list[DeviceFacts], node: str, whole: bool) -> Sentence:
    """What to do with these devices; `whole` says that it is to be done with the node too."""
    uuids = ", ".join(device.uuid for device in devices)
    if kind == "Strangers":
        mib = sum(device.foreign_mib for device in devices)
        return says.END_STRANGERS(devices=uuids, node=node, mib=mib)
    of_devices, of_node, of_both = _WORDS[kind]
    if not whole:
        found = of_devices(devices=uuids, node=node)
    else:
        found = of_both(node=node, devices=uuids) if devices else of_node(node=node)
    causes = (each for device in devices if (each := first_of(device.unavailable, causes=BROKEN)) is not None)
    why = "; ".join(dict.fromkeys(each.detail for each in causes if each.detail))
    return found + IN_BRACKETS(why=why) if kind == "Repair" and why else found


# Of devices alone, of the node alone, and of both.
_WORDS: Final[Mapping[ChangeKind, tuple[Clause, Clause, Clause]]] = {
    "Uncordon": (says.UNCORDON, says.UNCORDON_NODE, says.UNCORDON_BOTH),
    "Repair": (says.REPAIR, says.REPAIR_NODE, says.REPAIR_BOTH),
}
