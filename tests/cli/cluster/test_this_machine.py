"""What a queue on one's own machine says: in the words of one machine there, and unchanged on a cluster."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from dovetail.answers.questions import ExplainedChange
from dovetail.query.explain.rows import explanation_row
from dovetail_cli.cluster import this_machine
from dovetail_cli.cluster.connection import Cluster
from tests.cli.builders import make_job
from tests.core.query.explain.test_explain import ask, explain, filled


def cluster(local_data: Path | None) -> Cluster:
    client = SimpleNamespace(connection=SimpleNamespace(local_data=local_data))
    return Cluster(client=client, namespace="default")  # type: ignore[arg-type] # only its connection is read


MACHINE, ELSEWHERE = cluster(Path("/data")), cluster(None)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no node has model V10, there is T4", "this machine does not have model V10, there is T4"),
        ("Worker 0 failed on local: exit code 3", "Worker 0 failed: exit code 3"),
        ("Job 1 (a) has ended: Failed (BackoffLimitExceeded: why)", "Job 1 (a) has ended: Failed (why)"),
        ("Need 2 GPUs, only 1 available on one node", "Need 2 GPUs, only 1 available"),
    ],
)
def test_a_sentence_is_about_this_machine(said: str, shown: str) -> None:
    assert this_machine.said(said) == shown


def test_a_job_has_reasons_that_people_know() -> None:
    job = make_job("a", phase="Failed", reason="BackoffLimitExceeded", message="Worker 0 failed on local: exit code 3")
    assert this_machine.job(ELSEWHERE, job=job) == job
    status = this_machine.job(MACHINE, job=job).status
    assert (status.reason, status.message) == ("Failed", "Worker 0 failed: exit code 3")


def test_a_machine_gets_no_further_node() -> None:
    found = explanation_row(explain(ask("8"), filled()))
    change = ExplainedChange(kind="MoreNodes", text="add a node with room for 8")
    shown = this_machine.explanation(found=replace(found, changes=[change]))
    assert [each.text for each in shown.changes] == ["run it on the CPU: gbatch --cpu-fallback"]
