"""How many devices of each node are true, counted byte by byte."""

import numpy as np
import pytest

from dovetail.engine.model.columns import count_devices


@pytest.mark.parametrize("width", [0, 1, 8, 255, 256, 300], ids=lambda width: f"{width} devices")
def test_the_count_is_the_sum_of_each_row(width: int) -> None:
    devices = np.random.default_rng(7).random((40, width)) < 0.7
    devices[:2] = [[True], [False]]
    assert count_devices(devices).tolist() == devices.sum(axis=1).tolist()
    assert count_devices(devices[::3, ::2]).tolist() == devices[::3, ::2].sum(axis=1).tolist()
    assert count_devices(devices[:0]).tolist() == []
