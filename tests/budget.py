"""What a parallel run took: each group of tests next to its budget, then the longest lanes and files. It fails nothing.

Processor time is that of the process that runs the test, and of the programs that ended during it.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests import lanes
from tests.groups import Group, groups

_CPU: Final = "cpu_seconds"
# How many lanes and files are shown.
_LONGEST: Final = 30
# By the name of a group, a lane or a file.
Totals = dict[str, Counter[str]]
_started = pytest.StashKey[float]()
_adder = pytest.StashKey["_Adder"]()


def _cpu() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Before the fixtures."""
    item.stash[_started] = _cpu()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The last report of a test says what the whole of it took, with fixtures."""
    report: Any = yield
    if call.when == "teardown":
        report.user_properties.append((_CPU, _cpu() - item.stash[_started]))
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Where the process that collects the reports adds them up."""
    config.stash[_adder] = _Adder()
    config.pluginmanager.register(config.stash[_adder])


class _Adder:
    def __init__(self) -> None:
        self.groups: Totals = {}
        self.lanes: Totals = {}
        self.files: Totals = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The fixture of a whole file counts for its first and its last test."""
        for totals, name in (
            (self.groups, groups().of(report.nodeid).name),
            (self.lanes, lanes.lane(report.nodeid)),
            (self.files, report.nodeid.partition("::")[0]),
        ):
            total = totals.setdefault(name, Counter())
            total["seconds"] += report.duration
            if report.when == "teardown":
                total["tests"] += 1
                total[_CPU] += dict(report.user_properties).get(_CPU, 0.0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The tables, where several processes ran the tests: a run of a few files says nothing of a group."""
    if not getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        return
    terminalreporter.section("Seconds by group, and the budget of tests/groups.toml")
    found = config.stash[_adder]
    for line in (*longest("lane", found.lanes), "", *longest("file", found.files), "", *table(found.groups)):
        terminalreporter.line(line)


def table(totals: Totals) -> Iterator[str]:
    """One line for each group that ran, then those above their budget."""
    load = os.getloadavg()[0]
    yield f"{'group':<32}{'tests':>7}{'processor':>11}{'start to end':>14}{'budget':>8}"
    ran = [(group, totals[group.name]) for group in groups().every if group.name in totals]
    for group, total in ran:
        cells = f"{total['tests']:>7}{total[_CPU]:>11.0f}{total['seconds']:>14.0f}{group.seconds:>8}"
        yield f"{group.name:<32}{cells} {'of start to end' if group.waits else 'of processor'}"
    over = [f"{group.name} by {excess:.0f} s" for group, total in ran if (excess := above(group, total)) > 0]
    yield f"Load average at the end {load:.1f} on {os.cpu_count()} cores"
    yield f"OVER BUDGET: {', '.join(over)}" if over else "Every group keeps its budget"


def longest(what: str, totals: Totals) -> Iterator[str]:
    """The lanes or files that took longest from start to end, and their processor time."""
    yield f"{what:<58}{'tests':>7}{'processor':>11}{'start to end':>14}"
    for name, total in sorted(totals.items(), key=lambda each: -each[1]["seconds"])[:_LONGEST]:
        yield f"{name:<58}{total['tests']:>7}{total[_CPU]:>11.0f}{total['seconds']:>14.0f}"


def above(group: Group, total: Counter[str]) -> float:
    """By how many seconds a group is above its budget; below 0 if it keeps it."""
    return (total["seconds"] if group.waits else total[_CPU]) - group.seconds
