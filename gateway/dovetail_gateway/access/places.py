"""Places in a table of bounded size. A table that is full takes nothing new, and keeps what it has. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api.reasons.clause import Clause, SaidError


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a place: the name of a user, and the address from which the request came."""

    user: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many places there are in all, and how many of them each address can have."""

    all: int
    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSays:
    """The sentences about a table that is full: of one address, and in all."""

    of_address: Clause
    in_all: Clause


class FullError(SaidError):
    """No place is free; the text says of whom there are too many."""


def check(holders: Iterable[Holder], *, new: Holder, bounds: Bounds, says: FullSays) -> None:
    """Raise `FullError` unless a place is free for `new`. `says` are the sentences about one kind of place."""
    count = own = 0
    for each in holders:
        count += 1
        own += each.address == new.address
    if own >= bounds.address:
        raise FullError(says.of_address(address=new.address, count=own))
    if count >= bounds.all:
        raise FullError(says.in_all(count=count))
