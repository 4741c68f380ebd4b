"""What a pod is to the other tenants of its devices is written when it is bound, as its GPUJob says."""

import json
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.pods.allocation import allocation_in
from dovetail.pods.tenancy import Tenancy
from dovetail_extender.decide.tenancies import Tenancies
from dovetail_extender.holds.planned_workers import PlannedJob
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_pod
from tests.extender.harness import Face
from tests.extender.holds.test_planned_workers import make_job, make_worker

HOLDING = {"priority": 200, "reservation": {"durationSeconds": 60, "image": "pause"}}
OWNERS = make_worker()["metadata"]["ownerReferences"]
OF_ANOTHER_PLAN = json.dumps({"job": "uid-of-another", "generation": 1, "nodes": []})


def tenancies(**spec: Any) -> Tenancies:
    known = Tenancies()
    known.job_changed(msgspec.convert(make_job(("b", 1)) | {"spec": spec}, PlannedJob))
    return known


def pod_with(pod: dict[str, Any], **metadata: Any) -> Pod:
    return msgspec.convert(pod | {"metadata": pod["metadata"] | metadata}, Pod, strict=False)


def test_a_worker_is_what_its_job_says_whatever_its_annotation_does() -> None:
    annotations = make_worker()["metadata"]["annotations"] | {names.PRIORITY: "255"}
    worker = pod_with(make_worker(), annotations=annotations)
    assert tenancies(priority=40).tenancy(worker) == Tenancy(job="train", priority=40)
    assert tenancies(**HOLDING).tenancy(worker) == Tenancy(job="train", priority=200, reservation=True)


@pytest.mark.parametrize(
    "forged",
    [
        {"labels": {names.LABEL_JOB: "train"}},
        {"ownerReferences": OWNERS},
        {"labels": {names.LABEL_RESERVATION: "true"}},
        {"labels": {names.LABEL_JOB: "other"}, "ownerReferences": OWNERS},
        {"labels": {names.LABEL_JOB: "train"}, "ownerReferences": OWNERS, "namespace": "elsewhere"},
        {
            "labels": {names.LABEL_JOB: "train"},
            "ownerReferences": OWNERS,
            "annotations": {names.REQUEST: "1", names.PLAN: OF_ANOTHER_PLAN},
        },
        {
            "labels": {names.LABEL_JOB: "train"},
            "annotations": {names.REQUEST: "1", names.SEAT: "uid-of-another/0"},
        },
    ],
)
def test_a_pod_that_only_says_so_is_of_no_job(forged: dict[str, Any]) -> None:
    assert tenancies(**HOLDING).tenancy(pod_with(make_pod(), **forged)) == Tenancy()


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"users": ["ada"]}, 50),
        ({"namespaces": ["default"]}, 50),
        ({"projects": ["vision"]}, 50),
        ({"users": ["bob"]}, 200),
        ({"projects": ["nlp"]}, 200),
        ({"projects": ["vision"], "users": ["bob"]}, 200),
    ],
)
def test_a_worker_s_weight_is_bounded_by_what_its_user_and_project_may_have(spec: dict[str, Any], counts: int) -> None:
    known, job = Tenancies(), make_job(("b", 1)) | {"spec": {"priority": 200}}
    job["metadata"] |= {"annotations": {names.USER: "ada"}, "labels": {names.LABEL_PROJECT: "vision"}}
    known.job_changed(msgspec.convert(job, PlannedJob))
    quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {"maxPriority": 50, **spec}}, GPUQuota)
    known.quota_event("ADDED", quota)
    assert known.tenancy(pod_with(make_worker())).priority == counts
    lifted = msgspec.structs.replace(quota, spec=msgspec.structs.replace(quota.spec, max_priority=None))
    for event, changed in (("MODIFIED", lifted), ("DELETED", quota)):
        known.quota_event("MODIFIED", quota)
        known.quota_event(event, changed)  # type: ignore[arg-type]
        assert known.tenancy(pod_with(make_worker())).priority == 200


@pytest.mark.parametrize(("project", "counts"), [("vision", 50), ("nlp", 200), ("", 200)])
def test_a_pod_s_weight_is_bounded_by_what_its_project_may_have(project: str, counts: int) -> None:
    known = Tenancies()
    spec = {"maxPriority": 50, "projects": ["vision"]}
    known.quota_event("ADDED", msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, GPUQuota))
    labels = {names.LABEL_PROJECT: project} if project else {}
    assert known.tenancy(pod_with(make_pod(), annotations={names.PRIORITY: "200"}, labels=labels)).priority == counts


def test_a_worker_whose_job_is_gone_is_of_no_job() -> None:
    known = tenancies(**HOLDING)
    known.job_gone(msgspec.convert(make_job(("b", 1)), PlannedJob))
    assert known.tenancy(pod_with(make_worker())) == Tenancy()


def test_the_end_of_an_earlier_job_of_that_name_changes_nothing() -> None:
    known, earlier = tenancies(**HOLDING), make_job(("b", 1))
    earlier["metadata"]["uid"] = "uid-before"
    known.job_gone(msgspec.convert(earlier, PlannedJob))
    assert known.tenancy(pod_with(make_worker())).job == "train"


@pytest.mark.parametrize(
    ("said", "priority"), [(None, 10), ("0", 0), ("255", 255), ("256", 10), ("9" * 5000, 10), ("x", 10)]
)
def test_a_pod_of_no_job_has_the_weight_that_it_asks(said: str | None, priority: int) -> None:
    pod = pod_with(make_pod(), annotations={} if said is None else {names.PRIORITY: said})
    assert Tenancies().tenancy(pod) == Tenancy(priority=priority)


async def test_the_binding_carries_what_the_pod_is(api: ApiServer, face: Face) -> None:
    pod = make_pod()
    pod["metadata"]["annotations"][names.PRIORITY] = "77"
    api.put("pods", pod)
    assert await face.bind(pod, "b") == ""
    allocation = allocation_in(api.objects["pods"]["default/p"]["metadata"]["annotations"])
    assert allocation is not None
    assert (allocation.priority, allocation.reservation, allocation.job) == (77, False, "")
