"""docs/commands.md and its translation have each command's usage, options and examples as it declares them."""

from pathlib import Path

import pytest

from tools.commands import pages
from tools.commands.tree import commands


@pytest.mark.parametrize("page", pages.PAGES, ids=["English", "Chinese"])
def test_the_blocks_of_the_page_are_fresh(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pages.generated(page), "run `python -m tools.commands`"


@pytest.mark.parametrize("page", pages.PAGES, ids=["English", "Chinese"])
def test_the_page_has_each_command_once(page: Path) -> None:
    assert sorted(pages.shown(page)) == sorted(commands())


def test_no_meaning_is_of_an_option_that_does_not_exist() -> None:
    known = {name: {option.name for option in each.options} for name, each in commands().items()}
    for language, of_commands in pages.meanings().items():
        unknown = {
            f"{language} {name} {option}"
            for name, meanings in of_commands.items()
            for option in meanings
            if option not in known.get(name, ())
        }
        assert unknown == set()


def test_both_languages_explain_the_same_options() -> None:
    keys = [
        {(name, option) for name, meanings in of_commands.items() for option in meanings}
        for of_commands in pages.meanings().values()
    ]
    assert keys[0] == keys[1]


def test_an_option_has_its_words_its_default_and_its_meaning() -> None:
    options = {option.name: option for option in commands()["gjob attach"].options}
    assert options["--port"].words == ("--port [LOCAL:]PORT",)
    assert (options["--worker"].default, "kubeconfig" in str(options)) == ("0", False)


def test_a_block_that_is_old_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- command: gjob redo -->\nold\n<!-- end -->\n\nafter\n")
    monkeypatch.setattr(pages, "_TITLES", {page: "| option | default | meaning |"})
    monkeypatch.setattr(pages, "_LANGUAGES", {page: "en"})
    written = pages.generated(page)
    assert written.startswith("before\n\n<!-- command: gjob redo -->\n`gjob redo {JOB}`: Submit")
    assert written.endswith("$ gjob redo 7\n```\n<!-- end -->\n\nafter\n")
    page.write_text("<!-- command: gjob gone -->\n<!-- end -->\n")
    with pytest.raises(KeyError, match="gjob gone"):
        pages.generated(page)
