"""How hypothesis draws, in what order tests run, and what the report of a failed test shows.

Hypothesis draws the same examples each time, so that a failure comes from the change at hand.
`pytest --hypothesis-profile=search` draws new ones and finds cases that are not known yet.

A test that fails on a sandbox shows in its report what was there.
"""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import lanes, telling
from tests.groups import groups

pytest_plugins = ["tests.budget", "tests.operator_.postgres", "tests.runs"]
# No deadline, and no complaint that examples are drawn slowly: a test never judges how fast the machine is.
_UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_UNHURRIED)
settings.register_profile("search", derandomize=False, **_UNHURRIED)
settings.load_profile("steady")

# A shell's background processes ignore SIGINT, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_SECONDS = 900
# The priority of tests that have no control plane, in a parallel run.
_NICE: Final = 10


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Some hundred thousand objects come here to stay: every full garbage collection would visit all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time limits, marks, and the order in which the workers of a parallel run take lanes."""
    config.stash[lanes.COLLECTED] = [item.nodeid for item in items]
    # By file: each process of a parallel run asks for all tests, and there are more than twenty in a file.
    rank, is_optional = cache(lanes.rank), cache(lambda file: groups().of(file).is_optional)
    items.sort(key=lambda item: rank(item.nodeid.partition("::")[0]))
    for item in items:
        # A test that waits for programs, builds or pulls, or draws worlds, has more time than `timeout` says.
        is_long = any(item.get_closest_marker(name) for name in ("cluster", "realnode", "slow"))
        builds = not {"chart", "images", "sandbox", "world"}.isdisjoint(item.path.parts)
        if (is_long or builds) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        if is_optional(item.nodeid.partition("::")[0]):
            item.add_marker(pytest.mark.optional)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: an archive has its time in it, and each worker of a run makes its own."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Tests that share a control plane stay together, whatever `--dist` says."""
    from tests.scheduler import Lanes  # only a run with workers needs pytest-xdist

    config.option.loadscopereorder = False
    return Lanes(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Control planes and what is tested on them go first: their leases and deadlines are real time."""
    if hasattr(item.config, "workerinput") and not lanes.has_control_plane(item.nodeid):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


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
    # pytest parses the source of a failure to show it, and CPython 3.11 cannot collect objects with finalizers
    # meanwhile (gh-106905): the whole session would end with a SystemError.
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How each test that was tried again (`--reruns`) failed the first time."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"First try of {report.nodeid}")
        terminalreporter.line(report.longreprtext)
