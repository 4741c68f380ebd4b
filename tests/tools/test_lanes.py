"""The lanes of a parallel run: the tables name files that exist, and who shares a sandbox disturbs nobody there."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import lanes
from tests.groups import ROOT
from tests.scheduler import Lanes

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
    assert not {name for name in lanes._SHARING if not (FOLDER / name).exists()}
    starting = {path.name for path in FOLDER.glob("test_*.py") if "\ndef sandbox(" in path.read_text(encoding="utf-8")}
    assert starting == lanes._APART


def test_a_file_that_shares_its_sandbox_disturbs_no_other() -> None:
    found = {path.name: DISTURBING.findall(path.read_text(encoding="utf-8")) for path in sharing()}
    assert len(found) == len(lanes._SHARING)
    assert {name: words for name, words in found.items() if words and name not in OWN} == {}


@pytest.mark.parametrize("name", ["kill", "trust", "live_settings", "stolen_webhook", "admission", "mps", "topology"])
def test_what_disturbs_others_is_found(name: str) -> None:
    assert DISTURBING.search((FOLDER / f"test_{name}.py").read_text(encoding="utf-8"))


def test_a_file_is_a_lane_and_takes_a_sandbox_for_itself_unless_a_table_names_it() -> None:
    assert lanes.lane("tests/cluster/test_chart.py::test_x") == "tests/cluster/test_chart.py"
    assert lanes.sandbox_of("tests/cluster/test_chart.py::test_x") == lanes.SHARED_SANDBOX
    assert lanes.sandbox_of("tests/cluster/test_kill.py") == lanes.FREE_SANDBOX
    assert lanes.sandbox_of("tests/cluster/test_new.py::test_x[a/b]") == lanes.FREE_SANDBOX
    assert lanes.sandbox_of("tests/cluster/test_observing.py::test_x") is None
    assert lanes.sandbox_of("tests/realnode/test_log.py::test_x") is None
    assert lanes.lane("tests/realnode/test_log.py::test_x") == lanes.lane("tests/installation/test_install.py::test_x")
    assert lanes.lane("tests/core/test_contracts.py::test_x[a/b]") == "tests/core/test_contracts.py"


def test_what_waits_begins_first_and_what_judges_by_all_others_comes_last() -> None:
    mixed = [
        "core/test_contracts",
        "rights/test_rights",
        "cluster/test_chart",
        "cluster/test_observing",
        "cluster/test_kill",
        "sandbox/test_soak",
    ]
    found = sorted(mixed, key=lambda name: lanes.rank(f"tests/{name}.py"))
    assert found == [
        "cluster/test_kill",
        "sandbox/test_soak",
        "cluster/test_observing",
        "cluster/test_chart",
        "core/test_contracts",
        "rights/test_rights",
    ]


class Worker:
    """A worker of pytest-xdist that only notes what it is given."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def given(config: pytest.Config, names: list[str], *, workers: int) -> tuple[Lanes, list[Worker], list[str]]:
    """A scheduler that has given its first work, with the tests in the order of a run."""
    tests = sorted((f"tests/{name}.py::test_{at}" for name in names for at in range(4)), key=lanes.rank)
    scheduler = Lanes(config)
    scheduler.numnodes = workers
    made = [Worker() for _ in range(workers)]
    for worker in made:
        node: Any = worker
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    return scheduler, made, tests


def files_of(worker: Worker, tests: list[str]) -> list[str]:
    return list(dict.fromkeys(tests[at].partition("::")[0].removeprefix("tests/") for at in worker.given))


@pytest.fixture
def as_of_a_run(request: pytest.FixtureRequest) -> Iterator[pytest.Config]:
    """The configuration, with the options of a run with workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request.config.option, "tx", ["popen"], raising=False)
        patch.setattr(request.config.option, "loadscopereorder", False, raising=False)
        yield request.config


def test_no_more_files_run_than_there_are_free_sandboxes_and_the_others_wait_in_the_queue(
    as_of_a_run: pytest.Config,
) -> None:
    alone = [f"cluster/test_{name}" for name in ("kill", "cli", "trust", "queue", "moves")]
    scheduler, workers, tests = given(as_of_a_run, [*alone, "core/test_x", "core/test_y"], workers=4)
    first = [files_of(worker, tests) for worker in workers]
    assert first == [["cluster/test_kill.py"], ["cluster/test_cli.py"], ["core/test_x.py"], ["core/test_y.py"]]
    # One that has done its file takes the next; where only such files are left, a worker waits with one.
    for at in list(workers[2].given):
        scheduler.mark_test_complete(cast("Any", workers[2]), at)
    for at in list(workers[0].given):
        scheduler.mark_test_complete(cast("Any", workers[0]), at)
    assert files_of(workers[0], tests)[1:] == ["cluster/test_queue.py"]
    assert files_of(workers[2], tests)[1:] == ["cluster/test_trust.py"]


def test_a_worker_whose_file_is_done_leaves_room_for_another(as_of_a_run: pytest.Config) -> None:
    alone = [f"cluster/test_{name}" for name in ("kill", "cli", "trust", "queue")]
    scheduler, workers, tests = given(as_of_a_run, [*alone, "core/test_x", "core/test_y", "core/test_z"], workers=3)
    assert [files_of(worker, tests) for worker in workers] == [
        ["cluster/test_kill.py"], ["cluster/test_cli.py"], ["core/test_x.py"],
    ]  # fmt: skip
    for at in list(workers[2].given):
        scheduler.mark_test_complete(cast("Any", workers[2]), at)
    assert files_of(workers[2], tests)[1:] == ["core/test_y.py"]
    for at in list(workers[0].given):
        scheduler.mark_test_complete(cast("Any", workers[0]), at)
    assert files_of(workers[0], tests)[1:] == ["cluster/test_trust.py"]
