"""A translated page is as new as the English one, section by section."""

import pytest

from tests.style import translations
from tests.style.translations import PAGES


@pytest.mark.parametrize("page", PAGES)
def test_every_section_translates_the_present_english_one(page: str) -> None:
    assert not translations.stale(page), "translate it, then run `python -m tests.style.translations --done`"


def test_a_changed_section_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = translations.sections

    def changed(text: str) -> list[tuple[str, str]]:
        found = original(text)
        return [*found[:-1], (found[-1][0], found[-1][1] + "\nMore.")] if "## Limitations" in text else found

    monkeypatch.setattr(translations, "sections", changed)
    assert translations.stale("README.zh-CN.md") == ["README.zh-CN.md: ## 局限 is older than ## Limitations"]


def test_a_missing_section_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = translations.sections
    monkeypatch.setattr(translations, "sections", lambda text: original(text)[: 3 if "# 局限" in text else None])
    assert translations.stale("README.zh-CN.md") == ["README.zh-CN.md has 3 sections, README.md has 8"]
