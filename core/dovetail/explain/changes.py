"""What would have to change so that one more pod fits: few sentences, the same ones for the same cluster."""

from collections.abc import Iterator
from dataclasses import replace

from dovetail.cluster import ClusterView, node_facts
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import place
from dovetail.engine.tidy import BestFit
from dovetail.explain.answer import Change
from dovetail.explain.departing import departures
from dovetail.explain.mending import mended
from dovetail.explain.question import KEY, Question
from dovetail.explain.relaxing import most_workers, relaxed


def changes(question: Question) -> list[Change]:
    """What others could do, then what the pod could ask instead; where nothing would do now, what it could ask and wait
    for, and more nodes."""
    found = [*_of_others(question), *relaxed(question)]
    return found or [*_later(question), _more(question)]


def _later(question: Question) -> Iterator[Change]:
    """What the pod could ask instead on the same nodes, had all others left."""
    view = ClusterView(ledger=Ledger(limits=question.view.ledger.limits, weights=question.view.ledger.weights))
    view.nodes, view.vendors = question.view.nodes, question.view.vendors
    for name in question.view.ledger.nodes():
        if name in view.nodes:
            view.ledger.set_node(node_facts(view.nodes[name], vendors=view.vendors))
            view.ledger.set_devices(name, question.view.ledger.devices(name))
    for change in relaxed(replace(question, view=view, tidy=BestFit())):
        yield replace(change, text=f"{change.text} once others have left", later=True)


def _of_others(question: Question) -> Iterator[Change]:
    if question.workers == 1:
        yield from departures(question)
        yield from mended(question)
        return
    for change in _of_others(_next_worker(question)):
        yield replace(change, text=f"for one more worker: {change.text}")


def _next_worker(question: Question) -> Question:
    """The question for one worker, with as many others in place as fit."""
    view = ClusterView(ledger=question.view.ledger.copy())
    view.nodes = question.view.nodes
    workers = most_workers(question, below=question.workers)
    placed = place(view.ledger, question.ask, workers=workers, key=KEY, nodes=question.nodes) if workers else []
    for claim in placed if isinstance(placed, list) else ():
        view.ledger.commit(claim)
    # Prices are reckoned over the ledger that they were made for.
    return replace(question, view=view, workers=1, tidy=BestFit())


def _more(question: Question) -> Change:
    gpu = question.ask.gpu
    if question.ask.resource and not question.view.ledger.serves(question.ask.resource, nodes=question.nodes):
        return Change(kind="MoreNodes", text=f"add a node that advertises {question.ask.resource}", request=str(gpu))
    each = "" if gpu is None else f" with room for {gpu}"
    count = f"{question.workers} nodes" if question.workers > 1 else "a node"
    return Change(kind="MoreNodes", text=f"add {count}{each}", request="" if gpu is None else str(gpu))
