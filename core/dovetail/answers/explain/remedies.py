"""What would make one more pod fit: few sentences, always the same for the same cluster.

A module of its own: it asks again about other requests and other clusters, where `nodes` asks once about this one.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from msgspec.structs import replace as with_fields

from dovetail.answers.explain.answer import change, said_by
from dovetail.answers.explain.departures import departures
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.explain.relaxations import most_workers, relaxed
from dovetail.answers.explain.repairs import mended
from dovetail.answers.explain.what_if import emptied, fits_whole
from dovetail.answers.questions import ExplainedChange
from dovetail.api.reasons import remedies as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.placement import place
from dovetail.engine.score.fragmentation_term import BestFit


def changes(question: Question) -> list[ExplainedChange]:
    """What others could do, then what the pod could request instead.

    Where nothing helps now: what it could request and wait for, and more nodes. A gang that is too large for the whole
    cluster gets only these last two.
    """
    found = [*_of_others(question), *relaxed(question)]
    if not found or _is_too_large(question):
        found += [*_later(question, known={each.text for each in found}), _more(question)]
    return found


def _later(question: Question, *, known: Collection[str]) -> Iterator[ExplainedChange]:
    """Requests that would fit on the same nodes once all others have left.

    Omits those already `known`.
    """
    for each in relaxed(emptied(question)):
        if each.text not in known:
            yield _saying(each, sentence=said_by(each) + says.ONCE_OTHERS_HAVE_LEFT())


def _of_others(question: Question) -> Iterator[ExplainedChange]:
    """For a gang: what makes room for one more worker, if that can finally make room for all."""
    if question.workers == 1:
        yield from departures(question)
        yield from mended(question)
        return
    following = _next_worker(question)
    steps = [*departures(following)] if fits_whole(emptied(question)) else []
    if not _is_too_large(question):
        steps += mended(following)
    for step in steps:
        yield _saying(step, sentence=says.FOR_ONE_MORE_WORKER() + said_by(step))


def _is_too_large(question: Question) -> bool:
    """Whether a gang has no place even on an empty, repaired cluster."""
    return question.workers > 1 and not fits_whole(emptied(question, mended=True))


def _next_worker(question: Question) -> Question:
    """The question for one worker, with as many of the others placed as fit."""
    view = question.view.over(question.view.ledger.copy())
    workers = most_workers(question, below=question.workers)
    placed = place(view.ledger, ask=question.ask, workers=workers, key=KEY, nodes=question.nodes) if workers else []
    for claim in placed if isinstance(placed, list) else ():
        view.ledger.commit(claim)
    # Prices belong to the ledger that they were computed for.
    return replace(question, view=view, workers=1, term=BestFit())


def _more(question: Question) -> ExplainedChange:
    gpu = question.ask.gpu
    if question.ask.resource and not question.view.ledger.serves(question.ask.resource, nodes=question.nodes):
        return change("MoreNodes", says=says.ADD_ADVERTISING(resource=question.ask.resource), request=str(gpu))
    lacking = question.workers - (most_workers(emptied(question), below=question.workers) or 0)
    found = says.ADD_NODES(count=lacking) if lacking > 1 else says.ADD_NODE()
    if gpu is None:
        return change("MoreNodes", says=found)
    return change("MoreNodes", says=found + says.WITH_ROOM_FOR(request=str(gpu)), request=str(gpu))


def _saying(found: ExplainedChange, *, sentence: Sentence) -> ExplainedChange:
    """The same change in other words."""
    return with_fields(found, text=sentence.message, details=list(sentence.clauses))
