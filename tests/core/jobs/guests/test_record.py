"""The record of a guest: its name, what follows from annotations, and what a guest may not be."""

from typing import Any

import pytest

from dovetail import names
from dovetail.gpu.device_plugins import Vendors
from dovetail.jobs.guests.kind import Guest, GuestError
from dovetail.jobs.guests.record import record_name, record_of
from tests.core.jobs.guests.examples import guest, kind_named

JOB = kind_named("Job")


def job(*, template: dict[str, Any] | None = None, **metadata: Any) -> Guest:
    found = guest(JOB, **metadata)
    return found if template is None else Guest(metadata=found.metadata, spec={**found.spec, "template": template})


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("train", "job-train"),
        ("a.b", "job-a-b-08eeafef"),
        ("x" * 60, f"job-{'x' * 44}-"),
    ],
)
def test_the_name_is_a_dns_label_with_room_for_an_index(name: str, record: str) -> None:
    found = record_name(job(name=name), kind=JOB)
    assert found.startswith(record[:40])
    assert len(found) <= 57
    assert "." not in found


def test_two_guests_never_share_a_record() -> None:
    found = {record_name(job(name=name), kind=JOB) for name in ("a.b", "a-b", "a.b.", "a..b")}
    assert len(found) == 4


def test_annotations_of_the_guest_decide_priority_preemption_user_and_project() -> None:
    said = {names.PRIORITY: "200", names.PREEMPTIBLE: "false", names.USER: "ada"}
    labels = {names.LABEL_QUEUE: "default", names.LABEL_PROJECT: "vision", "app": "x"}
    record = record_of(job(annotations=said, labels=labels), kind=JOB)
    assert (record["spec"]["priority"], record["spec"]["preemptible"]) == (200, False)
    assert record["metadata"]["annotations"] == {names.USER: "ada"}
    assert record["metadata"]["labels"] == {names.LABEL_PROJECT: "vision"}


def test_a_guest_without_gpus_waits_for_cpu_and_memory() -> None:
    bare = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    assert record_of(job(template=bare), kind=JOB)["spec"]["resources"] == {"device": "cpu"}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        (
            {names.PRIORITY: "high"},
            "annotation dovetail.dev/gpu-priority is 'high': it must be a whole number from 0 to 255",
        ),
        ({names.PREEMPTIBLE: "no"}, "annotation dovetail.dev/preemptible is 'no': it must be true or false"),
    ],
)
def test_wrong_annotations_are_told(annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(GuestError) as caught:
        record_of(job(annotations=annotations), kind=JOB)
    assert str(caught.value) == sentence


def test_gpus_by_container_are_told() -> None:
    split = {"metadata": {"annotations": {"dovetail.dev/gpu.side": "1"}}, "spec": {"containers": [{"name": "side"}]}}
    with pytest.raises(
        GuestError, match=r"annotation dovetail\.dev/gpu\.side: pods in the queue have their GPUs in one"
    ):
        record_of(job(template=split), kind=JOB)


@pytest.mark.parametrize("of_driver", [{}, {names.REQUEST: "1"}], ids=["alone", "too"])
def test_gpus_by_container_are_told_in_each_template(of_driver: dict[str, str]) -> None:
    """Else a template without seats would get GPUs that the queue does not count."""
    found = guest(kind_named("JobSet"))
    driver, workers = found.spec["replicatedJobs"]
    annotations = {**of_driver, f"{names.REQUEST}.main": "8"}
    template = {**driver["template"]["spec"]["template"], "metadata": {"annotations": annotations}}
    greedy = {**driver, "template": {"spec": {**driver["template"]["spec"], "template": template}}}
    for jobs in ([greedy, workers], [workers, greedy]):
        with pytest.raises(GuestError, match=r"annotation dovetail\.dev/gpu\.main: pods in the queue have their GPUs"):
            record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": jobs}), kind=kind_named("JobSet"))


def test_more_workers_than_a_job_has_are_told() -> None:
    found = guest(JOB)
    many = Guest(metadata=found.metadata, spec={**found.spec, "parallelism": 2000, "completions": 2000})
    with pytest.raises(GuestError, match="it has 2000 pods with GPUs, and a job in the queue has at most 1024"):
        record_of(many, kind=JOB)


def test_pods_of_two_sizes_are_told() -> None:
    kind = kind_named("JobSet")
    found = guest(kind)
    driver, workers = found.spec["replicatedJobs"]
    template = driver["template"]["spec"]["template"]
    with_gpus = {**template, "metadata": {"annotations": {names.REQUEST: "2"}}}
    greedy = {**driver, "template": {"spec": {**driver["template"]["spec"], "template": with_gpus}}}
    with pytest.raises(GuestError, match="its pods with GPUs differ in request, resources or placement"):
        record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": [greedy, workers]}), kind=kind)


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "dovetail.dev/gpu-milli"]
)
def test_gpus_by_resources_alone_are_told(resource: str, part: str) -> None:
    template = {"spec": {"containers": [{"name": "side"}, {"name": "main", "resources": {part: {resource: 1}}}]}}
    with pytest.raises(GuestError) as caught:
        record_of(job(template=template), kind=JOB)
    assert str(caught.value) == (
        f"container main requests {resource}, and its pod template has no annotation dovetail.dev/gpu: pods in the "
        "queue request GPUs by the annotation"
    )


def test_a_resource_that_the_configuration_names_is_told_too() -> None:
    template = {"spec": {"initContainers": [{"name": "load", "resources": {"limits": {"example.com/card": "1"}}}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["resources"] == {"device": "cpu"}
    with pytest.raises(GuestError, match=r"container load requests example\.com/card, "):
        record_of(job(template=template), kind=JOB, vendors=Vendors(by_name={"card": "example.com/card"}))


def test_a_template_with_the_annotation_may_have_the_resources_too() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    template = {"metadata": {"annotations": {names.REQUEST: "2"}}, "spec": {"containers": [{"name": "main", **limits}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["gpu"] == "2"


@pytest.mark.parametrize("resources", [7, {"limits": 7}, {"limits": ["nvidia.com/gpu"]}])
def test_resources_that_are_none_ask_for_nothing(resources: object) -> None:
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["resources"] == {"device": "cpu"}
