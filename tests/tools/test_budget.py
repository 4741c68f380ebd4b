"""The report of a run's seconds: it shows every group that ran, and names those above their budget."""

from collections import Counter

from tests.budget import above, longest, table
from tests.groups import Group, groups

COMPUTES = Group(name="computes", tests=("tests/core",), seconds=10)
WAITS = Group(name="waits", tests=("tests/cluster",), seconds=10, waits=True)


def test_waiting_counts_only_for_a_group_that_waits() -> None:
    total = Counter({"seconds": 15.0, "cpu_seconds": 4.0, "tests": 2})
    assert (above(COMPUTES, total), above(WAITS, total)) == (-6.0, 5.0)


def test_the_report_names_what_is_above_its_budget_and_shows_no_group_that_did_not_run() -> None:
    core = groups().of("tests/core/test_contracts.py")
    lines = list(table({core.name: Counter({"cpu_seconds": core.seconds + 7.0, "tests": 3})}))
    assert [line.split()[0] for line in lines] == ["group", "core", "Load", "OVER"]
    assert lines[-1] == "OVER BUDGET: core by 7 s"
    assert list(table({}))[-1] == "Every group keeps its budget"


def test_the_longest_come_first() -> None:
    short, long = Counter({"seconds": 1.0, "tests": 1}), Counter({"seconds": 9.0, "cpu_seconds": 2.0, "tests": 3})
    head, *lines = longest("file", {"tests/a.py": short, "tests/b.py": long})
    assert head.split()[:2] == ["file", "tests"]
    assert [line.split() for line in lines] == [["tests/b.py", "3", "2", "9"], ["tests/a.py", "1", "0", "1"]]
    assert len(list(longest("lane", {f"tests/{at}.py": short for at in range(100)}))) == 31
