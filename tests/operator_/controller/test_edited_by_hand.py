"""Batch Jobs that somebody changes by hand while they run: a gang runs whole, as it was planned, or not at all."""

from typing import Any

import pytest

from dovetail_operator.job.actions import PatchJob
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.manifests.planned_template import resumed
from tests.operator_.builders import condition, make_child, make_job, make_pod, see


@pytest.mark.parametrize(
    ("workers", "size"),
    [
        (2, {"completions": 2, "parallelism": 1}),
        (1, {"completions": 1, "parallelism": 0}),
        (2, {"completions": 3, "parallelism": 3}),
        (2, {"completions": 1, "parallelism": 1}),
    ],
)
def test_a_job_of_which_fewer_or_more_workers_are_to_run_than_were_planned_starts_anew_whole(
    workers: int, size: dict[str, Any]
) -> None:
    job = make_job(workers=workers, status={"number": 7, "phase": "Running"})
    outcome = reconcile(see(job, make_pod(node="a"), child=make_child(job, **size)))
    whole = {"suspend": True, "completions": workers, "parallelism": workers}
    assert outcome.actions == (PatchJob(spec=whole),)
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "Evaluating")
    assert outcome.status.message == "Restarts: the parallelism or completions of its Job were edited"


@pytest.mark.parametrize(
    "size", [{"completions": 2, "parallelism": 2}, {"completions": 2, "parallelism": 9}, {"parallelism": 1}]
)
def test_a_job_of_which_all_workers_may_run_goes_on(size: dict[str, Any]) -> None:
    job = make_job(workers=2, status={"number": 7, "phase": "Running"})
    outcome = reconcile(see(job, make_pod(0, node="a"), make_pod(1, node="a"), child=make_child(job, **size)))
    assert outcome.actions == ()
    assert outcome.status.phase == "Running"


def test_kueue_may_let_a_part_of_the_workers_go() -> None:
    job = make_job(workers=2, meta={"labels": {"kueue.x-k8s.io/queue-name": "lab"}}, status={"phase": "Running"})
    child = make_child(job, queue="lab", completions=2, parallelism=1)
    assert reconcile(see(job, make_pod(node="a"), child=child)).actions == ()


def test_what_goes_on_goes_on_with_all_workers() -> None:
    manifest = {"spec": {"parallelism": 3, "template": {"metadata": {}, "spec": {}}}}
    assert resumed(manifest)["parallelism"] == 3


def test_a_limit_that_only_its_batch_job_has_is_not_told_as_its_own() -> None:
    over = condition("Failed", reason="DeadlineExceeded")
    outcome = reconcile(see(make_job(), child=make_child(make_job(), status={"conditions": [over]})))
    told = "Ran longer than a limit set in its Job by another client (activeDeadlineSeconds)"
    assert (outcome.status.phase, outcome.status.message) == ("TimedOut", told)
