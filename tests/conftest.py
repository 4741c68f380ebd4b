"""How hypothesis draws: the same examples each time, so that a failure is of the change at hand.

`pytest --hypothesis-profile=search` draws new ones, for whoever looks for cases that nobody has met yet.

A test that fails on a sandbox shows in its report what was there.
"""

import gc
import logging
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

LONG_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that waits for programs, builds or pulls has more time than `timeout` in pyproject.toml."""
    for item in items:
        is_long = any(item.get_closest_marker(name) for name in ("cluster", "realnode", "slow"))
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))


@pytest.fixture(autouse=True)
def _logs_to_nobody_later() -> Iterator[None]:
    """A program that a test ran has set up logging, to an output that is closed when the test is over."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Before the test's own tidying takes it away."""
    # To show a failure its source is parsed, in which CPython 3.11 takes no garbage whose end is told (gh-106905): the
    # whole session would end with a SystemError.
    collects = call.excinfo is not None and gc.isenabled()
    if collects:
        gc.disable()
    try:
        report: Any = yield
        if report.failed and (looks := telling.of(getattr(item, "funcargs", {}))):
            report.sections.append(("What the cluster looked like", looks))
    finally:
        if collects:
            gc.enable()
    return report
