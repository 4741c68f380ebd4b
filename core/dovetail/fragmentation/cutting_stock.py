"""The worth of a piece of a device for shares: Gilmore-Gomory dual values.

Devices are rolls, and share sizes are the pieces cut from them. The linear relaxation finds the fewest rolls that serve
the demand; its dual values give the worth of one piece of each size in rolls. A residual is worth the best set of
pieces that can still be cut from it: a whole roll is worth 1, a residual too small for any piece 0.

P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research, 1961.
HiGHS solves the master; a knapsack in hundredths of a device prices the patterns.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import numpy as np

from dovetail.fragmentation.capacity import Floats
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI
from dovetail.fragmentation.workload_mix import Mix

HUNDREDTHS: Final = 100
_STEP_MILLI: Final = WHOLE_MILLI // HUNDREDTHS
_TOLERANCE: Final = 1e-9


def available() -> bool:
    """Whether HiGHS is installed: the extras `operator`, `extender`, `gateway` and `simulate` include it."""
    return find_spec("highspy") is not None


def share_demand(mix: Mix) -> dict[int, float]:
    """The probability of each share size, by size in milli."""
    demand: dict[int, float] = {}
    for one, probability in zip(mix.classes, mix.probability.tolist(), strict=True):
        if one.is_share:
            demand[one.share_milli] = demand.get(one.share_milli, 0.0) + probability
    return demand


def residual_values(demand: Mapping[int, float]) -> Floats:
    """The worth, in devices, of a device with r milli left, for r = 0 to 1000, [1001].

    `demand` is the probability by share size in milli.
    """
    pieces: dict[int, float] = {}
    for share_milli, amount in demand.items():
        size = -(-share_milli // _STEP_MILLI)
        pieces[size] = pieces.get(size, 0.0) + amount
    value = best_sets(dual_values(pieces))
    return value[np.arange(WHOLE_MILLI + 1) // _STEP_MILLI]


def dual_values(demand: Mapping[int, float]) -> dict[int, float]:
    """The worth, in devices, of one piece of each size in hundredths, by column generation."""
    sizes = [size for size in sorted(demand) if demand[size] > 0]
    if not sizes:
        return {}
    # Scale demands to about one, whatever their unit: HiGHS treats amounts below 1e-7 as zero.
    scale = len(sizes) / sum(demand[size] for size in sizes)
    master = _Master([demand[size] * scale for size in sizes])
    for at, size in enumerate(sizes):
        master.add({at: HUNDREDTHS // size})
    while True:
        duals = master.solve()
        pattern, worth = _best_pattern(sizes, duals=duals)
        if worth <= 1 + _TOLERANCE:
            return dict(zip(sizes, duals, strict=True))
        master.add(pattern)


def best_sets(worth: Mapping[int, float]) -> Floats:
    """The greatest worth of pieces that fit 0 to 100 hundredths, [101]: an unbounded knapsack."""
    # Plain numbers: each depends on those before it, and reading them from an array takes three times as long.
    value = [0.0] * (HUNDREDTHS + 1)
    for room in range(1, HUNDREDTHS + 1):
        best = max([value[room - size] + one for size, one in worth.items() if size <= room], default=0.0)
        value[room] = max(best, value[room - 1])
    return np.array(value)


def _best_pattern(sizes: list[int], *, duals: list[float]) -> tuple[dict[int, int], float]:
    """The pattern with the greatest worth, as pieces by position in `sizes`, and its worth."""
    value = best_sets(dict(zip(sizes, duals, strict=True))).tolist()
    pattern: dict[int, int] = {}
    room = HUNDREDTHS
    while room:
        if value[room] == value[room - 1]:
            room -= 1
            continue
        at = next(at for at, size in enumerate(sizes) if size <= room and value[room - size] + duals[at] == value[room])
        pattern[at] = pattern.get(at, 0) + 1
        room -= sizes[at]
    return pattern, value[HUNDREDTHS]


class _Master:
    """The fewest rolls that meet every demand, by how often each pattern is cut."""

    def __init__(self, demand: list[float]) -> None:
        import highspy  # noqa: PLC0415 - an optional dependency: without it there are still best fit and FGD

        self._infinity = highspy.kHighsInf
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.silent()
        for amount in demand:
            self._solver.addRow(amount, self._infinity, 0, np.array([], dtype=np.int32), np.array([]))

    def add(self, pattern: Mapping[int, int]) -> None:
        """Add a pattern: pieces by row."""
        rows = np.array(sorted(pattern), dtype=np.int32)
        counts = np.array([pattern[int(row)] for row in rows], dtype=np.float64)
        self._solver.addCol(1.0, 0.0, self._infinity, len(rows), rows, counts)

    def solve(self) -> list[float]:
        """The dual values of the demands at the optimum."""
        self._solver.run()
        return [max(0.0, dual) for dual in self._solver.getSolution().row_dual]
