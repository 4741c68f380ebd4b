"""Sets of running jobs whose moves would make room for a pod, the cheapest first.

A set is a candidate where the pod fits on one node once the set has left it, and where each of the set fits on some
node as the cluster is now. Whether all fit together is for the caller to try: only it knows where each would go.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import CPU, FREE_DEVICES, HOST, MOST_LEFT, Bools, Columns, Floats, Ints, needs
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Shape
from dovetail.fragmentation.policy import fitting
from dovetail.queue.moves.residents import Residents

# Nodes on which several jobs are combined, those with the cheapest devices first.
_NODES: Final = 48
# Single jobs that are returned, the cheapest first.
_SINGLES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """The jobs `keys` leave, so that the pod fits on `node`; `cost` is what that costs in device-seconds."""

    cost: float
    node: int
    keys: tuple[str, ...]


def candidates(
    shape: Shape,
    *,
    columns: Columns,
    residents: Residents,
    now: float,
    move_seconds: float = 0.0,
    most_cost: float = float("inf"),
    allowed: Bools | None = None,
) -> list[Candidate]:
    """Sets of jobs to move for a pod of this shape that fits nowhere, the cheapest first.

    A set costs what its restarts lose, and `move_seconds` for each job; none costs more than `most_cost`. The pod goes
    to `allowed` nodes [N] alone.
    """
    search = _Search(
        shape,
        columns=columns,
        residents=residents,
        cost=residents.lost_seconds(now=now) + move_seconds,
        allowed=columns.allowed(shape) if allowed is None else columns.allowed(shape) & allowed,
    )
    found = {(each.node, each.keys): each for each in (*search.singles(), *search.sets()) if each.cost <= most_cost}
    return sorted(found.values())


class _Search:
    """One search: the columns, and the cost of each row of the residents, [R]."""

    def __init__(self, shape: Shape, *, columns: Columns, residents: Residents, cost: Floats, allowed: Bools) -> None:
        self._shape = shape
        self._columns = columns
        self._residents = residents
        self._cost = cost
        self._allowed = allowed
        self._needs = needs(shape)
        self._elsewhere = self._places()
        used = (residents.node >= 0).nonzero()[0]
        self._used: Ints = used[self._elsewhere[residents.shape[used]]]

    def _places(self) -> Bools:
        """Whether a part of each shape fits anywhere now, [shapes]."""
        columns = self._columns
        everywhere = np.arange(len(columns))
        return np.array(
            [
                bool(fitting(columns, rows=everywhere, needs=needs(shape), allowed=columns.allowed(shape)).any())
                for shape in self._residents.shapes
            ],
            dtype=np.bool_,
        )

    def singles(self) -> Iterator[Candidate]:
        """The jobs of which one suffices."""
        columns, residents, rows = self._columns, self._residents, self._used
        node = residents.node[rows]
        spare = columns.spare[node]
        fits: Bools = self._allowed[node]
        fits &= (spare[:, :HOST] + residents.host[rows] >= self._needs[:HOST]).all(axis=1)
        after = np.where(residents.devices[rows], columns.left[node] + residents.share_milli[rows, None], 0)
        if self._shape.is_share:
            fits &= np.maximum(after.max(axis=1), spare[:, MOST_LEFT]) >= self._shape.share_milli
        else:
            fits &= spare[:, FREE_DEVICES] + (after >= WHOLE_MILLI).sum(axis=1) >= self._shape.gpus
        for row in self._cheapest(rows[fits]):
            yield self._candidate(int(residents.node[row]), rows=[row])

    def _cheapest(self, rows: Ints) -> list[int]:
        if len(rows) > _SINGLES:
            rows = rows[np.argpartition(self._cost[rows], _SINGLES)[:_SINGLES]]
        found: list[int] = rows.tolist()
        return found

    def sets(self) -> Iterator[Candidate]:
        """The sets of several jobs, on the nodes whose devices cost least to empty."""
        columns = self._columns
        count = self._shape.gpus
        if not count:
            return
        emptied = self._costs_of_devices()
        least: Floats = np.sort(emptied, axis=1)[:, :count].sum(axis=1)
        least[~(self._allowed & (columns.capacity >= self._needs).all(axis=1))] = np.inf
        for node in heapq.nsmallest(_NODES, (least < np.inf).nonzero()[0].tolist(), key=lambda node: least[node]):
            rows = self._rows_for(node, emptied=emptied[node])
            if rows:
                yield self._candidate(node, rows=rows)

    def _costs_of_devices(self) -> Floats:
        """What it costs at least to empty each device, [N, D]; infinite where something stays there."""
        columns, residents, rows = self._columns, self._residents, self._used
        at, device = residents.devices[rows].nonzero()
        row = rows[at]
        free, cost = columns.left.copy(), np.zeros(columns.left.shape)
        place = residents.node[row], device
        np.add.at(free, place, residents.share_milli[row])
        np.add.at(cost, place, self._cost[row] / np.maximum(1, residents.gpus[row]))
        cost[free < WHOLE_MILLI] = np.inf
        return cost

    def _rows_for(self, node: int, *, emptied: Floats) -> list[int]:
        """A cheap set of parts on a node after which the pod fits; empty where none is found."""
        residents, there = self._residents, set(self._used.tolist())
        rows = [row for row in residents.on(node) if row in there]
        chosen = self._emptying(rows, emptied=emptied)
        for row in sorted((row for row in rows if row not in chosen), key=lambda row: self._per_host(row, node=node)):
            if self._has_host(node, rows=chosen):
                break
            chosen = [*chosen, row]
        if not self._fits(node, rows=chosen):
            return []
        for row in sorted(chosen, key=lambda row: -self._cost[row]):
            others = [each for each in chosen if each != row]
            if self._fits(node, rows=others):
                chosen = others
        return chosen

    def _emptying(self, rows: Sequence[int], *, emptied: Floats) -> list[int]:
        """The parts on the cheapest devices that are enough for the pod; a part on several devices counts once."""
        residents, chosen, devices = self._residents, list[int](), set[int]()
        able = (emptied < np.inf).nonzero()[0].tolist()
        on = {device: [row for row in rows if residents.devices[row, device]] for device in able}
        while len(devices) < self._shape.gpus and len(devices) < len(able):
            best = min(
                (device for device in able if device not in devices),
                key=lambda device: (sum(float(self._cost[row]) for row in on[device] if row not in chosen), device),
            )
            devices.add(best)
            chosen += [row for row in on[best] if row not in chosen]
        return chosen

    def _per_host(self, row: int, *, node: int) -> float:
        """The cost of a part for what it frees of the scarcer of CPU and memory."""
        missing = self._needs[:HOST] - self._columns.spare[node, :HOST]
        of = int(missing.argmax()) if missing.any() else CPU
        return float(self._cost[row]) / max(1, int(self._residents.host[row, of]))

    def _has_host(self, node: int, *, rows: Sequence[int]) -> bool:
        free = self._columns.spare[node, :HOST] + self._residents.host[list(rows)].sum(axis=0)
        return bool((free >= self._needs[:HOST]).all())

    def _fits(self, node: int, *, rows: Sequence[int]) -> bool:
        """Whether the pod fits on a node without these parts."""
        residents = self._residents
        left = self._columns.left[node].copy()
        for row in rows:
            left[residents.devices[row]] += residents.share_milli[row]
        share = self._shape.share_milli
        return self._has_host(node, rows=rows) and int((left >= share).sum()) >= self._shape.gpus

    def _candidate(self, node: int, *, rows: Sequence[int]) -> Candidate:
        costs = {self._residents.key(row): float(self._cost[row]) for row in rows}
        return Candidate(cost=sum(costs.values()), node=node, keys=tuple(sorted(costs)))
