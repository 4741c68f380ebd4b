"""No folder gains a word that this project avoids."""

import json

import pytest

from tests.style.words import LIMITS, ROOT, found, places

ALLOWED = json.loads(LIMITS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_keeps_to_its_limit(folder: str) -> None:
    there = places(folder)
    listed = [f"{place.path.relative_to(ROOT)}:{place.line}: {place.word}" for place in there]
    assert len(there) <= ALLOWED[folder], "\n".join(listed)


def test_a_word_is_found_across_a_line_break_and_in_every_form() -> None:
    assert found("It lets\ngo. It made way. Reckoned anew.") == [
        (1, "lets go"),
        (2, "made way"),
        (2, "reckoned"),
        (2, "anew"),
    ]


def test_identifiers_links_and_allowed_phrases_do_not_count() -> None:
    assert found("`tests/told.py`, [a page](told.md); GPU stands for something.") == []


def test_a_command_in_backticks_counts() -> None:
    assert found("`gjob let go`") == [(1, "let go")]
