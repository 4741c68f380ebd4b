"""Places in a table of bounded size. A table that is full takes nothing new, and keeps what it has. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


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


class FullError(Exception):
    """No place is free; the text says of whom there are too many."""


def check(holders: Iterable[Holder], *, new: Holder, bounds: Bounds, what: str) -> None:
    """Raise `FullError` unless a place is free for `new`. `what` names the places, such as "sessions"."""
    count = own = 0
    for each in holders:
        count += 1
        own += each.address == new.address
    if own >= bounds.address:
        raise FullError(f"the address {new.address} has {own} {what}, as many as one address can have")
    if count >= bounds.all:
        raise FullError(f"the gateway has {count} {what}, as many as it can have")
