"""The claims of a ledger, by key and by node. Knows no devices."""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.engine.model.claims import Claim


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim. With `hold_until`, it is a hold, which ends at that time."""

    claim: Claim
    hold_until: float | None = None

    @property
    def is_hold(self) -> bool:
        """Whether the claim is a hold."""
        return self.hold_until is not None


class ClaimTable:
    """Who is promised what. What changes it says for which nodes the promises have to be computed again."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._on_node: dict[str, set[str]] = {}

    def put(self, entry: Entry) -> tuple[str, ...]:
        """Store a claim in place of the one with its key. Returns the nodes whose promises change."""
        claim, known = entry.claim, self._entries.get(entry.claim.key)
        if known is not None and known.claim == claim and known.is_hold == entry.is_hold:
            self._entries[claim.key] = entry
            return ()
        left = self.remove(claim.key) if known is not None and known.claim.node != claim.node else None
        self._entries[claim.key] = entry
        self._on_node.setdefault(claim.node, set()).add(claim.key)
        return (claim.node,) if left is None else (left.node, claim.node)

    def remove(self, key: str) -> Claim | None:
        """Remove the claim `key` and return it: the promises of its node change. None when there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        keys = self._on_node[entry.claim.node]
        keys.discard(key)
        if not keys:
            del self._on_node[entry.claim.node]
        return entry.claim

    def get(self, key: str) -> Entry | None:
        """The claim `key`."""
        return self._entries.get(key)

    def all(self) -> Iterable[Entry]:
        """All claims, including holds."""
        return self._entries.values()

    def on(self, node: str, *, without: str = "") -> list[Entry]:
        """The claims on a node, without the claim `without`."""
        return [self._entries[key] for key in self._on_node.get(node, ()) if key != without]

    def nodes(self) -> Iterable[str]:
        """The nodes with claims."""
        return self._on_node

    def copy(self) -> "ClaimTable":
        """An independent table with the same claims."""
        other = ClaimTable()
        other._entries = dict(self._entries)
        other._on_node = {node: set(keys) for node, keys in self._on_node.items()}
        return other
