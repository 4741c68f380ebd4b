"""The page of AI conformance has each row of the checklist, and its evidence exists."""

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
ROWS: Final = dict(re.findall(r"^\| `(\w+)` \| (MUST|SHOULD) \| \S", PAGE, flags=re.MULTILINE))
STATUS: Final = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (\w+)", PAGE, flags=re.MULTILINE))


def test_the_page_has_each_row_of_the_checklist_with_its_level() -> None:
    folder = Path(os.environ.get("DOVETAIL_FOREIGN", ROOT.parent / "shared" / "foreign"))
    file = folder / "conformance" / "KubernetesAIConformance-1.36.yaml"
    if not file.exists():
        pytest.skip(f"there is no {file}")
    areas: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    assert {row["id"]: row["level"] for rows in areas.values() for row in rows} == ROWS


def test_a_row_is_fulfilled_partly_or_not_or_belongs_to_the_platform() -> None:
    assert STATUS.keys() == ROWS.keys()
    assert set(STATUS.values()) <= {"yes", "partly", "no", "platform"}
    must = [STATUS[row] for row, level in ROWS.items() if level == "MUST"]
    assert (must.count("yes"), must.count("platform"), len(must)) == (6, 2, 8)


def test_a_row_that_is_fulfilled_names_a_command_with_files_that_exist() -> None:
    lines = {row: line for line in PAGE.splitlines() if (row := line.partition("`")[2].partition("`")[0]) in ROWS}
    evidence = {row: re.findall(r"\btests/[\w/]+(?:\.py)?", line) for row, line in lines.items()}
    assert [row for row, files in evidence.items() if STATUS[row] == "yes" and not files] == []
    named = {file for files in evidence.values() for file in files}
    assert [file for file in named if not (ROOT / file).exists()] == []
