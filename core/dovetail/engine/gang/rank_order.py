"""The order of a gang's workers: neighbouring indexes go to neighbouring nodes. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.topology import HOSTNAME, Topology

_NUMBER: Final = re.compile(r"(\d+)")


def by_place(claims: Sequence[Claim], *, topology: Topology, ledger: Ledger, key: str) -> list[Claim]:
    """The claims in the order of their nodes' places, keyed `key/0`, `key/1`, and so on.

    Claims of nodes without labels keep their order, because nothing is known about their places.
    """
    labels = [level.label for level in topology.levels]
    places = {claim.node: ledger.place_of(claim.node, labels=labels) for claim in claims}
    wider = [at for at, label in enumerate(labels) if label != HOSTNAME]
    if not any(place[at] for place in places.values() for at in wider):
        return list(claims)
    order = {node: (tuple(map(_natural, place)), node) for node, place in places.items()}
    ordered = sorted(claims, key=lambda claim: order[claim.node])
    return [replace(claim, key=f"{key}/{number}") for number, claim in enumerate(ordered)]


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key by which rack-2 comes before rack-10."""
    parts = _NUMBER.split(text)
    return tuple((int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts))
