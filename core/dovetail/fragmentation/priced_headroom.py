"""PH, priced headroom: future capacity by scarcity, shares by dual prices, the gradient.

score = -1.5 dF + 10 dv + sum over classes of price_m dH_m, in GPUs: the growth of fragmentation (`gradient`), the
change of the residual's worth for shares (`cutting_stock`), and the change of headroom (`headroom`) at current prices
(`prices`). The first two terms choose the device inside a node.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.fragmentation.arrivals import LearningSettings, Online
from dovetail.fragmentation.cache import Kept
from dovetail.fragmentation.capacity import Bools, Columns, Floats, Ints, choice_of, needs
from dovetail.fragmentation.headroom import Counts
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.policy import best_device, distinct_devices, fitting, representatives
from dovetail.fragmentation.prices import PHSettings
from dovetail.fragmentation.workload_mix import Mix

# Scores this close, in GPUs, are equal and go to the first node: single precision resolves no less.
TIE_GPUS: Final = 1e-5


@dataclass(slots=True)
class _Known:
    """What is known for one shape, valid up to a change of the columns.

    - `needs` [4]: what a node's `spare` must reach
    - `allowed` [N]: nodes with an allowed model; None for all
    - `static` [N]: the first two terms in GPUs
    - `loss` [N, M + 2T]: the change of headroom by class, in pods, and of the supplies of each model
    - `score` [N]: the sum of both at the prices of `epoch`; -inf where the shape does not fit
    - `device` [N]: the device that a share gets
    - `seen`: the change of the columns up to which this is valid
    - `epoch`: the prices that `score` uses
    """

    needs: Ints
    allowed: Bools | None
    static: Counts
    loss: Counts
    score: Counts
    device: Ints
    seen: int = -1
    epoch: int = -1


class PH:
    """Takes the node with the highest score, the first of equals."""

    def __init__(self, columns: Columns, *, mix: Mix, settings: PHSettings | None = None) -> None:
        self._columns = columns
        self._terms = PHAppraisal(columns, mix=mix, settings=settings)
        self._known: Kept[_Known] = Kept()

    @property
    def terms(self) -> PHAppraisal:
        """The terms of the scores."""
        return self._terms

    def choose(self, shape: Shape) -> Choice | None:
        """The best place for a pod that arrives now, or None when it fits nowhere."""
        score, device = self.scores(shape)
        best = score.max(initial=-np.inf)
        if best == -np.inf:
            return None
        node = int((score >= best - TIE_GPUS).argmax())
        return choice_of(self._columns, shape=shape, node=node, device=int(device[node]))

    def scores(self, shape: Shape) -> tuple[Counts, Ints]:
        """The score of each node in GPUs, [N], -inf where the shape does not fit.

        And a share's device, [N].
        """
        known = self._known.get(shape)
        if known is None:
            known = self._unknown(shape)
            self._known.store(shape, value=known, size_bytes=self._size_bytes(known))
        self._terms.refresh_prices()
        if known.seen != self._columns.changes:
            self._update(shape, known=known)
        if known.epoch != self._terms.epoch:
            self._reprice(known)
        return known.score, known.device

    def _reprice(self, known: _Known) -> None:
        """Recompute scores at new prices, of one node of each kind that fits.

        Reading all losses is what takes the time.
        """
        known.epoch = self._terms.epoch
        rows = (known.static > -np.inf).nonzero()[0]
        if rows.size:
            some, kind = representatives(self._columns, rows=rows)
            known.score[rows] = (known.loss.take(some, axis=0) @ self._terms.price + known.static.take(some))[kind]

    def _unknown(self, shape: Shape) -> _Known:
        count = len(self._columns)
        return _Known(
            needs=needs(shape),
            allowed=self._columns.allowed(shape) if shape.models else None,
            static=np.full(count, -np.inf, dtype=np.float32),
            loss=np.zeros((count, len(self._terms.price)), dtype=np.float32),
            score=np.full(count, -np.inf, dtype=np.float32),
            device=np.zeros(count, dtype=np.int64),
        )

    def _size_bytes(self, known: _Known) -> int:
        """The memory really in use: the system provides pages only for rows that are written."""
        rows = len(known.static) if known.allowed is None else int(known.allowed.sum())
        return int(rows * known.loss.itemsize * known.loss.shape[1] + 3 * known.device.nbytes)

    def _update(self, shape: Shape, *, known: _Known) -> None:
        columns = self._columns
        rows = np.arange(len(columns)) if known.seen < 0 else columns.touched_since(known.seen)
        known.seen = columns.changes
        known.static[rows] = -np.inf
        known.score[rows] = -np.inf
        rows = rows[fitting(columns, rows=rows, needs=known.needs, allowed=known.allowed)]
        if not rows.size:
            return
        terms = self._terms
        terms.sync()
        some, kind = representatives(columns, rows=rows)
        left = None
        if shape.is_share:
            static, device = self._static_of_shares(shape, rows=some)
            known.device[rows] = device[kind]
            left = columns.left[some, device]
        else:
            static = terms.gradient.change_by_whole(shape, rows=some) * (-terms.settings.gradient / WHOLE_MILLI)
        loss = terms.headroom.change(shape, rows=some, left=left)
        known.static[rows] = static[kind]
        known.loss[rows] = loss[kind]
        if known.epoch == terms.epoch:
            known.score[rows] = (loss @ terms.price + static)[kind]

    def _static_of_shares(self, shape: Shape, *, rows: Ints) -> tuple[Floats, Ints]:
        """The first two terms at the best device of each of `rows`, and that device, both [n]."""
        columns, terms = self._columns, self._terms
        at, device = distinct_devices(columns, shape=shape, rows=rows)
        pairs = rows[at]
        left = columns.left[pairs, device]
        value = terms.gradient.change_by_share(shape, rows=pairs, left=left)
        value *= -terms.settings.gradient / WHOLE_MILLI
        value += terms.settings.residual * (terms.worth[left - shape.share_milli] - terms.worth[left])
        return best_device(value, at=at, device=device, count=len(rows), width=columns.left.shape[1])


def ph_online(
    columns: Columns, *, settings: PHSettings | None = None, learning: LearningSettings | None = None
) -> Online:
    """PH on a learned mix."""
    return Online(columns, make=lambda columns, mix: PH(columns, mix=mix, settings=settings), learning=learning)
