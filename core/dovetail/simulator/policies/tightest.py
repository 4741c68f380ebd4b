"""The device choice that the baselines share."""

import numpy as np

from dovetail.fragmentation.columns import Columns, Ints
from dovetail.fragmentation.shapes import WHOLE_MILLI, Shape


def tightest_device(columns: Columns, shape: Shape, *, rows: Ints) -> Ints | None:
    """The device of each of `rows` with the least left that is enough for a share, the first of equals."""
    if not shape.is_share:
        return None
    left = columns.left[rows]
    device: Ints = np.where(left >= shape.share_milli, left, WHOLE_MILLI + 1).argmin(axis=1)
    return device
