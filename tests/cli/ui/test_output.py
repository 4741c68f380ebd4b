import csv
import io
import json

import pytest
import yaml

from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError
from tests.cli.ui import golden

ROWS = [{"ID": 1, "NAME": "a, b", "NODE": None}, {"ID": 10, "NAME": "längst", "NODE": "x"}]
COLUMNS = ("ID", "NAME", "NODE")


def test_a_table_is_padded_with_spaces_and_ends_without_them() -> None:
    assert output.render(ROWS, columns=COLUMNS, form="table") == "ID  NAME    NODE\n1   a, b\n10  längst  x"


@pytest.mark.parametrize(
    ("form", "text"), [("table", "ID  NAME  NODE"), ("json", "[]"), ("yaml", "[]"), ("csv", "ID,NAME,NODE")]
)
def test_an_empty_list_is_still_valid(form: str, text: str) -> None:
    assert output.render([], columns=COLUMNS, form=form) == text


def test_json_yaml_and_csv_carry_the_same() -> None:
    assert json.loads(output.render(ROWS, columns=COLUMNS, form="json")) == ROWS
    assert yaml.safe_load(output.render(ROWS, columns=COLUMNS, form="yaml")) == ROWS
    read = list(csv.DictReader(io.StringIO(output.render(ROWS, columns=COLUMNS, form="csv"))))
    assert read == [{"ID": "1", "NAME": "a, b", "NODE": ""}, {"ID": "10", "NAME": "längst", "NODE": "x"}]


def test_an_unknown_format_lists_the_allowed() -> None:
    with pytest.raises(UsageError, match='-o "xml": unknown format, allowed are table, json, yaml, csv'):
        output.check_format("xml")


def test_colours_are_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.paint("bad", colour="red") == "bad"
    assert output.bold("loud") == "loud"


@pytest.mark.parametrize(
    ("environment", "styled"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_may_want_no_colours(
    environment: dict[str, str], styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    assert (output.paint("bad", colour="red") != "bad", output.bold("loud") != "loud") == (styled, styled)


LONG = [
    ["JOBID", "NAME", "NODELIST(REASON)"],
    ["7", "train-resnet-on-imagenet", "(Resources: Need 16 GPUs, only 8 available on one node of pool a100)"],
    ["8", "b", "a100-0:0,1"],
]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_fits_its_terminal_and_says_where_it_is_cut(width: int) -> None:
    lines = output.table(LONG, width=width).split("\n")
    whole = output.table(LONG).split("\n")
    assert all(len(line) <= width for line in lines)
    assert (lines == whole) == (max(map(len, whole)) <= width)
    for line, uncut in zip(lines, whole, strict=True):
        assert ("…" in line) == (line.split() != uncut.split())


def test_the_widest_column_is_cut_first_and_none_to_nothing() -> None:
    assert output.table(LONG, width=80).split("\n")[1] == (
        "7      train-resnet-on-imagenet  (Resources: Need 16 GPUs, only 8 available on …"
    )
    assert output.table(LONG, width=25).split("\n")[1] == "7      train-r…  (Resour…"


def test_figures_stay_whole_and_a_terminal_too_narrow_for_all_shows_the_first_columns() -> None:
    lines = [["NAME", "TIME", "REASON"], ["a-long-name", "00:01:30", "(Resources: Need 16 GPUs)"]]
    assert output.table(lines, width=22).split("\n")[1] == "a-lo…  00:01:30  (Res…"
    assert output.table(lines, width=12) == "NA…  TIME\na-…  00:0…"


def test_a_chinese_character_takes_two_columns() -> None:
    lines = [["NAME", "ST"], ["深度学习", "R"], ["ab", "R"]]
    assert output.table(lines) == "NAME      ST\n深度学习  R\nab        R"
    assert output.table([["N"], ["深度学习训练"]], width=8) == "N\n深度学…"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("  key=one two three", 12, "  key=one\n    two\n    three"),
        ("a wordthatiswiderthanall b", 10, "a\n  wordthatiswiderthanall\n  b"),
        ("\x1b[32mgreen\x1b[0m words", 11, "\x1b[32mgreen\x1b[0m words"),
        ("A  B", 3, "A\n  B"),
    ],
)
def test_a_line_goes_on_below_its_text_and_breaks_at_blanks_only(text: str, width: int, shown: str) -> None:
    assert output.wrapped(text, width=width) == shown


def test_text_for_a_pipe_keeps_its_lines() -> None:
    assert output.wrapped("word " * 100) == "word " * 100


def test_a_cell_leads_to_its_page_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, links = [{"ID": 7, "NAME": "a"}], {"ID": {"7": "http://gpu/console"}}
    assert output.render(rows, columns=("ID", "NAME"), form="table", links=links) == "ID  NAME\n7   a"
    monkeypatch.setattr(output, "in_colour", lambda: True)
    linked = output.render(rows, columns=("ID", "NAME"), form="table", links=links).split("\n")[1]
    assert linked == "\x1b]8;;http://gpu/console\x1b\\7\x1b]8;;\x1b\\   a"


@pytest.mark.parametrize("name", golden.VIEWS)
def test_each_view_is_what_its_golden_file_shows_at_60_80_120_and_200_columns(name: str) -> None:
    assert golden.golden(name) == (golden.FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", golden.WIDTHS)
@pytest.mark.parametrize("name", golden.VIEWS)
def test_no_line_of_a_view_is_wider_than_its_terminal_but_for_one_word(name: str, width: int) -> None:
    wide = [line for line in golden.shown(name, width=width).split("\n") if output.cell_width(line) > width]
    assert all(len(line.split()) == 1 for line in wide)


def test_what_goes_into_a_pipe_is_not_cut() -> None:
    assert output.terminal_width() is None


def test_states_have_colours_on_a_terminal_and_the_columns_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"ST": "R", "NAME": "a"}, {"ST": "PD", "NAME": "b"}]
    plain = output.render(rows, columns=("ST", "NAME"), form="table", colours={"ST": {"R": "green"}})
    assert plain == "ST  NAME\nR   a\nPD  b"
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    painted = output.render(rows, columns=("ST", "NAME"), form="table", colours={"ST": {"R": "green"}})
    assert painted == "ST  NAME\n\x1b[32mR \x1b[0m  a\nPD  b"
