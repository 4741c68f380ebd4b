"""`dovetail config check`: what a program would say at its start, and what differs from the defaults."""

import io
import json
from pathlib import Path

import pytest

from dovetail_cli import app
from tests.spec_values import RANKED

CONFIG = "policy: Pack\nhistory_days: 7\npreemption: {grace: 60}\ngpu_memory_specs: {X9: 12}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gpu_config.yaml"


def test_a_file_in_order_shows_what_differs_and_when_it_counts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(CONFIG)
    assert app.main(["config", "check", str(file)]) == 0
    assert [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()[:-1]] == [
        ["KEY", "VALUE", "DEFAULT", "EFFECT"],
        ["gpu_memory_specs.X9", "12", "after", "a restart"],
        ["policy", "Pack", "Balanced", "at once"],
        ["preemption.grace", "60", "30", "at once"],
        ["history_days", "7", "400", "after a restart"],
    ]
    assert app.main(["config", "check", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["default"] == "Balanced"


@pytest.mark.parametrize("key", RANKED)
def test_what_a_namespace_has_is_shown_as_a_file_has_it(
    key: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps({key: {"vision": RANKED[key]}}))
    assert app.main(["config", "check", str(file), "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["key"], row["value"]) == (f"{key}.vision", RANKED[key])


@pytest.mark.parametrize("text", ["", "policy: Balanced\n", "{}"])
def test_a_file_of_defaults_says_so(text: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert app.main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is in order: no key differs from its default.\n"


@pytest.mark.parametrize(
    "text",
    ["config: {policy: Pack}\nwebhook: {enabled: true}\n", "kind: ConfigMap\ndata: {gpu_config.yaml: 'policy: Pack'}"],
)
def test_the_charts_values_and_a_configmap_are_looked_into(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert app.main(["config", "check", "-"]) == 0
    assert "standard input is in order: 1 differ" in capsys.readouterr().out


def test_all_that_is_wrong_is_said_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("policy: Pak\nhistory_dayz: 7\npreemption: {grace: 0}\n")
    assert app.main(["config", "check", str(file)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"dovetail: {file}: ") for line in said] == [
        'policy is "Pak", but must be Spread, Pack or Balanced; did you mean "Pack"?',
        "preemption.grace is 0, but must be a whole number from 1 to 86400 (seconds)",
        'unknown key "history_dayz"; did you mean "history_days"?',
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("policy: [", "is not YAML"),
        ("- policy", "must be a map of keys and values, not list"),
        ("kind: ConfigMap\n", "this ConfigMap has no text gpu_config.yaml"),
        ("history_url: postgresql://me:secret@host/db\n", "history_url has a password before its host"),
    ],
)
def test_a_file_that_no_program_starts_with_is_refused(
    text: str, problem: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert app.main(["config", "check", str(file)]) == 2
    assert problem in capsys.readouterr().err


def test_a_file_that_is_not_there_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["config", "check", "/nowhere.yaml"]) == 3
    assert capsys.readouterr().err == "dovetail: /nowhere.yaml: there is no such file\n"
