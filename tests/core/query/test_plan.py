"""The plan of the queue, row by row, from what the operator has written into the jobs."""

from typing import Any

import pytest

from dovetail.answers.inventory import DeviceUse, NodeUse
from dovetail.answers.plan import FilledGap
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.availability import Unavailable
from dovetail.query.plan import drains, has_room_kept, kept_rooms, plan_row, plan_rows, windows
from tests.cli.builders import make_gpunode
from tests.core.explain.builders import make_node
from tests.core.query.test_quotas import make_quota
from tests.operator_.builders import at, make_job

DEVICE = {"worker": 0, "node": "a", "index": 3, "uuid": "GPU-a-3", "shareMilli": 500, "memoryMiB": 100}
PLACE = {
    "position": 4, "estimatedStart": at(600), "estimatedStartEarliest": at(300), "estimatedStartLatest": at(900),
}  # fmt: skip
PLACEMENT = {"generation": 1, "nodes": [{"name": "p", "workers": 2}], "worker": {"request": "1"}}
RESERVED = {
    "time": at(1000),
    "nodes": [{"name": "a", "workers": 2}, {"name": "b", "workers": 1}],
    "kept": [{"name": "b", "keeps": ["4", "1024M,0.250"]}],
}


def reader_of(namespace: str) -> Reader:
    return Reader(sees=lambda each: each == namespace, readable=str, everything=False)


def starts(**status: Any) -> Any:
    row = plan_row(make_job(status=status))
    return None if row is None else (row.starts_at, row.earliest, row.latest)


def test_a_job_starts_when_it_did_else_when_that_is_estimated_else_when_it_was_admitted() -> None:
    admitted = {"phase": "Starting", "placement": PLACEMENT, "admittedTime": at(-20)}
    assert starts(phase="Running", startTime=at(-9), queue=PLACE) == (at(-9), None, None)
    assert starts(phase="Queued", queue=PLACE) == (at(600), at(300), at(900))
    assert starts(**admitted) == (at(-20), None, None)
    assert starts(phase="Queued", admittedTime=at(-20)) is None, "its plan has failed"
    assert starts(phase="Queued") is None
    assert starts(phase="Succeeded", startTime=at(-9)) is None


def test_a_row_has_its_devices_or_the_nodes_that_are_planned_for_it() -> None:
    reserved = {"phase": "Queued", "queue": PLACE | {"reserved": RESERVED}}
    running = {"phase": "Running", "startTime": at(-9), "placement": PLACEMENT, "nodes": ["a"], "devices": [DEVICE]}
    rows = [
        plan_row(make_job(workers=2, status=status))
        for status in (running, {"phase": "Starting", "placement": PLACEMENT, "admittedTime": at(-9)}, reserved)
    ]
    planned = [[(each.node, each.workers) for each in row.planned] for row in rows if row is not None]
    assert planned == [[], [("p", 2)], [("a", 2), ("b", 1)]]
    assert [(len(row.devices), row.position) for row in rows if row is not None] == [(1, None), (0, None), (0, 4)]


def test_a_row_says_when_the_job_ends_and_when_it_has_to_leave() -> None:
    status = {"phase": "Running", "startTime": at(-100), "preemption": {"count": 1, "at": at(30), "by": "uid-y"}}
    row = plan_row(make_job(activeDeadlineSeconds=500, status=status))
    assert row is not None
    assert (row.ends_by, row.leaves_at) == (at(400), at(30))
    waiting = plan_row(make_job(activeDeadlineSeconds=500, status={"phase": "Queued", "queue": PLACE}))
    assert waiting is not None
    assert (waiting.ends_by, waiting.leaves_at) == (at(1100), None)


def waits(name: str = "large", *, created: float = -500, namespace: str = "team", **reserved: Any) -> GPUJob:
    queue = PLACE | {"reserved": RESERVED | reserved}
    meta = {"creationTimestamp": at(created), "namespace": namespace}
    return make_job(name, meta=meta, status={"phase": "Queued", "number": 8, "queue": queue})


def test_room_is_kept_node_by_node_with_what_is_free_of_it() -> None:
    first, second = kept_rooms(waits(), reader=EVERYTHING)
    assert (first.node, first.workers, first.keeps, first.at) == ("a", 2, [], at(1000))
    assert (second.node, second.workers, second.keeps) == ("b", 1, ["4", "1024M,0.250"])
    assert first.job is not None
    assert first.job.name == "large"
    assert [each.job for each in kept_rooms(waits(), reader=reader_of("other"))] == [None, None]
    unreserved = make_job(status={"phase": "Queued", "queue": PLACE})
    assert (list(kept_rooms(unreserved, reader=EVERYTHING)), has_room_kept(unreserved)) == ([], False)
    assert (list(kept_rooms(make_job(), reader=EVERYTHING)), has_room_kept(waits())) == ([], True)


def gap_of(job: GPUJob, *, waiting: list[GPUJob], reader: Reader) -> FilledGap | None:
    rows = list(plan_rows([job], waiting=waiting, reader=reader))
    return rows[0].fills if rows else None


@pytest.mark.parametrize(
    ("change", "fills"),
    [
        ({}, True),
        ({"created": -600}, False),
        ({"created": -500}, False),
        ({"nodes": ["c"]}, False),
        ({"nodes": ["c", "b"]}, True),
        ({"limit": 1100}, True),
        ({"limit": 1101}, False),
        ({"limit": None}, False),
        ({"phase": "Succeeded"}, False),
        ({"start": None}, False),
    ],
    ids=["it came later", "it came first", "they came together", "it is elsewhere", "one node is kept", "it just ends",
         "it ends too late", "it has no end", "it is over", "it has not begun"],
)  # fmt: skip
def test_a_job_fills_a_gap_that_came_later_and_ends_before_its_nodes_are_needed(
    change: dict[str, Any], fills: bool
) -> None:
    how: dict[str, Any] = {
        "created": -400,
        "nodes": ["a"],
        "limit": 300,
        "phase": "Running",
        "start": at(-100),
    } | change
    limit = {} if how["limit"] is None else {"activeDeadlineSeconds": how["limit"]}
    status = {"phase": how["phase"], "nodes": how["nodes"], "startTime": how["start"]}
    job = make_job("small", meta={"creationTimestamp": at(how["created"])}, status=status, **limit)
    found = gap_of(job, waiting=[make_job("plain"), job, waits()], reader=EVERYTHING)
    assert (found is not None) == fills
    assert found is None or (found.until, found.job and found.job.name) == (at(1000), "large")
    hidden = gap_of(job, waiting=[waits(namespace="other")], reader=reader_of("team"))
    assert hidden is None or hidden.job is None


def test_the_plan_has_the_rows_that_its_reader_sees() -> None:
    running = {"phase": "Running", "startTime": at(-9)}
    jobs = [make_job(name, meta={"namespace": name}, status=running) for name in ("team", "other")]
    found = plan_rows([*jobs, make_job()], waiting=[], reader=reader_of("team"))
    assert [(each.namespace, each.name) for each in found] == [("team", "team")]


def test_of_several_gaps_the_one_before_the_first_waiting_job_counts() -> None:
    small = make_job(
        "small",
        meta={"creationTimestamp": at(-400)},
        status={"phase": "Running", "nodes": ["b", "a"], "startTime": at(-100)},
        activeDeadlineSeconds=300,
    )
    first = waits("first", time=at(2000), nodes=[{"name": "a", "workers": 1}])
    found = [gap_of(small, waiting=order, reader=EVERYTHING) for order in ([first, waits()], [waits(), first])]
    assert [each and each.until for each in found] == [at(2000), at(1000)]


def test_a_bounded_plan_leaves_out_what_just_runs() -> None:
    running = {"phase": "Running", "startTime": at(-9), "nodes": ["a"], "devices": [DEVICE]}
    jobs = [
        make_job("runs", status=running),
        make_job("leaves", status=running | {"preemption": {"count": 1, "at": at(30), "by": "uid-y"}}),
        make_job("was-preempted", status=running | {"preemption": {"count": 1}}),
        make_job("fills", meta={"creationTimestamp": at(-400)}, status=running, activeDeadlineSeconds=300),
        make_job("starting", status={"phase": "Starting", "placement": PLACEMENT, "admittedTime": at(-9)}),
        make_job("estimated", status={"phase": "Queued", "queue": PLACE}),
        waits(),
    ]
    found = plan_rows(jobs, waiting=[waits()], reader=EVERYTHING, bounded=True)
    assert [each.name for each in found] == ["leaves", "fills", "starting", "large"]


def test_windows_come_by_their_start_whichever_quota_has_them() -> None:
    def window(name: str, start: float) -> dict[str, Any]:
        return {"name": name, "startTime": at(start), "endTime": at(start + 60), "gpus": 2}

    first = make_quota("first", advanceReservations=[window("late", 900), window("b", 100)])
    second = make_quota("second", namespaces=["other"], advanceReservations=[window("a", 100)])
    found = list(windows([first, second], reader=EVERYTHING))
    assert [(each.quota, each.name) for each in found] == [("second", "a"), ("first", "b"), ("first", "late")]
    shown = list(windows([first, second], reader=reader_of("team")))
    assert [each.quota for each in shown] == [None, "first", "first"]


@pytest.mark.parametrize("restarts", [True, False])
def test_jobs_restart_elsewhere_only_from_a_node_that_is_emptied(restarts: bool) -> None:
    cordon, broken = Unavailable(cause="NodeCordoned"), Unavailable(cause="NodeNotReady")
    node, emptied = make_node("n"), make_node("n", cordoned=True)
    report = make_gpunode("n", gpus=2)
    first, second = report.status.devices
    devices = (
        DeviceUse(node="n", device=first, unavailable=(Unavailable(cause="Cordoned"),)),
        DeviceUse(node="n", device=second),
    )
    uses = [
        NodeUse(gpunode=report, uses=devices, node=emptied, unavailable=(cordon,)),
        NodeUse(gpunode=report, uses=devices, node=node, unavailable=(broken,)),
        NodeUse(gpunode=report, uses=devices, node=None, unavailable=(broken,)),
        NodeUse(gpunode=report, uses=devices, node=node),
    ]
    found = list(drains(uses, restarts=restarts))
    assert [(each.index, each.restarts) for each in found] == [
        (None, restarts),
        (None, False),
        (None, False),
        (0, False),
    ]
