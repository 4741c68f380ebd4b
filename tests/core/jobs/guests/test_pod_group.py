"""Plain pods as a group: when it can wait in the queue, what its record is, and how it ends."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import job_of
from dovetail.decoding import convert
from dovetail.jobs.guests.kind import Guest, GuestError, has_ended, is_suspended
from dovetail.jobs.guests.pod_admission import patch_of_queued_pod
from dovetail.jobs.guests.pod_group import (
    POD_GROUPS,
    SINGLE_PODS,
    PodGroup,
    first_pod,
    group_of,
    is_run_of_pods,
    kind_of_group,
    refuse_unready,
)
from dovetail.jobs.guests.record import is_record_of, record_of
from tests.core.jobs.guests.test_kinds import patched

GATED = [{"name": names.QUEUE_GATE}]


def pod(
    name: str, *, group: str = "pair", size: str = "2", phase: str = "Pending", seat: str = "", **said: str
) -> Guest:
    """A pod in the queue as the webhook has left it; with a seat its gate is open."""
    annotations = {names.REQUEST: "1", names.USER: "ada", names.POD_GROUP_SIZE: size, **said}
    labels = {names.LABEL_QUEUE: "default", names.POD_GROUP: group, names.RUN: "group-1"}
    if seat:
        annotations[names.SEAT] = seat
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "7"}
    spec = {"containers": [{"name": "main"}], "schedulingGates": [] if seat else GATED}
    times = {"creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z"}
    metadata = {**meta, **times, "labels": labels, "annotations": annotations}
    return convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, as_type=Guest)


def group(*pods: Guest) -> PodGroup:
    found = group_of(pods)
    assert found is not None
    return found


def refusal(found: PodGroup) -> str:
    """Why the group cannot wait in the queue; empty if it can."""
    try:
        refuse_unready(found)
        record_of(found, kind=POD_GROUPS)
    except GuestError as error:
        return str(error)
    return ""


def test_a_complete_group_has_one_record_that_all_its_pods_own() -> None:
    found = group(pod("a-1"), pod("a-0"))
    record = job_of(record_of(found, kind=kind_of_group(found)))
    assert (record.metadata.name, record.spec.workers, record.spec.gpu) == ("podgroup-pair", 2, "1")
    assert [owner.uid for owner in record.metadata.owner_references] == ["uid-a-0", "uid-a-1"]
    assert not any(owner.controller for owner in record.metadata.owner_references)
    assert is_record_of(record, guest=found)
    assert not is_record_of(record, guest=group(pod("b-0"), pod("b-1")))
    assert refusal(found) == ""
    assert is_suspended(found, kind=POD_GROUPS)
    assert first_pod(found).name == "a-0"


class Incomparable(Guest, frozen=True, kw_only=True):
    """A pod that no other is compared with."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError(f"{self.metadata.name} is compared with {other}")

    __hash__ = None  # type: ignore[assignment]


def test_replaced_pods_are_found_without_comparing_each_with_each() -> None:
    """Thousands of failed pods of one group kept the operator busy at each event."""
    pods = [pod("a-0"), pod("a-1"), pod("b-2", phase="Failed"), pod("b-3", phase="Failed")]
    found = group(*(Incomparable(metadata=each.metadata, spec=each.spec, status=each.status) for each in pods))
    assert found.replaced == ["uid-b-2", "uid-b-3"]


def test_a_pod_of_its_own_is_a_group_of_one() -> None:
    alone = pod("alone-0")
    labels = {key: value for key, value in alone.metadata.labels.items() if key != names.POD_GROUP}
    annotations = {names.REQUEST: "1"}
    meta = {"name": "alone-0", "namespace": "team", "uid": "u", "resourceVersion": "3"}
    found = group(convert({"metadata": {**meta, "labels": labels, "annotations": annotations},
                           "spec": alone.spec}, as_type=Guest))  # fmt: skip
    assert kind_of_group(found) is SINGLE_PODS
    assert record_of(found, kind=SINGLE_PODS)["metadata"]["name"] == "pod-alone-0"


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        ([pod("a-0")],
         ("group pair has 1 of 2 pods: create the others, with label dovetail.dev/pod-group and annotation "
         "dovetail.dev/pod-group-size, or make the size that of all pods")),
        ([pod("a-0"), pod("a-1", size="3")],
         "its pods differ in annotation dovetail.dev/pod-group-size ('2' and '3'): the pods of a group must agree"),
        ([pod("a-0"), pod("a-1", **{names.USER: "bob"})],
         "its pods differ in the user who created them ('ada' and 'bob'): the pods of a group must agree"),
        ([pod("a-0"), pod("a-1", **{names.REQUEST: "2"})],
         ("its pods with GPUs differ in request, containers or placement: the queue plans pods of one kind, so "
         "give them the same, or queue them as objects of their own")),
        ([pod("a-0"), pod("a-1", **{f"{names.REQUEST}.main": "8"})],
         ("annotation dovetail.dev/gpu.main: pods in the queue have their GPUs in one container, by "
         "dovetail.dev/gpu")),
        ([pod("a-0", size="none")],
         "annotation dovetail.dev/pod-group-size is 'none': it must be a whole number from 1 to 1024"),
    ],
    ids=["incomplete", "two-sizes", "two-users", "two-requests", "by-container", "no-number"],
)  # fmt: skip
def test_what_cannot_wait_is_told(pods: list[Guest], sentence: str) -> None:
    assert refusal(group(*pods)) == sentence


def test_a_group_that_was_let_go_does_not_wait_for_a_deleted_pod() -> None:
    assert refusal(group(pod("a-0", seat="u/0", phase="Running"))) == ""


def test_surplus_pods_are_the_youngest_without_a_seat() -> None:
    found = group(pod("a-0"), pod("a-1"), pod("a-2", seat="u/0"))
    assert [each.name for each in found.members] == ["a-2", "a-0"]
    assert found.surplus.startswith("it has 3 pods, and annotation dovetail.dev/pod-group-size says 2: pod a-1 stays")
    assert not is_suspended(found, kind=POD_GROUPS)


def test_a_replacement_takes_the_place_of_a_failed_pod() -> None:
    failed = pod("a-0", seat="u/0", phase="Failed")
    found = group(failed, pod("a-1", seat="u/1", phase="Running"), pod("a-2"))
    assert [each.name for each in found.members] == ["a-1", "a-2"]
    assert found.surplus == ""
    alone = group(failed, pod("a-1", seat="u/1", phase="Running"))
    assert not has_ended(alone, kind=POD_GROUPS)


@pytest.mark.parametrize(
    ("phases", "type_", "message"),
    [
        (["Succeeded", "Succeeded"], "Complete", "2 of 2 pods succeeded, 0 failed"),
        (["Succeeded", "Failed"], "Failed", "1 of 2 pods succeeded, 1 failed"),
        (["Succeeded"], "Failed", "1 of 2 pods succeeded, 0 failed, 1 deleted"),
    ],
)
def test_a_group_ends_with_its_last_pod(phases: list[str], type_: str, message: str) -> None:
    found = group(*(pod(f"a-{index}", seat=f"u/{index}", phase=phase) for index, phase in enumerate(phases)))
    (over,) = POD_GROUPS.progress(found).conditions
    assert (over.type, over.message) == (type_, message)
    assert found.going == []


def test_pods_that_are_deleted_are_no_group() -> None:
    leaving = convert(
        {"metadata": {"name": "a-0", "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}},
        as_type=Guest,
    )
    assert group_of([leaving]) is None


def review(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", **metadata}, "spec": {"containers": [{"name": "main"}]}}


def test_admission_gates_a_pod_and_names_its_group_once() -> None:
    labels = {names.LABEL_QUEUE: "default", names.POD_GROUP: "pair"}
    body = review(labels=labels, annotations={names.POD_GROUP_SIZE: "2"})
    first = patched(body, patch=patch_of_queued_pod(convert(body, as_type=Guest), review="r1", user="ada"))
    other = patched(body, patch=patch_of_queued_pod(convert(body, as_type=Guest), review="r2", user="ada"))
    assert first["spec"]["schedulingGates"] == GATED
    assert first["metadata"]["annotations"][names.USER] == "ada"
    assert is_run_of_pods(first["metadata"]["labels"][names.RUN])
    assert first == other, "all pods of a group have one run"
    again = patched(first, patch=patch_of_queued_pod(convert(first, as_type=Guest), review="r3", user="ada"))
    assert again == first, "a second look changes nothing"


@pytest.mark.parametrize("run", ["pod-anything", "group-anything"])
@pytest.mark.parametrize("group", [{}, {names.POD_GROUP: "pair"}], ids=["alone", "group"])
def test_admission_overwrites_a_forged_user_and_run(run: str, group: dict[str, str]) -> None:
    """Limits by user depend on the user, and a copied run would take the place of another pod."""
    size = {names.POD_GROUP_SIZE: "2"} if group else {}
    honest = review(labels={names.LABEL_QUEUE: "default", **group}, annotations=size)
    forged = review(
        labels={names.LABEL_QUEUE: "default", **group, names.RUN: run}, annotations={**size, names.USER: "boss"}
    )
    wanted, found = (
        patched(body, patch=patch_of_queued_pod(convert(body, as_type=Guest), review="r1", user="mallory"))
        for body in (honest, forged)
    )
    assert found == wanted
    assert found["metadata"]["annotations"][names.USER] == "mallory"
    assert found["spec"]["schedulingGates"] == GATED


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {names.LABEL_QUEUE: "default", names.KUEUE_QUEUE: "team"},
        {names.LABEL_QUEUE: "default", names.RUN: "of-a-job"},
        {names.LABEL_QUEUE: "default", names.LABEL_JOB: "of-a-gpujob"},
    ],
    ids=["none", "kueue", "of-an-object", "of-a-gpujob"],
)
def test_admission_leaves_others_alone(labels: dict[str, str]) -> None:
    assert patch_of_queued_pod(convert(review(labels=labels), as_type=Guest), review="r", user="ada") == []


@pytest.mark.parametrize(
    ("labels", "annotations", "sentence"),
    [
        ({names.POD_GROUP: "pair"}, {},
         ("label dovetail.dev/pod-group is 'pair', and annotation dovetail.dev/pod-group-size is missing: it says how "
         "many pods the group has, from 1 to 1024")),
        ({names.POD_GROUP: ""}, {names.POD_GROUP_SIZE: "2"},
         "label dovetail.dev/pod-group is empty: it names the group that the pod starts with"),
        ({}, {names.POD_GROUP_SIZE: "2"},
         ("annotation dovetail.dev/pod-group-size is '2', and label dovetail.dev/pod-group is missing: it names the "
         "group that has this size")),
    ],
)  # fmt: skip
def test_admission_refuses_half_a_group(labels: dict[str, str], annotations: dict[str, str], sentence: str) -> None:
    found = convert(review(labels={names.LABEL_QUEUE: "d", **labels}, annotations=annotations), as_type=Guest)
    with pytest.raises(GuestError) as caught:
        patch_of_queued_pod(found, review="r", user="ada")
    assert str(caught.value) == sentence


def test_a_pod_that_names_its_node_cannot_wait() -> None:
    body = review(labels={names.LABEL_QUEUE: "default"})
    body["spec"]["nodeName"] = "a"
    with pytest.raises(GuestError, match=r"spec\.nodeName is set: a pod in the queue gets its node when it starts"):
        patch_of_queued_pod(convert(body, as_type=Guest), review="r", user="ada")
