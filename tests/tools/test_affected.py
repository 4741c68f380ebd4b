"""Which groups of tests a change leaves out of `make test`."""

from pathlib import Path

import pytest

from tests import affected
from tests.affected import Imports, base_of, cause, note_passed
from tests.groups import ROOT, groups
from tools.changes import git


@pytest.fixture(scope="module")
def imports() -> Imports:
    return Imports(ROOT)


def runs(*changed: str, imports: Imports) -> set[str]:
    """The optional groups that run after these files have changed."""
    found = groups()
    optional = [group for group in found.every if group.is_optional]
    return {group.name for group in optional if cause(group, changed=changed, everyone=found.of_all, imports=imports)}


@pytest.mark.parametrize(
    ("changed", "named", "left_out"),
    [
        ("cli/dovetail_cli/ui/examples.py", set(), {"real node", "installation", "images", "packaging"}),
        ("docs/testing.md", set(), {"real node", "installation", "images", "console in a browser"}),
        ("node_agent/dovetail_agent/agent.py", {"real node"}, {"images", "console in a browser"}),
        # The agent imports it, and so does the gateway.
        ("core/dovetail/kube/client.py", {"real node", "console in a browser"}, {"images"}),
        ("console/src/app.tsx", {"console in a browser", "packaging"}, {"real node", "images"}),
        ("images/build.sh", {"images", "installation", "real node"}, {"console in a browser"}),
        ("helm/dovetail/values.yaml", {"installation"}, {"real node"}),
        ("cli/dovetail_cli/app.py", {"sandboxes that start and end"}, {"real node"}),
        # Data counts as its package.
        ("sandbox/dovetail_sandbox/data/stages.yaml", {"sandboxes that start and end", "real node"}, {"images"}),
        ("core/dovetail/kube/__init__.py", {"real node", "console in a browser"}, {"images"}),
        # A file that is gone counts as its package.
        ("node_agent/dovetail_agent/guards/gone.py", {"real node"}, {"images"}),
        # What the tests share.
        ("tests/realnode/conftest.py", {"real node"}, {"images"}),
        ("tests/gateway/served.py", {"console in a browser"}, {"real node"}),
    ],
)
def test_a_group_runs_if_something_changed_that_it_depends_on(
    changed: str, named: set[str], left_out: set[str], imports: Imports
) -> None:
    found = runs(changed, imports=imports)
    assert found >= named
    assert not found & left_out


@pytest.mark.parametrize(
    "folder",
    ["agent", "cli", "core", "extender", "gateway", "local_node", "operator_", "sandbox", "sdk", "webhook", "world"],
)
def test_no_change_leaves_out_the_unit_tests_of_a_part(folder: str) -> None:
    assert not groups().of(f"tests/{folder}/test_x.py").is_optional


@pytest.mark.parametrize("path", ["pyproject.toml", "requirements.lock", "tests/conftest.py", ".ci/run"])
def test_what_concerns_every_group_leaves_out_none(path: str, imports: Imports) -> None:
    assert runs(path, imports=imports) == {group.name for group in groups().every if group.is_optional}


def test_without_a_base_every_group_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(affected, "base_of", lambda folder: None)
    affected.main()
    said = capsys.readouterr()
    assert said.out == ""
    assert "real node: runs: no commit is known to compare with" in said.err


def test_after_no_change_every_optional_group_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(affected, "base_of", lambda folder: "HEAD")
    monkeypatch.setattr(affected, "changed_files", lambda folder, *, base: frozenset())
    affected.main()
    said = capsys.readouterr().out.split()
    assert set(said) == {f"--ignore={path}" for group in groups().every if group.is_optional for path in group.tests}


def test_a_commit_that_ci_proved_counts_on_main_alone_and_if_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for number in range(2):
        git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@x", "commit", "-q", "--allow-empty", "-m", str(number))
    first = git(tmp_path, "rev-parse", "HEAD~1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".git" / "cache"))
    assert base_of(tmp_path) is None
    monkeypatch.setenv(affected.PROVED, first)
    assert base_of(tmp_path) == first
    monkeypatch.setenv(affected.PROVED, "0" * 40)
    assert base_of(tmp_path) is None


def test_a_commit_whose_run_has_passed_on_this_machine_counts_unless_files_differed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(affected.PROVED, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@x", "commit", "-q", "--allow-empty", "-m", "first")
    first = git(folder, "rev-parse", "HEAD")
    (folder / "new").touch()
    note_passed(folder, commit=first)
    assert base_of(folder) is None
    (folder / "new").unlink()
    note_passed(folder, commit="0" * 40)
    assert base_of(folder) is None, "during the run, another commit came"
    note_passed(folder, commit=first)
    assert base_of(folder) == first
    monkeypatch.setenv(affected.PROVED, "none")
    assert base_of(folder) is None


def test_what_a_branch_left_out_is_not_left_out_on_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(affected.PROVED, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    commit = ("-c", "user.name=t", "-c", "user.email=t@x", "commit", "-q", "--allow-empty", "-m")
    git(folder, "init", "-q", "-b", "main")
    git(folder, *commit, "first")
    git(folder, "checkout", "-q", "-b", "branch")
    git(folder, *commit, "of the branch")
    of_branch = git(folder, "rev-parse", "HEAD")
    note_passed(folder, commit=of_branch)
    git(folder, "checkout", "-q", "main")
    assert base_of(folder) is None
    git(folder, *commit, "of main")
    monkeypatch.setenv(affected.PROVED, of_branch)
    assert base_of(folder) is None, "the commit that the branch has left main at need not have passed"
    git(folder, "-c", "user.name=t", "-c", "user.email=t@x", "merge", "-q", "branch", "-m", "joined")
    assert base_of(folder) == of_branch


def test_every_test_has_a_group_and_every_path_of_a_group_is_there(request: pytest.FixtureRequest) -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        groups().of(str(path.relative_to(ROOT)))
    named = [path for group in groups().every for path in (*group.tests, *group.paths)] + list(groups().of_all)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_new_folder_belongs_to_the_others() -> None:
    assert groups().of("tests/new/test_new.py::test_x").name == "others"
