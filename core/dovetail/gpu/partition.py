"""The instances that a GPU is partitioned into, as texts of simulated nodes declare them. Pure."""

from typing import Final

from dovetail.gpu import mig
from dovetail.gpu.request import RequestError, parse

EXAMPLE: Final = "1x3g.20gb,2x2g.10gb"


def partition(text: str) -> tuple[str, ...]:
    """The profiles of the instances in `7x1g.5gb` or `1x3g.20gb,2x2g.10gb`; empty if that is no partition of a GPU."""
    try:
        asked = [parse(each) for each in text.split(",")]
    except RequestError:
        return ()
    if any(not each.mig or each.models for each in asked):
        return ()
    if sum(mig.compute_slices(each.mig) * each.count for each in asked) > mig.SLICES:
        return ()
    return tuple(each.mig for each in asked for _ in range(each.count))
