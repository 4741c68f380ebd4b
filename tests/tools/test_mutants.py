"""The mutation testing itself: which mutants there are, that they take effect, and which lines count as changed."""

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from cosmic_ray.mutating import mutate_code

from tools.mutants import operators as ours
from tools.mutants.catalogue import MODULE_LEVEL, Mutant, mutants_of
from tools.mutants.changed import base_of, changed_lines
from tools.mutants.packages import PACKAGES
from tools.mutants.planted import bugs_of
from tools.mutants.swap import living_functions, swap

SOURCE = '''
"""A module."""
from dataclasses import dataclass, field

LIMIT: int | None = 5
UNITS = {"GB": 1000}


@dataclass(frozen=True)
class Box:
    size: int = 3
    open: bool = True
    items: list[int] = field(default_factory=list, repr=False)

    @property
    def room(self) -> int:
        return max(self.size - len(self.items), 0)


def smallest(amounts, *, least: int = 7):
    if not amounts:
        return None
    return min([amount for amount in amounts if amount >= least])
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "mutated_sample.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("mutated_sample")  # type: ignore[misc]
    del sys.modules["mutated_sample"]


def found(module: ModuleType) -> list[Mutant]:
    return list(mutants_of("mutated_sample", path=Path(str(module.__file__))))


def change(module: ModuleType, text: str) -> Mutant:
    (mutant,) = [each for each in found(module) if each.change.split("  ->  ")[1] == text]
    return mutant


@pytest.mark.parametrize("operator", ours.OURS)
def test_each_operator_does_what_its_examples_say(operator: type) -> None:
    for example in operator.examples():
        assert mutate_code(example.pre_mutation_code, operator(), 0) == example.post_mutation_code


def test_annotations_decorators_and_settings_have_no_mutants(module: ModuleType) -> None:
    lines = SOURCE.split("\n")
    changed = {lines[each.line - 1].strip() for each in found(module)}
    assert changed == {
        'UNITS = {"GB": 1000}',
        "open: bool = True",
        "return max(self.size - len(self.items), 0)",
        "if not amounts:",
        "return min([amount for amount in amounts if amount >= least])",
    }


def test_type_aliases_have_no_mutants_and_values_that_are_looked_up_have(tmp_path: Path) -> None:
    path = tmp_path / "aliases.py"
    path.write_text('Key = tuple[str, int]\nSites = dict[str, list[str]]\nLIMIT = LIMITS["a", "b"]\n')
    assert {mutant.line for mutant in mutants_of("aliases", path=path)} == {3}


def test_a_change_that_is_no_program_is_known_as_one(tmp_path: Path) -> None:
    path = tmp_path / "named.py"
    path.write_text("def first(words):\n    if word := next(iter(words), None):\n        return word\n    return ''\n")
    mutants = mutants_of("named", path=path)
    assert {mutant.operator for mutant in mutants if not mutant.is_program} == {"AddNot"}
    assert any(mutant.is_program for mutant in mutants)


def test_every_mutant_is_a_program_that_differs_in_its_line(module: ModuleType) -> None:
    for mutant in found(module):
        differing = [
            number
            for number, (old, new) in enumerate(
                zip(SOURCE.split("\n"), mutant.source.split("\n"), strict=True), start=1
            )
            if old != new
        ]
        assert differing == [mutant.line]


@pytest.mark.parametrize(
    ("text", "function", "before", "after"),
    [
        ("return max([amount for amount in amounts if amount >= least])", "smallest", 8, 9),
        ("return min([amount for amount in amounts if True])", "smallest", 8, 1),
        ("return min(self.size - len(self.items), 0)", "Box.room", 3, 0),
    ],
)
def test_a_function_that_was_imported_already_gets_its_mutated_code(
    module: ModuleType, text: str, function: str, before: int, after: int
) -> None:
    mutant = change(module, text)
    ask: Callable[[], int] = (
        (lambda: module.smallest([1, 8, 9])) if function == "smallest" else lambda: module.Box().room
    )
    assert (mutant.function, ask()) == (function, before)
    assert swap(path=mutant.path, mutated=mutant.source, living=living_functions())
    assert ask() == after


@pytest.mark.parametrize("text", ['UNITS = {"GB": 1001}', "open: bool = False"])
def test_what_took_effect_at_the_import_cannot_be_swapped(module: ModuleType, text: str) -> None:
    (mutant,) = [each for each in found(module) if each.change.replace("  ", " ").endswith(text)]
    assert mutant.function == MODULE_LEVEL
    assert not swap(path=mutant.path, mutated=mutant.source, living=living_functions())


def test_a_mutant_keeps_its_identity_when_other_lines_move(module: ModuleType) -> None:
    before = {each.identity for each in found(module)}
    path = Path(str(module.__file__))
    path.write_text("# one more line\n\n" + SOURCE)
    assert {each.identity for each in mutants_of("mutated_sample", path=path)} == before


# --- changed lines ---------------------------------------------------------------------------------------------------


@pytest.fixture
def commit(tmp_path: Path) -> Callable[..., str]:
    """Writes files, commits them, and gives the commit's name."""

    def git(*arguments: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--initial-branch=main")

    def made(branch: str = "", **files: str) -> str:
        if branch:
            git("checkout", "-q", "-b", branch)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        git("add", "--all")
        git("commit", "-q", "-m", "one more")
        return git("rev-parse", "HEAD")

    return made


def test_without_a_repository_or_a_second_commit_there_is_nothing_to_compare_with(
    tmp_path: Path, commit: Callable[..., str]
) -> None:
    assert base_of(tmp_path) is None
    commit(a="1\n")
    assert base_of(tmp_path) is None


def test_on_main_the_last_commit_counts_and_on_a_branch_all_since_main(
    tmp_path: Path, commit: Callable[..., str]
) -> None:
    commit(a="1\n")
    second = commit(a="2\n")
    third = commit(a="3\n")
    assert base_of(tmp_path) == second
    commit("branch", a="4\n")
    commit(a="5\n")
    assert base_of(tmp_path) == third


def test_new_and_other_lines_are_changed_and_lines_that_went_or_moved_are_not(
    tmp_path: Path, commit: Callable[..., str]
) -> None:
    text = "".join(f"line{number}()\n" for number in range(20))
    base = commit(a=text, b=text, c="gone()\n" + text)
    (tmp_path / "b.py").rename(tmp_path / "moved.py")
    (tmp_path / "new.py").write_text("one()\ntwo()\n")
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text(text.replace("line3()", "other()"))
    (tmp_path / "c.py").write_text(text)
    assert changed_lines(tmp_path, base=base) == {"a.py": {4}, "new.py": {1, 2}}


def test_every_package_that_is_judged_has_a_row_in_the_docs_with_85_percent_at_least() -> None:
    row = re.compile(r"^\| `([\w.]+)` \| (\d+) \| (\d+) \((\d+) %\) \| (\d+) \|", re.MULTILINE)
    rows = {
        name: (int(tried), int(killed)) for name, tried, killed, *_ in row.findall(Path("docs/testing.md").read_text())
    }
    assert set(rows) == set(PACKAGES)
    assert [name for name, (tried, killed) in rows.items() if killed < 0.85 * tried] == []


def test_a_patch_is_the_module_with_the_bug_and_the_functions_that_it_changes(
    commit: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "pack").mkdir()
    commit(**{"pack/sample": SOURCE})
    patch = _patch(tmp_path, old="    if not amounts:\n        return None\n", new="")
    (bug,) = bugs_of(patch.parent, checkout=tmp_path)
    assert (bug.patch, bug.module, bug.path) == ("01", "sample", tmp_path / "pack" / "sample.py")
    assert bug.functions == {"smallest"}
    assert bug.source == SOURCE.replace("    if not amounts:\n        return None\n", "")
    assert bug.path.read_text() == SOURCE


def test_a_patch_of_a_setting_is_outside_of_every_function(commit: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    commit(**{"pack/sample": SOURCE})
    patch = _patch(tmp_path, old="LIMIT: int | None = 5", new="LIMIT: int | None = 6")
    (bug,) = bugs_of(patch.parent, checkout=tmp_path)
    assert bug.functions == {MODULE_LEVEL}


def test_a_patch_of_other_code_is_refused(commit: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    commit(**{"pack/sample": SOURCE})
    patch = _patch(tmp_path, old="    size: int = 3", new="    size: int = 4")
    commit(**{"pack/sample": SOURCE.replace("    size: int = 3", "    size: int = 5")})
    with pytest.raises(ValueError, match=r"01\.patch cannot be applied"):
        list(bugs_of(patch.parent, checkout=tmp_path))


def _patch(repository: Path, *, old: str, new: str) -> Path:
    """What turns the one text of the module into the other, in a folder of its own; the module stays as it is."""
    module = repository / "pack" / "sample.py"
    module.write_text(SOURCE.replace(old, new))
    difference = subprocess.run(["git", "diff"], cwd=repository, check=True, capture_output=True, text=True).stdout
    module.write_text(SOURCE)
    patch = repository / "patches" / "01.patch"
    patch.parent.mkdir()
    patch.write_text(difference)
    return patch
