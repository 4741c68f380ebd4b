"""Each worker of a parallel run collects the tests itself: their names must not depend on the process or the time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes

ROOT = Path(__file__).resolve().parents[2]


# Workers of a parallel run have different hash seeds, and pytest-xdist ends the run if their names differ. Only here is
# another time zone.
@pytest.mark.slow
def test_another_process_collects_tests_of_the_same_names(request: pytest.FixtureRequest) -> None:
    here = request.config.stash[lanes.COLLECTED]
    files = sorted({nodeid.partition("::")[0] for nodeid in here})
    there = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "", *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "11", "PYTEST_ADDOPTS": "", "TZ": "Asia/Kolkata"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert there.returncode == 0, there.stdout[-2000:]
    collected = {line for line in there.stdout.splitlines() if "::" in line}
    assert not set(here) - collected
