"""How the doctor prints what it finds."""

import json
from typing import Any

import pytest

from dovetail.answers.doctor import CheckResult
from dovetail.query.doctor.findings import diagnosis_of
from dovetail_cli import app
from dovetail_cli.doctor import findings
from tests.core.query.doctor.test_diagnosis import GONE, picture, wrong


@pytest.mark.parametrize(("levels", "code"), [(["ok", "warning", "unknown"], 0), (["ok", "error"], 1), ([], 0)])
def test_only_errors_make_the_exit_code_1(levels: list[Any], code: int) -> None:
    assert (
        findings.exit_code(diagnosis_of([CheckResult(level=level, check="x", message="y") for level in levels])) == code
    )


def test_the_table_says_how_to_mend_what_is_wrong_and_counts() -> None:
    text = findings.render(diagnosis_of(wrong(picture(webhook=GONE, runtime_class=GONE))), form="table")
    assert "WARN   webhook" in text
    assert "to fix it: helm upgrade" in text
    assert text.endswith("0 in order, 1 warning, 1 error, 0 not looked at")


def test_many_nodes_in_order_are_one_line_and_whole_in_json() -> None:
    many = diagnosis_of([CheckResult(level="ok", check="node", subject=f"n{at}", message="2 GPUs") for at in range(50)])
    assert "n7" not in (table := findings.render(many, form="table"))
    assert "50 in order" in table
    whole = json.loads(findings.render(many, form="json"))
    assert (len(whole["items"]), whole["ok"], whole["errors"]) == (50, 50, 0)


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["doctor", "--host", "--root", "/nowhere"]) == 2
    assert capsys.readouterr().err == 'dovetail: --root "/nowhere": there is no such folder\n'
