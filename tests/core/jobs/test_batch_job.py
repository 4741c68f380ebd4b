from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.batch_job import is_child, is_on_the_way, wants_admission, workers_without_node
from dovetail.jobs.plan import open_workers, with_released
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


def seated(worker: int, *, phase: str = "Running", node: str = "a") -> Pod:
    """A pod of a guest with that seat of the record."""
    annotations = {names.SEAT: f"uid-x/{worker}"}
    return make_pod(worker, phase=phase, node=node, meta={"uid": f"uid-{worker}-{phase}", "annotations": annotations})


def make_record(*, workers: int = 4, released: tuple[int, ...] = ()) -> GPUJob:
    """A guest's record on a plan."""
    placement = {
        "generation": 1,
        "nodes": [{"name": "a", "workers": workers}],
        "worker": {"request": "1"},
        "released": list(released),
    }
    return make_job(managedBy=names.GUESTS_MANAGER, workers=workers, status={"placement": placement, "plans": 1})


@pytest.mark.parametrize(
    ("says", "pods", "released", "expected"),
    [
        ("its pods are about to come", [], (), 4),
        ("one is bound", [seated(0)], (), 3),
        ("an unbound pod needs a node", [seated(0, phase="Pending", node="")], (), 4),
        ("its controller replaces a failed one, however often", [seated(0, phase="Failed")], (), 4),
        ("another may follow one that has succeeded", [seated(0, phase="Succeeded")], (), 4),
        ("its owner has scaled it down", [seated(0), seated(1)], (2, 3), 0),
        ("a released worker is not waited for", [seated(0, phase="Failed")], (0, 3), 2),
    ],
)
def test_the_queue_keeps_the_seats_of_a_guest_that_the_extender_holds(
    says: str, pods: list[Pod], released: tuple[int, ...], expected: int
) -> None:
    """A failed pod made the queue forget all seats of a guest: it planned jobs on room that the extender held."""
    record = make_record(released=released)
    child = make_child(record, backoffLimit=None, parallelism=4)
    assert workers_without_node(record, child=child, pods=pods) == expected, says
    placement = record.status.placement
    assert placement is not None
    assert len(open_workers(placement, pods=pods)) == expected, says


@pytest.mark.parametrize(
    ("says", "pods", "workers", "released"),
    [
        ("all can still come", [], 4, []),
        ("two go, the last ones", [], 2, [2, 3]),
        ("a seat with a pod stays", [seated(3), seated(1)], 2, [0, 2]),
        ("a pod that is about to go still has its seat", [seated(0), seated(1), seated(2)], 1, [3]),
        ("the seat of an ended pod is free", [seated(0, phase="Succeeded"), seated(1)], 1, [0, 2, 3]),
        ("nothing can come", [], 0, [0, 1, 2, 3]),
    ],
)
def test_a_plan_gives_back_the_room_of_pods_that_do_not_come(
    says: str, pods: list[Pod], workers: int, released: list[int]
) -> None:
    placement = make_record().status.placement
    assert placement is not None
    after = with_released(placement, pods=pods, workers=workers)
    assert after.released == released, says
    assert with_released(after, pods=pods, workers=workers) is after, "nothing changes without a cause"
    assert set(with_released(after, pods=pods, workers=4).released) == set(released), "what is given back is gone"
