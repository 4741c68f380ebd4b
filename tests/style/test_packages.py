"""No folder shows more rooms than a reader can survey, and each says what belongs there."""

from pathlib import Path

from tests.style.packages import PARTS, ROOT

MOST_ROOMS = 20
FOLDERS = sorted(path.parent for folder in PARTS for path in (ROOT / folder).rglob("__init__.py"))


def rooms(folder: Path) -> int:
    """The number of its modules and packages."""
    return len(list(folder.glob("*.py"))) - 1 + len(list(folder.glob("*/__init__.py")))


def test_a_folder_shows_few_rooms() -> None:
    assert {str(folder.relative_to(ROOT)): rooms(folder) for folder in FOLDERS if rooms(folder) > MOST_ROOMS} == {}


def test_a_package_says_what_belongs_there() -> None:
    initial = [folder / "__init__.py" for folder in FOLDERS]
    assert [str(path.relative_to(ROOT)) for path in initial if not path.read_text("utf-8").startswith('"""')] == []
