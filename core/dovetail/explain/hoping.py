"""The same question of a cluster that others have left, or that people have mended too: what may be hoped for."""

from dataclasses import replace

from dovetail.engine.facts import DeviceFacts
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import Shortage, place
from dovetail.engine.tidy import BestFit
from dovetail.explain.question import KEY, Question


def emptied(question: Question, *, mended: bool = False) -> Question:
    """The question as it would be had all others left; `mended`: and were every node ready and every device good."""
    ledger = Ledger(limits=question.view.ledger.limits, weights=question.view.ledger.weights)
    view = question.view.over(ledger)
    for name in question.view.ledger.nodes():
        if name not in view.nodes:
            continue
        facts, devices = view.facts_of(name), question.view.ledger.devices(name)
        if mended:
            facts = replace(facts, obstacle="", cordoned=False)
            devices = tuple(map(_good, devices))
        ledger.set_node(facts)
        ledger.set_devices(name, devices)
    # Prices are reckoned over the ledger that they were made for.
    return replace(question, view=view, tidy=BestFit())


def _good(device: DeviceFacts) -> DeviceFacts:
    return replace(device, healthy=True, cordoned=False, strangers=False, foreign_mib=0)


def fits_whole(question: Question) -> bool:
    """Whether all workers have a place."""
    found = place(question.view.ledger, question.ask, workers=question.workers, key=KEY, nodes=question.nodes)
    return not isinstance(found, Shortage)
