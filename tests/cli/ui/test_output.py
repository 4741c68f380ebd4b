import csv
import io
import json

import pytest
import yaml

from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError

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
    narrow = output.table(LONG, width=10).split("\n")
    assert narrow[1] == "7      train-r…  (Resour…"


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
