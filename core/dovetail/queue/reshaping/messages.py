"""What people read about a GPU that is partitioned again. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from dovetail.gpu.geometry import described
from dovetail.queue.reshaping.cards import Card


def change_in_words(card: Card, *, profiles: Iterable[str]) -> str:
    """A change of a GPU: `GPU 0 of node a into 3g.40gb + 4 x 1g.10gb`."""
    return f"{card.name} into {described(profiles)}"


def clause_of(uid: str, *, cards: Mapping[str, Sequence[Card]], problem: str) -> str:
    """What a waiting job's message says of GPUs that are partitioned again for it; empty without any.

    `problem` is why the last such change failed.
    """
    said = [
        f"reshaping {change_in_words(card, profiles=card.request.profiles)}"
        for each in cards.values()
        for card in each
        if card.request is not None and card.request.job == uid
    ]
    return "".join(f"; {each}" for each in [*said, *([problem] if problem else [])])
