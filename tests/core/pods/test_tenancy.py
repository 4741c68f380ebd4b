"""What a pod is to others is what its allocation says; before that, what its batch Job proves."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.pods.allocation import Allocation, allocation_in
from dovetail.pods.tenancy import Tenancy, job_of, tenancy_in

BEFORE = Allocation(node="a", mode="TimeShared", containers=[])
BOUND = msgspec.structs.replace(BEFORE, priority=40, job="train")


def make_pod(*, label: str | None = "train", owner: dict[str, Any] | None = None, **labels: str) -> Pod:
    said = {"api_version": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True} | (owner or {})
    ours = {} if label is None else {names.LABEL_JOB: label}
    metadata = ObjectMeta(
        name="train-0",
        namespace="ml",
        labels={**ours, **labels},
        annotations={names.PRIORITY: "255"},
        owner_references=[OwnerReference(**said)],
    )
    return Pod(metadata=metadata)


def test_a_pod_is_of_the_job_that_its_label_and_its_batch_job_name() -> None:
    assert job_of(make_pod()) == "train"


@pytest.mark.parametrize(
    ("label", "owner"),
    [
        (None, {}),
        ("other", {}),
        ("train", {"kind": "ReplicaSet"}),
        ("train", {"kind": "GPUJob"}),
        ("train", {"api_version": "jobs.example.org/v1"}),
        ("train", {"controller": False}),
        ("train", {"name": "other"}),
        ("", {"name": ""}),
    ],
)
def test_a_pod_whose_label_and_owner_differ_is_of_no_job(label: str | None, owner: dict[str, Any]) -> None:
    assert job_of(make_pod(label=label, owner=owner)) == ""


def test_what_was_fixed_at_bind_outlasts_every_edit() -> None:
    edited = make_pod(label=None, **{names.LABEL_RESERVATION: "true"})
    assert tenancy_in(edited, allocation=BOUND) == Tenancy(job="train", priority=40)


def test_a_pod_that_was_bound_as_no_job_s_stays_so() -> None:
    bound = msgspec.structs.replace(BOUND, job="")
    assert tenancy_in(make_pod(**{names.LABEL_RESERVATION: "true"}), allocation=bound) == Tenancy(priority=40)


@pytest.mark.parametrize("allocation", [None, BEFORE])
def test_without_a_word_from_the_bind_the_proven_job_counts_and_no_annotation(allocation: Allocation | None) -> None:
    reserving = make_pod(**{names.LABEL_RESERVATION: "true"})
    assert tenancy_in(reserving, allocation=allocation) == Tenancy(job="train", reservation=True)
    forged = make_pod(label=None, **{names.LABEL_RESERVATION: "true"})
    assert tenancy_in(forged, allocation=allocation) == Tenancy()


def test_an_allocation_of_an_earlier_version_is_read_and_says_nothing_of_it() -> None:
    text = '{"node":"a","mode":"Exclusive","containers":[],"movable":true,"version":1}'
    found = allocation_in({names.ALLOCATION: text})
    assert found is not None
    assert (found.priority, found.reservation, found.job) == (None, False, "")


@pytest.mark.parametrize("priority", ["-1", "256", '"20"', "1e400"])
def test_a_weight_beyond_the_bounds_is_no_allocation(priority: str) -> None:
    text = f'{{"node":"a","mode":"Exclusive","containers":[],"priority":{priority},"version":1}}'
    with pytest.raises(ValueError, match=r"dovetail\.dev/allocation"):
        allocation_in({names.ALLOCATION: text})
