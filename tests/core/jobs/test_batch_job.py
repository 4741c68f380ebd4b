from typing import Any

import pytest

from dovetail.api.builtin import Pod
from dovetail.jobs.batch_job import is_child, is_on_the_way, wants_admission, workers_without_node
from tests.operator_.builders import at, condition, make_child, make_job, make_pod


@pytest.mark.parametrize(
    ("says", "spec", "status", "meta", "wants"),
    [
        ("a new job", {}, {}, {}, True),
        ("a held job", {"suspend": True}, {}, {}, False),
        ("a cancelled job", {"cancel": True}, {}, {}, False),
        ("a job that is over", {}, {"phase": "TimedOut"}, {}, False),
        ("a job that is being deleted", {}, {}, {"deletionTimestamp": at(0)}, False),
    ],
)
def test_who_wants_to_be_admitted(
    says: str, spec: dict[str, Any], status: dict[str, Any], meta: dict[str, Any], wants: bool
) -> None:
    assert wants_admission(make_job(status=status, meta=meta, **spec), child=None) is wants, says


def test_a_suspended_batch_job_wants_to_be_admitted_and_a_running_one_is_on_the_way() -> None:
    job = make_job()
    suspended, running = make_child(job, suspend=True), make_child(job)
    ended = make_child(job, status={"conditions": [condition("Complete")]})
    assert [wants_admission(job, child=child) for child in (suspended, running, ended)] == [True, False, False]
    assert [is_on_the_way(job, child=child) for child in (suspended, running, ended)] == [False, True, False]


def test_a_batch_job_of_another_gpujob_is_not_ours() -> None:
    ours, other = make_job(), make_job(meta={"uid": "uid-earlier"})
    assert is_child(make_child(ours), job=ours)
    assert not is_child(make_child(other), job=ours)


@pytest.mark.parametrize(
    ("says", "pods", "succeeded", "backoff", "expected"),
    [
        ("nobody is there yet", [], 0, 0, 2),
        ("one has a node", [make_pod(0)], 0, 0, 1),
        ("an unbound pod needs a node", [make_pod(0), make_pod(1, phase="Pending", node="")], 0, 0, 1),
        ("one has done its work, though the batch Job does not know it yet", [make_pod(0, phase="Succeeded")], 0, 0, 1),
        ("the batch Job counts one whose pod is gone", [], 1, 0, 1),
        ("a failed one that is tried again needs a node", [make_pod(0, phase="Failed"), make_pod(1)], 0, 1, 1),
        ("after the last try nobody comes again", [make_pod(0, phase="Failed")], 0, 0, 0),
    ],
)
def test_workers_that_still_need_a_node(
    says: str, pods: list[Pod], succeeded: int, backoff: int, expected: int
) -> None:
    job = make_job(workers=2, backoffLimit=backoff)
    child = make_child(job, status={"succeeded": succeeded}, backoffLimit=backoff)
    assert workers_without_node(job, child=child, pods=pods) == expected, says
