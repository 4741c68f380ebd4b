"""How hypothesis draws: the same examples each time, so that a failure is of the change at hand.

`pytest --hypothesis-profile=search` draws new ones, for whoever looks for cases that nobody has met yet.

A test that fails on a sandbox shows in its report what was there.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import telling

# No deadline, and no complaint that examples are drawn slowly: a test never judges how fast the machine is.
_UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_UNHURRIED)
settings.register_profile("search", derandomize=False, **_UNHURRIED)
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Before the test's own tidying takes it away."""
    report: Any = yield
    if report.failed and (looks := telling.of(getattr(item, "funcargs", {}))):
        report.sections.append(("What the cluster looked like", looks))
    return report
