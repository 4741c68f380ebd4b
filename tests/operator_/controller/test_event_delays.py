"""Which events of batch Jobs and pods are followed by a reconcile, and how soon."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job, Pod
from dovetail_operator.controller.event_handlers import (
    BURST_SECONDS,
    child_delay_seconds,
    is_passing,
    pod_delay_seconds,
)
from tests.operator_.builders import at, condition, make_child, make_job, make_pod

PASSING, NEVER = "passing", "never"


def newer(found: Job | Pod, **metadata: Any) -> Any:
    meta = msgspec.structs.replace(found.metadata, resource_version="99", **metadata)
    return msgspec.structs.replace(found, metadata=meta)


def how(delay: float | None) -> str:
    if delay is None:
        return NEVER
    return PASSING if is_passing(delay) else "soon"


def child(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    return newer(make_child(make_job(), status=status, **spec))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (child(), NEVER),
        (child({"active": 1, "ready": 1}), NEVER),
        (child({"active": 1, "startTime": at(0)}), PASSING),
        (child({"succeeded": 1}), "soon"),
        (child({"failed": 1}), "soon"),
        (child({"conditions": [condition("Complete")]}), "soon"),
        (child(suspend=True), "soon"),
        (child(parallelism=7), "soon"),
        (newer(child(), labels={}), "soon"),
        (newer(child(), deletion_timestamp=at(0)), "soon"),
    ],
)
def test_a_batch_job_is_followed_as_soon_as_its_change_matters(after: Job, expected: str) -> None:
    before = make_child(make_job())
    assert how(child_delay_seconds(after, before=before)) == expected


def test_pods_that_remain_of_a_suspended_batch_job_matter() -> None:
    before = make_child(make_job(), status={"active": 1}, suspend=True)
    assert how(child_delay_seconds(newer(make_child(make_job(), suspend=True)), before=before)) == "soon"


def test_a_new_batch_job_is_one_that_we_have_just_made() -> None:
    assert how(child_delay_seconds(child(), before=None)) == PASSING


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, make_pod(phase="Pending", node=""), PASSING),
        (make_pod(phase="Pending", node=""), make_pod(phase="Pending", devices=1), PASSING),
        (make_pod(phase="Pending"), make_pod(phase="Pending", state=waiting("ContainerCreating")), PASSING),
        (make_pod(phase="Pending"), make_pod(phase="Pending", state=waiting("ErrImagePull")), "soon"),
        (
            make_pod(phase="Pending", node=""),
            make_pod(phase="Pending", node="", conditions=[condition("PodScheduled", status="False")]),
            "soon",
        ),
        (make_pod(phase="Pending"), make_pod(phase="Pending", meta={"deletionTimestamp": at(0)}), "soon"),
        (make_pod(phase="Pending"), make_pod(phase="Running"), "soon"),
        (make_pod(phase="Running"), make_pod(phase="Running", conditions=[condition("Ready")]), "soon"),
        (make_pod(phase="Running"), make_pod(phase="Running"), NEVER),
        (make_pod(phase="Running"), make_pod(phase="Failed", exit_code=1), "soon"),
    ],
)
def test_a_pod_is_followed_as_soon_as_its_change_matters(before: Pod | None, after: Pod, expected: str) -> None:
    same = None if before is None else msgspec.structs.replace(before, metadata=_named_like(before, after=after))
    assert how(pod_delay_seconds("MODIFIED", pod=newer(after), before=same, count=1)) == expected


def _named_like(before: Pod, *, after: Pod) -> Any:
    """The metadata of one pod: the builder's names follow the phase."""
    return msgspec.structs.replace(before.metadata, name=after.metadata.name)


def test_a_deleted_pod_matters_as_it_was() -> None:
    pod = make_pod()
    assert how(pod_delay_seconds("DELETED", pod=pod, before=pod, count=1)) == "soon"


def test_the_pods_of_a_large_gang_share_a_reconcile() -> None:
    delays = [pod_delay_seconds("MODIFIED", pod=make_pod(), before=None, count=count) for count in (1, 64, 128, 5000)]
    assert delays == [BURST_SECONDS, BURST_SECONDS, 2 * BURST_SECONDS, 5 * BURST_SECONDS]
