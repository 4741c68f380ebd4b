"""What programs get when a command fails."""

import json

import pytest
import yaml

from dovetail_cli.ui import error_format


@pytest.mark.parametrize(
    ("command", "words", "form"),
    [
        ("gqueue", "-a -o json", "json"),
        ("gqueue", "-ojson", "json"),
        ("gqueue", "--output=yaml -a", "yaml"),
        ("gqueue", "--output yaml", "yaml"),
        ("gqueue", "-o json -o csv", "json"),
        ("gqueue", "-o csv", ""),
        ("gqueue", "-o", ""),
        ("gqueue", "", ""),
        ("gjob", "show 7 -o json", "json"),
        ("gbatch", "-n train -o json python train.py", "json"),
        ("gbatch", "--dry-run -o json python train.py", "json"),
        ("gbatch", "-n train python train.py -o json", ""),
        ("gbatch", "-- -o json", ""),
    ],
)
def test_the_format_is_read_from_the_command_line(command: str, words: str, form: str) -> None:
    assert error_format.of(words.split(), command=command) == form


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_an_error_is_a_document(form: str, load: object, capsys: pytest.CaptureFixture[str]) -> None:
    error_format.print_error('no job "7": é', exit_code=3, form=form)
    assert callable(load)
    assert load(capsys.readouterr().out) == {"error": {"message": 'no job "7": é', "code": 3}}
