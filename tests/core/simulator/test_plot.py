"""The picture: a line and a bar for each policy."""

from pathlib import Path

import pytest

from dovetail.simulator.parallel import run_one
from tests.core.simulator.builders import make_scene

plot = pytest.importorskip("dovetail.simulator.plot", exc_type=ModuleNotFoundError)


@pytest.mark.parametrize("departures", [False, True])
def test_every_policy_has_its_line(tmp_path: Path, departures: bool):
    outcomes = [run_one(name, scene=make_scene(departures=departures)) for name in ("fgd", "bestfit")]
    figure = plot.draw(outcomes, departures=departures)
    allocation = figure.axes[0]
    assert [line.get_label() for line in allocation.get_lines()][:2] == ["fgd", "bestfit"]
    figure.savefig(tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
