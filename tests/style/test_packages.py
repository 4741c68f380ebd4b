"""The architecture page shows the packages as they are, and no folder shows more rooms than a reader can survey."""

from pathlib import Path

import pytest

from tests.style.packages import PAGE, PARTS, ROOT, with_table

MOST_ROOMS = 20
FOLDERS = sorted(path.parent for folder in PARTS for path in (ROOT / folder).rglob("__init__.py"))


def test_the_page_shows_the_packages_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run `python -m tests.style.packages`"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_shows_few_rooms(folder: Path) -> None:
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    packages = list(folder.glob("*/__init__.py"))
    assert len(modules) + len(packages) <= MOST_ROOMS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_package_says_what_belongs_there(folder: Path) -> None:
    assert (folder / "__init__.py").read_text(encoding="utf-8").startswith('"""')
