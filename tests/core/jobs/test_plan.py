"""Plans as statuses and pods say them."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob, Placement
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import parse
from dovetail.jobs.plan import (
    annotation_of,
    ask_of,
    kept_texts,
    nodes_by_worker,
    planned_nodes,
    planned_worker,
    with_carried,
    worker_of_plan,
)
from dovetail.names import COMPLETION_INDEX, LABEL_JOB_NUMBER, PLAN


def make_plan(*nodes: tuple[str, int]) -> Placement:
    body = {
        "generation": 3,
        "nodes": [{"name": name, "workers": workers} for name, workers in nodes],
        "worker": {"request": "2"},
    }
    return msgspec.convert(body, Placement)


def make_pod(**annotations: str) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "annotations": annotations}}, Pod)


def test_what_the_annotation_says_is_what_was_planned() -> None:
    text = annotation_of(make_plan(("a", 2), ("b", 1)), job_uid="uid")
    found = worker_of_plan(make_pod(**{PLAN: text, COMPLETION_INDEX: "2"}))
    assert found is not None
    assert (found.plan.job, found.plan.generation, found.plan.nodes, found.worker) == ("uid", 3, ["a", "b"], 2)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"job": 1, "generation": 1}', '{"job": "x", "generation": 1.5}']
)
def test_an_annotation_of_somebody_else_s_making_is_none(text: str) -> None:
    assert worker_of_plan(make_pod(**{PLAN: text})) is None


def test_a_pod_without_the_annotation_is_of_no_plan_and_one_without_an_index_is_the_first_worker() -> None:
    assert worker_of_plan(make_pod()) is None
    text = annotation_of(make_plan(("a", 1)), job_uid="uid")
    for index in ({}, {COMPLETION_INDEX: "x"}, {COMPLETION_INDEX: "-1"}):
        found = worker_of_plan(make_pod(**{PLAN: text, **index}))
        assert found is not None
        assert found.worker == 0


def test_workers_of_one_node_follow_each_other() -> None:
    claims = [Claim(key=str(at), node=node) for at, node in enumerate("babcb")]
    plan = msgspec.structs.replace(make_plan(), nodes=planned_nodes(claims))
    assert nodes_by_worker(plan) == ("b", "b", "b", "a", "c")


@pytest.mark.parametrize(
    "ask",
    [
        Ask(gpu=parse("2(V100)"), cpu_milli=500, memory_mib=64),
        Ask(gpu=parse("2x8G,0.5(T4)"), mode="Fractional", guard_fraction=0.95, workload="Training"),
        Ask(gpu=parse("0.5"), mode="Fractional", guard_fraction=0.735),
        Ask(gpu=parse("0.25@cuda:1"), mode="TimeShared"),
        Ask(gpu=parse("4"), resource="nvidia.com/gpu"),
    ],
    ids=lambda ask: str(ask.gpu),
)
def test_what_a_worker_takes_is_read_as_it_was_written(ask: Ask) -> None:
    assert ask_of(planned_worker(ask)) == ask


def devices(*shares: tuple[int, int], **claim: Any) -> Claim:
    held = [
        AllocatedDevice(index=at, uuid=f"u{at}", share_milli=milli, memory_mib=mib)
        for at, (milli, mib) in enumerate(shares)
    ]
    return Claim(key="x", node="a", devices=tuple(held), **claim)


INSTANCE = Claim(
    key="x", node="a", devices=(AllocatedDevice(index=9, uuid="MIG-9", share_milli=1000, memory_mib=9, mig="1g.10gb"),)
)


@pytest.mark.parametrize(
    ("claims", "texts"),
    [
        ([devices((1000, 100), (1000, 100))], ["2"]),
        ([devices((1000, 100)), Claim(key="y", node="a", unnamed=3, resource="nvidia.com/gpu")], ["4"]),
        ([devices((250, 8192), (1000, 100), (0, 64))], ["1", "8192M,0.250"]),
        ([Claim(key="x", node="a", cpu_milli=100)], []),
        ([INSTANCE, INSTANCE, Claim(key="y", node="a", instances=(("3g.40gb", 1),))], ["2x1g.10gb", "3g.40gb"]),
    ],
    ids=["whole ones", "a vendor's", "shares", "no device", "MIG instances"],
)
def test_what_is_kept_reads_as_requests(claims: list[Claim], texts: list[str]) -> None:
    assert kept_texts(claims) == texts
    assert all(parse(text) for text in texts)


@pytest.mark.parametrize("index", ["9" * 5000, "-1", "", "٣", "two"])
def test_an_index_that_is_none_of_a_worker_is_the_first(index: str) -> None:
    text = annotation_of(make_plan(("a", 1)), job_uid="u")
    found = worker_of_plan(make_pod(**{PLAN: text, COMPLETION_INDEX: index}))
    assert found is not None
    assert found.worker == 0


CREATED = "2026-01-01T12:00:00Z"


def carrying(
    *, uid: str = "uid", carried: bool = True, gone: str | None = None, nodes: str = "a", number: int = 1, **spec: Any
) -> Job:
    """A batch Job whose template names plan `number` on these nodes."""
    placement = msgspec.structs.replace(make_plan(*((node, 1) for node in nodes)), generation=number)
    text = annotation_of(placement, job_uid=uid, carried=carried)
    made = {"annotations": {PLAN: text, "theirs": "x"}, "labels": {LABEL_JOB_NUMBER: "12", "theirs": "x"}}
    metadata = {"name": "j", "creationTimestamp": CREATED, "deletionTimestamp": gone}
    return msgspec.convert({"metadata": metadata, "spec": {"template": {"metadata": made}, **spec}}, Job)


def without_plan(**status: Any) -> GPUJob:
    return msgspec.convert({"metadata": {"name": "j", "uid": "uid"}, "spec": {"gpu": "2"}, "status": status}, GPUJob)


def test_a_status_without_its_plan_is_read_with_the_one_that_its_batch_job_carries() -> None:
    status = with_carried(without_plan(phase="Queued"), child=carrying()).status
    planned = msgspec.structs.replace(make_plan(("a", 1)), generation=1)
    assert (status.placement, status.plans, status.number) == (planned, 1, 12)
    assert (status.phase, status.admitted_time) == ("Queued", CREATED)


@pytest.mark.parametrize(
    "child",
    [carrying(uid="another"), carrying(carried=False), carrying(nodes="ab"), carrying(number=2), Job()],
    ids=["of another job", "a name alone", "of more than one worker", "a later plan", "no plan"],
)
def test_what_a_batch_job_says_of_no_plan_of_this_job_is_not_read(child: Job) -> None:
    job = without_plan()
    assert with_carried(job, child=child) is job


def test_what_else_a_template_says_is_not_kept() -> None:
    assert "theirs" not in repr(carrying())


def test_a_plan_in_the_status_is_the_one_that_counts() -> None:
    job = without_plan(plans=1, number=3)
    assert with_carried(job, child=carrying()) is job


@pytest.mark.parametrize("child", [carrying(suspend=True), carrying(gone=CREATED)], ids=["suspended", "deleted"])
def test_the_plan_of_a_batch_job_that_runs_nothing_keeps_its_number_and_no_room(child: Job) -> None:
    status = with_carried(without_plan(number=3), child=child).status
    assert (status.placement, status.plans, status.number, status.admitted_time) == (None, 1, 3, None)
