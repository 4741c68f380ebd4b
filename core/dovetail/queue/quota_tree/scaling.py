"""Scales guarantees that are more than there is. Pure."""

from collections.abc import Sequence

from dovetail.gpu.request import WHOLE_MILLI


def scaled(amounts: Sequence[int], *, total: int, unit: int = WHOLE_MILLI) -> list[int]:
    """The amounts in proportion, so that they sum to at most `total`.

    Whole units alone are given (GPUs, or GiB of memory), by the largest remainder (Hamilton's method): a promise of a
    part of a GPU would keep a job that needs a whole one from ever being within it.
    """
    wanted, whole = sum(amounts), total // unit
    if wanted <= total or not wanted:
        return list(amounts)
    exact = [amount * whole / wanted for amount in amounts]
    given = [int(each) for each in exact]
    by_remainder = sorted(range(len(amounts)), key=lambda at: (given[at] - exact[at], at))
    for at in by_remainder[: whole - sum(given)]:
        given[at] += 1
    return [each * unit for each in given]
