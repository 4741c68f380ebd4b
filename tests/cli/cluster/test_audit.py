"""How an audit is printed."""

import json

import pytest

from dovetail.answers.questions import Audit, Finding
from dovetail_cli.cluster.audit import render, run_audit
from dovetail_cli.cluster.connection import Cluster
from tests.core.kube.api import Answer, Api, refusal

FINDING = Finding(kind="NotSole", subject="a/0", message="two hold it")


def test_a_note_stands_below_and_leaves_the_audit_clean() -> None:
    report = Audit(pods=1, devices=2, findings=0, items=[], notes=["a/0: moved by turns"])
    assert render(report, form="table") == "Audit clean: 1 pod, 2 devices\nNote: a/0: moved by turns"


@pytest.mark.parametrize("notes", [[], ["one"]])
def test_json_has_findings_and_notes(notes: list[str]) -> None:
    told = json.loads(render(Audit(pods=1, devices=2, findings=1, items=[FINDING], notes=notes), form="json"))
    row = {"kind": "NotSole", "subject": "a/0", "message": "two hold it"}
    assert told == {"pods": 1, "devices": 2, "findings": 1, "items": [row], "notes": notes}


async def test_what_cannot_be_read_is_a_finding_for_a_sum_without_it_proves_nothing(api: Api, cluster: Cluster) -> None:
    none, broken = Answer(body={"metadata": {}, "items": []}), {"metadata": {"name": "x", "namespace": "ns"}, "spec": 5}
    group = "GET /apis/dovetail.dev/v1beta1"
    api.answer(f"{group}/gpujobs", none)
    api.answer("GET /api/v1/pods", Answer(body={"metadata": {}, "items": [broken]}))
    api.answer(f"{group}/gpunodes", Answer(body={"metadata": {}, "items": [{"metadata": {"name": "b"}, "spec": 5}]}))
    api.answer("GET /api/v1/nodes", Answer(body={"metadata": {}, "items": [{"metadata": {"name": "a"}, "spec": 5}]}))
    api.answer(f"{group}/gpuquotas", refusal(403))
    api.answer("GET /apis/resource.k8s.io/v1/resourceslices", refusal(403))
    api.answer("GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-config", refusal(403))
    report = await run_audit(cluster, older_than_seconds=0)
    assert [(found.kind, found.subject) for found in report.items] == [
        ("Unreadable", "a"),
        ("Unreadable", "b"),
        ("Unreadable", "ns/x"),
    ]
    assert "you may not list gpuquotas" in " ".join(report.notes)
    assert "you may not list resourceslices" in " ".join(report.notes)
