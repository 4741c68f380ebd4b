"""The lanes of a parallel run: the tables name files that exist, and who shares a sandbox disturbs nobody there."""

import re
from pathlib import Path

import pytest

from tests import lanes
from tests.groups import ROOT

FOLDER = ROOT / "tests" / "cluster"
# What stops or pauses programs, changes settings, webhooks or nodes that are there, or has objects of the cluster by
# one name: the RuntimeClasses of the fixture `mallory`.
DISTURBING = re.compile(
    r"sandbox\.(?:stop|start|restart)\b|\bkill\((?:scene\.)?sandbox|\bpaused\(|set_config|without_ours"
    r"|authentication\b.*: Path|\"(?:v100|a100|t4|cpu)-\d\"|main_output\(\"limits\"|def test_.*\bmallory: Client"
)
OWN = {
    # It has an account `mallory` of its own, and names a node in refusals.
    "test_ownership.py",
}


def sharing() -> list[Path]:
    return [path for path in FOLDER.glob("test_*.py") if is_shared(path)]


def is_shared(path: Path) -> bool:
    return lanes.sandbox_of(str(path.relative_to(ROOT))) == lanes.SHARED_SANDBOX


def test_every_file_of_a_table_is_there() -> None:
    named = lanes._SHARING | lanes._IN_SECOND_SANDBOX
    assert not {name for name in named if not (FOLDER / name).exists()}
    assert not lanes._SHARING & lanes._IN_SECOND_SANDBOX


def test_a_file_that_shares_its_sandbox_disturbs_no_other() -> None:
    found = {path.name: DISTURBING.findall(path.read_text(encoding="utf-8")) for path in sharing()}
    assert len(found) == len(lanes._SHARING)
    assert {name: words for name, words in found.items() if words and name not in OWN} == {}


@pytest.mark.parametrize("name", ["kill", "trust", "live_settings", "stolen_webhook", "admission", "mps", "topology"])
def test_what_disturbs_others_is_found(name: str) -> None:
    assert DISTURBING.search((FOLDER / f"test_{name}.py").read_text(encoding="utf-8"))


def test_a_shared_file_is_a_lane_and_the_files_of_a_sandbox_of_its_own_are_one() -> None:
    assert lanes.lane("tests/cluster/test_chart.py::test_x") == "tests/cluster/test_chart.py"
    assert lanes.lane("tests/cluster/test_kill.py::test_x") == lanes.lane("tests/cluster/test_cli.py::test_x")
    assert lanes.lane("tests/cluster/test_new.py::test_x") == lanes.FIRST_SANDBOX
    assert lanes.lane("tests/core/test_contracts.py::test_x[a/b]") == "tests/core/test_contracts.py"


def test_what_waits_begins_first_and_what_judges_by_all_others_comes_last() -> None:
    mixed = [
        "core/test_contracts",
        "rights/test_rights",
        "cluster/test_chart",
        "cluster/test_kill",
        "sandbox/test_soak",
    ]
    found = sorted(mixed, key=lambda name: lanes.rank(f"tests/{name}.py"))
    assert [name.partition("/")[0] for name in found] == ["cluster", "cluster", "sandbox", "core", "rights"]
    assert found[0] == "cluster/test_kill"
