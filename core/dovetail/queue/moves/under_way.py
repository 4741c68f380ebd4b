"""Moves that are under way, as the plans of the next moment have to see them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.reservation import beyond
from dovetail.queue.model.candidates import Candidate, Room, Sites, find_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A plan that is under way: the job that starts by it, and what those that move for it still hold there."""

    job: Candidate
    claims: tuple[str, ...]


def with_moves(plans: Sequence[Moving], *, ledger: Ledger, sites: Sites) -> tuple[Ledger, Ledger]:
    """Two copies of a ledger that has the destinations of these moves.

    In the first one, a plan holds both ends: what those that move hold, and the room of the job that starts. Others are
    found next to it. In the second one, those that move have left, and the job that starts has its room.
    """
    held, after = ledger.copy(), ledger.copy()
    for each in plans:
        gone = [claim for key in each.claims if (claim := held.claim(key)) is not None]
        with held.without(each.claims):
            found = find_room(each.job, ledger=held, fit_cache=FitCache(held), sites=sites)
        if isinstance(found, Room):
            held.commit_all(beyond(found.claims, given=gone))
        for claim in gone:
            after.release(claim.key)
    return held, after
