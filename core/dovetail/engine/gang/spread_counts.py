"""How a gang's workers spread over domains while they are placed one by one, as kube-scheduler counts them.

The rules are those of the plugins PodTopologySpread (`DoNotSchedule`) and InterPodAffinity (`podAntiAffinity`), for the
gang's own workers. kube-scheduler counts on the nodes that a pod may use. The pods of a plan may use the planned nodes
alone, so a plan that holds over more nodes holds there too.
"""

from collections.abc import Sequence

import numpy as np

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.node_labels import NO_DOMAIN
from dovetail.engine.model.columns import Bools, Ints
from dovetail.engine.model.topology import Spread


class SpreadCounts:
    """The workers in each domain so far, over the nodes in these `rows` [n] of the ledger."""

    def __init__(self, ledger: Ledger, *, spreads: Sequence[Spread], rows: Ints) -> None:
        self._each = [_Count(spread, of=ledger.domains((spread.label,)).at(rows)) for spread in spreads]

    def allowed(self) -> Bools | bool:
        """The nodes that may take the next worker, [n]."""
        found: Bools | bool = True
        for each in self._each:
            found = found & each.allowed()
        return found

    def add(self, at: int) -> None:
        """Count a worker on the node at this position."""
        for each in self._each:
            each.add(at)


class _Count:
    def __init__(self, spread: Spread, *, of: Ints) -> None:
        self._spread = spread
        # Domains by their number among those of these nodes, [n].
        self._names, self._of = np.unique(of, return_inverse=True)
        self._has_label = of != NO_DOMAIN
        self._workers = np.zeros(len(self._names), dtype=np.int64)
        self._real = self._names != NO_DOMAIN

    def allowed(self) -> Bools:
        spread, there = self._spread, self._workers[self._of]
        allowed = np.ones(len(self._of), dtype=np.bool_)
        if spread.max_skew:
            counted = self._workers[self._real]
            fewest = int(counted.min(initial=1 << 40)) if len(counted) >= spread.min_domains else 0
            allowed &= self._has_label & (there + 1 - fewest <= spread.max_skew)
        if spread.most:
            # Anti-affinity does not bind nodes without the label.
            allowed &= ~self._has_label | (there < spread.most)
        return allowed

    def add(self, at: int) -> None:
        self._workers[self._of[at]] += 1
