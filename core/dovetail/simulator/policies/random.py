"""Random fit: any node where the pod fits, and any device there that a share fits on."""

import numpy as np

from dovetail.fragmentation.columns import Columns, choice_of, needs
from dovetail.fragmentation.policy import fitting
from dovetail.fragmentation.shapes import Choice, Shape


class RandomFit:
    """Each feasible node is as likely as the other."""

    def __init__(self, columns: Columns, *, random: np.random.Generator) -> None:
        self._columns = columns
        self._random = random
        self._rows = np.arange(len(columns))

    def choose(self, shape: Shape) -> Choice | None:
        """Any place for a pod that arrives now."""
        columns = self._columns
        fits = fitting(columns, rows=self._rows, needs=needs(shape), allowed=columns.allowed(shape))
        rows = fits.nonzero()[0]
        if not rows.size:
            return None
        node = int(self._random.choice(rows))
        devices = (columns.left[node] >= shape.share_milli).nonzero()[0]
        device = int(self._random.choice(devices)) if shape.is_share else 0
        return choice_of(columns, shape, node=node, device=device)
