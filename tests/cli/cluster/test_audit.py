"""How an audit is printed."""

import json

import pytest

from dovetail.audit.allocations import Report
from dovetail.audit.findings import Finding
from dovetail_cli.cluster.audit import render

FINDING = Finding(kind="NotSole", subject="a/0", message="two hold it")


def test_a_note_stands_below_and_leaves_the_audit_clean() -> None:
    report = Report(pods=1, devices=2, findings=(), notes=("a/0: moved by turns",))
    assert render(report, form="table") == "Audit clean: 1 pod, 2 devices\nNote: a/0: moved by turns"


@pytest.mark.parametrize("notes", [(), ("one",)])
def test_json_has_findings_and_notes(notes: tuple[str, ...]) -> None:
    told = json.loads(render(Report(pods=1, devices=2, findings=(FINDING,), notes=notes), form="json"))
    row = {"kind": "NotSole", "subject": "a/0", "message": "two hold it"}
    assert told == {"pods": 1, "devices": 2, "findings": 1, "items": [row], "notes": list(notes)}
