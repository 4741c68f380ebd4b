"""What a change of a GPUJob has the queue do."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Event, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import ObjectMeta
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller.event_handlers import Changes
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.state.pending_writes import PendingWrites
from tests import virtual_time
from tests.core.builders import make_gpunode, make_node
from tests.operator_.builders import at, make_child, make_job, make_state


class Asked:
    """Stands in for the queue's loop, and notes how soon it is asked to look."""

    def __init__(self) -> None:
        self.how: list[str] = []

    def jobs_changed(self) -> None:
        self.how.append("soon")

    def room_changed(self) -> None:
        self.how.append("at leisure")

    def limits_changed(self) -> None:
        self.how.append("limits")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def changes(asked: Asked) -> Changes:
    scheduling: Any = asked
    evictions: Any = None
    return Changes(
        make_state(),
        queue=WorkQueue(),
        scheduling=scheduling,
        evictions=evictions,
        pacing=Pacing(),
        pending=PendingWrites(),
        now=lambda: datetime(2026, 11, 22, tzinfo=UTC),
    )


def later(job: GPUJob, *, status: str = "", **metadata: Any) -> GPUJob:
    """The job with that phase, as another write leaves it."""
    version = str(int(job.metadata.resource_version or "1") + 1)
    changed = msgspec.structs.replace(job.metadata, resource_version=version, **metadata)
    told = msgspec.structs.replace(job.status, phase=status or None)
    return msgspec.structs.replace(job, metadata=changed, status=told)


def test_a_new_job_is_looked_at_soon_and_each_change_once(changes: Changes, asked: Asked) -> None:
    job = later(make_job())
    changes.job_changed(job)
    changes.job_changed(job)
    assert asked.how == ["soon"]


def test_a_status_that_comes_back_to_us_hurries_nobody(changes: Changes, asked: Asked) -> None:
    job = later(make_job())
    changes.job_changed(job)
    changes.job_changed(later(job, status="Starting"))
    assert asked.how == ["soon", "at leisure"]


def test_a_status_that_the_watch_brings_before_the_answer_wakes_no_one(changes: Changes, asked: Asked) -> None:
    job = later(make_job(status={"number": 1}))
    changes.job_changed(job)
    written, other = later(job, status="Starting"), later(later(job), status="Running")
    with changes._pending.sending("team/x", status=written.status):
        changes.job_changed(written)
        assert asked.how == ["soon"]
        changes.job_changed(other)
    assert asked.how == ["soon", "at leisure"]


def test_an_edit_that_comes_with_our_status_is_looked_at_soon(changes: Changes, asked: Asked) -> None:
    job = later(make_job(status={"number": 1}))
    changes.job_changed(job)
    written = later(job, status="Starting", generation=2)
    with changes._pending.sending("team/x", status=written.status):
        changes.job_changed(written)
    assert asked.how == ["soon", "soon"]


@pytest.mark.parametrize(
    "edit",
    [
        {"generation": 2},
        {"annotations": {"dovetail.dev/user": "ada"}},
        {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
        {"deletion_timestamp": "2026-11-22T08:00:00Z"},
    ],
)
def test_an_edited_job_is_looked_at_soon(changes: Changes, asked: Asked, edit: dict[str, Any]) -> None:
    job = later(make_job())
    changes.job_changed(job)
    changes.job_changed(later(job, **edit))
    assert asked.how == ["soon", "soon"]


@pytest.mark.parametrize(
    ("job_name", "name", "how"),
    [
        ("x", "x", ["soon", "soon"]),
        ("x", "stranger", ["soon"]),
        ("job-x", "x", ["soon", "soon"]),
        ("jobset-x-y", "x-y-workers-0", ["soon", "soon"]),
    ],
)
def test_pods_that_cannot_be_made_are_looked_at_soon_if_they_are_a_jobs(
    changes: Changes, asked: Asked, job_name: str, name: str, how: list[str]
) -> None:
    job = later(make_job(job_name))
    changes.job_changed(job)
    about = {"kind": "Job", "namespace": job.metadata.namespace, "name": name, "uid": "uid-child"}
    raw = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "FailedCreate", "message": "no"}
    changes.refusal_event("ADDED", msgspec.convert(raw, Event))
    assert asked.how == how


def test_an_array_is_looked_at_again_once_what_had_a_task_s_name_is_gone(changes: Changes) -> None:
    for job in (make_job(array={"indexes": "0-1"}), stranger := make_job("x-t1")):
        changes.job_changed(job)
    assert changes.state.observe("team/x", now=datetime(2026, 11, 22, tzinfo=UTC)) is not None
    queued: list[str] = []
    changes._queue.add = queued.append  # type: ignore[method-assign]
    changes.job_gone(stranger)
    assert queued == ["team/x"]


@pytest.mark.parametrize(("number", "queued"), [(None, 0), (7, 1)])
def test_a_job_is_reconciled_once_the_queue_has_given_it_a_number(
    changes: Changes, number: int | None, queued: int
) -> None:
    changes.job_changed(later(make_job(status={} if number is None else {"number": number})))
    assert len(changes._queue) == queued


def test_a_batch_job_s_counts_of_running_pods_wake_no_one(changes: Changes, asked: Asked) -> None:
    job = later(make_job())
    changes.job_changed(job)
    child = make_child(job, status={"active": 1, "startTime": "2026-01-01T12:00:00Z"})
    changes.state.store.child_changed(child)
    metadata = msgspec.structs.replace(child.metadata, resource_version="21")
    ready = msgspec.structs.replace(child.status, ready=1)
    changes.child_event("MODIFIED", msgspec.structs.replace(child, metadata=metadata, status=ready))
    assert asked.how == ["soon"]


def created(uid: str, *, node: str = "", labels: dict[str, str] | None = None, cpu: str = "8", of: str = "") -> Pod:
    """A pod that requests so many CPUs of a node that Dovetail chooses; `of` names its batch Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": of, "uid": "uid-child", "controller": True}
    metadata = {"name": uid, "namespace": "team", "uid": uid, "labels": labels or {}}
    resources = {"requests": {"cpu": cpu, names.GPU_MILLI: "0"}}
    return msgspec.convert(
        {
            "metadata": {**metadata, "ownerReferences": [owner] if of else []},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        },
        Pod,
    )


async def test_a_created_pod_of_no_job_counts_in_the_mix_of_the_queue(changes: Changes) -> None:
    mix = changes.state.mix.term
    changes.pod_event("ADDED", created("new"))
    changes.pod_event("MODIFIED", created("new", node="a"))
    changes.pod_event("ADDED", created("bound before the list", node="a"))
    changes.pod_event("ADDED", created("worker", labels={names.LABEL_JOB: "x"}, of="x"))
    changes.pod_event("ADDED", created("of a guest that has no record yet", labels={names.RUN: "run"}))
    changes.pod_event("ADDED", created("cannot be read", cpu="many"))
    (found,) = mix.record().counted
    assert (found.cpu_milli, found.gpus, mix.arrivals) == (8000, 0, 1)


def quota(**spec: Any) -> GPUQuota:
    status = spec.pop("status", {})
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec, "status": status}, GPUQuota)


def test_limits_are_looked_at_when_what_a_quota_says_changes_and_only_then(changes: Changes, asked: Asked) -> None:
    steps = [
        ("ADDED", quota(limit={"gpus": 1}), 1),
        ("MODIFIED", quota(limit={"gpus": 1}, status={"gpus": 1.0}), 1),
        ("MODIFIED", quota(limit={"gpus": 2}, status={"gpus": 1.0}), 2),
        ("DELETED", quota(limit={"gpus": 2}), 3),
    ]
    for type_, each, looks in steps:
        changes.quota_event(type_, each)  # type: ignore[arg-type]
        assert asked.how == ["limits"] * looks


class Told:
    """Stands in for the evictions, and notes the nodes that it is told of."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def changed(self, gpunode: GPUNode) -> None:
        self.of.append(f"{gpunode.metadata.name} reports")

    def gone(self, node: str) -> None:
        self.of.append(f"{node} is gone")


def test_evictions_hear_of_each_report_and_of_the_end_of_a_node(changes: Changes) -> None:
    told = Told()
    changes._evictions = told  # type: ignore[assignment]
    for type_ in ("ADDED", "MODIFIED", "DELETED"):
        changes.gpunode_event(type_, make_gpunode("a"))  # type: ignore[arg-type]
    assert told.of == ["a reports", "a reports", "a is gone"]


async def test_a_deleted_job_waits_for_nothing_whatever_was_written_for_it(changes: Changes) -> None:
    job = make_job()
    changes.job_changed(job)
    changes.child_event("ADDED", make_child(job))
    changes._pending.await_newer_child("team/x", child=make_child(job), store=changes.state.store)
    changes._pending.await_newer_job("team/x", job=job, store=changes.state.store)
    assert changes._pending.wait_seconds("team/x") > 0
    changes.job_gone(later(job))
    assert changes._pending.wait_seconds("team/x") == 0
    assert changes._pending.observed("Job", meta=later_child(job)).resumed == []


def later_child(job: GPUJob) -> ObjectMeta:
    return msgspec.structs.replace(make_child(job).metadata, resource_version="99")


def test_what_a_deleted_job_has_used_counts_until_its_quota_has_recorded_it(changes: Changes) -> None:
    used: dict[str, Any] = {"phase": "Succeeded", "request": "1", "startTime": at(0), "completionTime": at(60)}
    changes.quota_event("ADDED", quota(per="Namespace", shares=1))
    job = make_job(status=used)
    changes.job_changed(job)
    changes.job_gone(later(job, status="Succeeded"))
    quotas, now = changes.state.store.quotas, datetime.fromisoformat(at(60))
    (use,) = quotas.compute_statuses([], now=now)["q"].uses
    assert (use.who, use.gpu_seconds) == ("team", pytest.approx(60, abs=1))


def test_a_job_that_could_not_be_started_is_tried_again_after_a_while_by_itself(changes: Changes) -> None:
    async def scenario() -> None:
        job = make_job(status={"number": 1})
        changes.state.store.job_changed(job)
        now = datetime(2026, 11, 22, tzinfo=UTC)
        changes.refuse(job, obstacle=Obstacle(reason="Quota", message="exceeded"))
        assert changes.state.decisions.refusal_of(job, now=now) is not None
        assert changes._queue.load == 0
        await asyncio.sleep(3600)
        assert changes.state.decisions.refusal_of(job, now=now) is None
        assert changes._queue.load == 1

    virtual_time.run(scenario())


@pytest.mark.parametrize("keeps", [False, True])
def test_a_report_grows_old_whatever_else_time_changes(changes: Changes, asked: Asked, keeps: bool) -> None:
    now, store = 1000.0, changes.state.store
    freshness = Freshness(max_age_seconds=660, clock=lambda: now)
    store.view = ClusterView(ledger=store.view.ledger, freshness=freshness)
    store.view.node_changed(make_node("a"))
    device = {"index": 0, "uuid": "GPU-a-0", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
    status = {"devices": [device], "observedAt": "2100-01-01T00:00:00Z"}
    store.gpunode_changed(msgspec.convert({"metadata": {"name": "a"}, "status": status}, GPUNode))
    if keeps:
        window = {"name": "course", "gpus": 1, "startTime": "2100-01-01T00:00:00Z", "endTime": "2100-01-02T00:00:00Z"}
        store.quotas.update(quota(advanceReservations=[window]))
    changes.time_passes()
    assert store.view.ledger.unmeasured_reason("a") == ""
    now += 660
    changes.time_passes()
    assert store.view.ledger.unmeasured_reason("a")
    assert asked.how[-1] == "at leisure"
