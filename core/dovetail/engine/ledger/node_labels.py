"""The labels of nodes, and the domains that nodes with equal labels form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.engine.model.columns import Ints
from dovetail.engine.model.topology import HOSTNAME

NO_DOMAIN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """The domains of one level.

    of     the domain of each row of the ledger, [rows]; `NO_DOMAIN` for a node without the label
    names  the domains as the values of their labels, from the widest level to this one
    """

    of: Ints
    names: tuple[tuple[str, ...], ...]

    def at(self, rows: Ints) -> Ints:
        """The domain of each of these `rows` [n], [n]; `NO_DOMAIN` for an unknown row."""
        found = np.full(len(rows), NO_DOMAIN, dtype=np.int64)
        known = (rows >= 0) & (rows < len(self.of))
        found[known] = self.of[rows[known]]
        return found


class NodeLabels:
    """The labels of each row. A copy shares the domains that were found until either of the two changes."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._labels: list[Mapping[str, str]] = []
        self._domains: dict[tuple[str, ...], Domains] = {}
        # Changes with every change of a label.
        self.version = 0

    def set(self, row: int, *, name: str, labels: Mapping[str, str]) -> None:
        """Set the labels of the node `name` in this row."""
        while len(self._labels) <= row:
            self._names.append("")
            self._labels.append({})
        if self._names[row] == name and self._labels[row] == labels:
            return
        self._names[row], self._labels[row] = name, labels
        # A copy keeps the domains that it shares.
        self._domains = {}
        self.version += 1

    def domains(self, path: tuple[str, ...]) -> Domains:
        """The domains of nodes with equal values of all labels of `path`.

        A node without the last label is in none; a wider label that it lacks counts as empty.
        """
        found = self._domains.get(path)
        if found is None:
            found = self._domains[path] = self._found(path)
        return found

    def values(self, row: int, *, labels: Sequence[str]) -> tuple[str, ...]:
        """The values of these labels of a row; empty where it has no such label."""
        if row >= len(self._labels):
            return ("",) * len(labels)
        return tuple(self._value(row, label=label) for label in labels)

    def copy(self) -> "NodeLabels":
        """An independent copy."""
        other = NodeLabels()
        other._names, other._labels = list(self._names), list(self._labels)
        other._domains, other.version = self._domains, self.version
        return other

    def _found(self, path: tuple[str, ...]) -> Domains:
        *wider, last = path
        codes: dict[tuple[str, ...], int] = {}
        of = np.full(len(self._labels), NO_DOMAIN, dtype=np.int64)
        for row, labels in enumerate(self._labels):
            value = self._value(row, label=last)
            if value:
                key = (*(labels.get(label, "") for label in wider), value)
                of[row] = codes.setdefault(key, len(codes))
        return Domains(of=of, names=tuple(codes))

    def _value(self, row: int, *, label: str) -> str:
        # A node without this label is still one host.
        return self._labels[row].get(label, self._names[row] if label == HOSTNAME else "")
