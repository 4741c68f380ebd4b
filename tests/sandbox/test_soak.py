"""The soak on a real control plane, for a minute: `make soak` runs it for two hours."""

import pytest

from tools.soak import report
from tools.soak.run import Options, soak
from tools.soak.verdicts import verdicts

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_minute_of_disturbances_loses_nothing() -> None:
    lines: list[str] = []
    options = Options(seconds=60, every_seconds=8, end_seconds=180, seed=2, per_second=1.5)
    record = soak(options, say=lines.append)
    assert record.disturbances
    # A minute is too short to compare memory.
    failed = [each for each in verdicts(record) if not each.holds and not each.requirement.startswith("Memory")]
    assert not failed, report.text(record) + "\n".join(lines)
