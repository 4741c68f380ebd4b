"""Trials on a copy of the ledger: one node after the other, each restored afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dovetail.answers.explain.question import KEY, Question
from dovetail.api.gpunode import Cause
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import BLOCKING, without
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.engine.score.fragmentation_term import BestFit


def emptied(question: Question, *, mended: bool = False) -> Question:
    """The question on a cluster without other pods.

    With `mended` also with all nodes and devices repaired.
    """
    ledger = Ledger(limits=question.view.ledger.limits)
    view = question.view.over(ledger)
    for name in question.view.ledger.nodes():
        if name not in view.nodes:
            continue
        facts, devices = view.facts_of(name), question.view.ledger.everything(name)
        if mended:
            facts = replace(facts, unavailable=())
            devices = tuple(map(_good, devices))
        ledger.set_node(facts)
        ledger.set_devices(name, devices=devices)
    # Prices belong to the ledger that they were computed for.
    return replace(question, view=view, term=BestFit())


def _good(device: DeviceFacts) -> DeviceFacts:
    return replace(device, unavailable=(), foreign_mib=0)


def fits_whole(question: Question) -> bool:
    """Whether all workers have a place."""
    found = place(question.view.ledger, ask=question.ask, workers=question.workers, key=KEY, nodes=question.nodes)
    return not isinstance(found, Shortage)


T = TypeVar("T")


class Trial:
    """One node of a copied ledger, for trials that release claims and change facts."""

    def __init__(self, question: Question, *, ledger: Ledger, node: str) -> None:
        self.node = node
        self.ledger = ledger
        self.devices = ledger.everything(node)
        self.facts = question.view.facts_of(node)
        # Only an administrator can open the node: two drivers hand out its devices.
        self.conflict = question.view.conflict_of(node)
        self._note = ledger.unmeasured_reason(node)
        self._ask = question.ask
        # The gang's other workers are part of the question and stay.
        self._claims = [claim for claim in ledger.claims_on(node) if not claim.key.startswith(f"{KEY}/")]

    @property
    def claims(self) -> Sequence[Claim]:
        """The claims on the node."""
        return self._claims

    def fits_without(self, claims: Sequence[Claim]) -> bool:
        """Whether the request would fit without these claims."""
        for claim in claims:
            self.ledger.release(claim.key)
        fits = self._fits()
        for claim in claims:
            self.ledger.commit(claim)
        return fits

    def fits_with(self, devices: Sequence[DeviceFacts], *, node_ready: bool = False, uncordoned: bool = False) -> bool:
        """Whether the request would fit if the node had these devices, were ready, or not cordoned."""
        facts = self.facts
        repaired: set[Cause] = {*(BLOCKING if node_ready else ()), *(["NodeCordoned"] if uncordoned else ())}
        changed = replace(facts, unavailable=without(facts.unavailable, causes=repaired))
        self.ledger.set_node(changed)
        self.ledger.set_devices(self.node, devices=devices, note=self._note)
        fits = self._fits()
        self.ledger.set_node(facts)
        self.ledger.set_devices(self.node, devices=self.devices, note=self._note)
        return fits

    def _fits(self) -> bool:
        return isinstance(check(self.ledger, ask=self._ask, node=self.node, key=KEY), Fit)


def needed(parts: Sequence[T], *, enough: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """A small selection of `parts` that is enough and minimal. None when all are not enough.

    None when all are not enough.

    It takes the shortest prefix that is enough and drops what is not needed of it.
    """
    length = next((length for length in range(len(parts) + 1) if enough(parts[:length])), None)
    if length is None:
        return None
    chosen = list(parts[:length])
    for part in parts[:length]:
        without = [each for each in chosen if each is not part]
        if enough(without):
            chosen = without
    return chosen


def nearest(
    question: Question, *, rows: np.typing.NDArray[np.intp], distance: np.typing.NDArray[np.int64], most: int
) -> list[str]:
    """The `most` nodes with the least `distance` [n], of equals the first by name."""
    order = np.argsort(distance[rows], kind="stable")[:most]
    return [question.nodes[row] for row in rows[order].tolist()]
