"""What people read about a GPU that is partitioned again. Pure."""

from collections.abc import Mapping, Sequence

from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.gpu.geometry import described
from dovetail.queue.reshaping.cards import Card


def clause_of(uid: str, *, cards: Mapping[str, Sequence[Card]], problem: str) -> Sentence:
    """What a waiting job's message says of GPUs that are partitioned again for it; empty without any.

    `problem` is why the last such change failed.
    """
    found = [
        says.RESHAPING(gpu=card.name, profiles=described(card.request.profiles))
        for each in cards.values()
        for card in each
        if card.request is not None and card.request.job == uid
    ]
    failed = says.RESHAPING_FAILED(problem=problem) if problem else NOTHING
    return sum(found, start=NOTHING) + failed
