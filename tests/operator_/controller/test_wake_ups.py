"""Each event reaches who needs it: which jobs are reconciled, how soon the queue looks, and what the state says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Event, NodeSpec, NodeStatus, PodStatus, ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, TenantTotal, TenantUse
from dovetail.cluster.dra_drivers import NodeDrivers
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.jobs.obstacle import Obstacle
from dovetail_operator.controller.event_handlers import BURST_SECONDS, Changes
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.state.pending_writes import PendingWrites
from dovetail_operator.writes.evictions import PodEvictions
from tests import virtual_time
from tests.core.builders import make_node
from tests.core.builders import make_pod as make_other_pod
from tests.operator_.builders import at, condition, make_child, make_job, make_pod, make_state
from tests.operator_.state.test_store import report

NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Woken:
    """Stands in for the work queue and the queue's loop, and notes what they are asked."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.later: list[tuple[str, float]] = []
        self.looks: list[str] = []

    def add(self, key: str, *, first: bool = False) -> None:
        self.keys.append(key)

    def add_later(self, key: str, *, seconds: float) -> None:
        self.later.append((key, seconds))

    def forget(self, key: str) -> None:
        self.keys.append(f"not {key}")

    def jobs_changed(self) -> None:
        self.looks.append("soon")

    def room_changed(self) -> None:
        self.looks.append("at leisure")

    def limits_changed(self) -> None:
        self.looks.append("limits")

    def clear(self) -> None:
        for noted in (self.keys, self.later, self.looks):
            noted.clear()

    @property
    def later_keys(self) -> list[str]:
        return [key for key, _ in self.later]


@pytest.fixture
def woken() -> Woken:
    return Woken()


class NoEvictions(PodEvictions):
    def __init__(self) -> None:
        """Nothing is evicted here."""

    def changed(self, gpunode: GPUNode) -> None: ...

    def gone(self, node: str) -> None: ...


def make_changes(woken: Any, **nodes: int) -> Changes:
    return Changes(
        make_state(**nodes),
        queue=woken,
        scheduling=woken,
        evictions=NoEvictions(),
        pacing=Pacing(),
        pending=PendingWrites(),
        now=lambda: NOW,
    )


@pytest.fixture
def changes(woken: Woken) -> Changes:
    """`x` has a batch Job and a running pod on node n1, `y` depends on it, and `arr-t1` is a task of `arr`."""
    made = make_changes(woken, n1=2)
    array = make_job("arr", array={"indexes": "0-1"}, status={"number": 3})
    owner = {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "name": "arr",
        "uid": "uid-arr",
        "controller": True,
    }
    labels = {names.LABEL_ARRAY: "arr", names.LABEL_TASK: "1"}
    jobs = [
        JOB,
        make_job("y", dependencies=[{"name": "x"}], status={"number": 2}),
        array,
        make_job("arr-t1", meta={"labels": labels, "ownerReferences": [owner]}, status={"number": 4}),
    ]
    for job in jobs:
        made.job_changed(job)
    made.state.store.child_changed(CHILD)
    made.state.store.pod_event("ADDED", POD)
    made.state.store.gpunode_changed(report())
    woken.clear()
    return made


JOB = make_job(status={"number": 1, "phase": "Running"})
CHILD = make_child(JOB, status={"active": 1})
POD = make_pod(node="n1", devices=1)


def later(found: Any, **changed: Any) -> Any:
    version = str(int(found.metadata.resource_version or "1") + 1)
    meta = msgspec.structs.replace(found.metadata, resource_version=version)
    return msgspec.structs.replace(found, metadata=meta, **changed)


def make_slice() -> ResourceSlice:
    meta = {"name": "s", "uid": "uid-s", "resourceVersion": "1"}
    spec = {"driver": names.GPU_DRIVERS[0], "nodeName": "n1", "devices": [{"name": "0"}]}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceSlice)


def task(changes: Changes) -> GPUJob:
    return changes.state.store.jobs["team/arr-t1"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An event, and all that follows: jobs at once and jobs after a burst, and looks of the queue."""

    event: Callable[[Changes], None]
    keys: Sequence[str] = ()
    later: Sequence[str] = ()
    looks: Sequence[str] = ()


FAILED = {"conditions": [condition("Failed")], "active": 1}
CASES = {
    "a new job": Case(
        event=lambda it: it.job_event("ADDED", make_job("new", status={"number": 9})),
        keys=["team/new"],
        looks=["soon"],
    ),
    "a job that another one waits for goes": Case(
        event=lambda it: it.job_event("DELETED", later(JOB)),
        keys=["not team/x", "team/y"],
        looks=["soon", "soon"],
    ),
    "a task goes": Case(
        event=lambda it: it.job_event("DELETED", later(task(it))),
        keys=["not team/arr-t1", "team/arr"],
        looks=["soon"],
    ),
    "a task changes": Case(
        event=lambda it: it.job_event("MODIFIED", later(task(it))),
        keys=["team/arr-t1", "team/arr"],
        looks=["at leisure"],
    ),
    "a job cannot be read": Case(
        event=lambda it: it.job_unreadable(JOB.metadata, "spec.gpu cannot be read"),
        looks=["soon"],
    ),
    "a batch Job ends": Case(
        event=lambda it: it.child_event("MODIFIED", later(make_child(JOB, status=FAILED))),
        keys=["team/y"],
        later=["team/x"],
        looks=["soon", "at leisure"],
    ),
    "a batch Job goes": Case(
        event=lambda it: it.child_event("DELETED", later(CHILD)),
        keys=["team/y"],
        later=["team/x"],
        looks=["soon", "soon", "at leisure"],
    ),
    "a batch Job of no GPUJob": Case(
        event=lambda it: it.child_event("ADDED", make_child(make_job("stranger"))),
    ),
    "a pod of the job fails": Case(
        event=lambda it: it.pod_event("MODIFIED", later(POD, status=make_pod(phase="Failed", exit_code=1).status)),
        later=["team/x"],
        looks=["at leisure"],
    ),
    "a pod of the job goes": Case(
        event=lambda it: it.pod_event("DELETED", POD),
        later=["team/x"],
        looks=["at leisure"],
    ),
    "a pod of the job comes again as it was": Case(event=lambda it: it.pod_event("MODIFIED", later(POD))),
    "a pod of another owner": Case(
        event=lambda it: it.pod_event("MODIFIED", make_other_pod(node="n1")),
        looks=["at leisure"],
    ),
    "a node": Case(event=lambda it: it.node_event("MODIFIED", make_node("n1")), looks=["at leisure"]),
    "a node goes": Case(event=lambda it: it.node_event("DELETED", make_node("n1")), looks=["at leisure"]),
    "a ResourceSlice": Case(event=lambda it: it.slice_event("ADDED", make_slice()), looks=["at leisure"]),
    "a ResourceSlice goes": Case(event=lambda it: it.slice_event("DELETED", make_slice()), looks=["at leisure"]),
    "a report of a device that is ill": Case(
        event=lambda it: it.gpunode_event("MODIFIED", report(health="Unhealthy")),
        later=["team/x"],
        looks=["at leisure"],
    ),
    "a report that changes nothing for a job": Case(
        event=lambda it: it.gpunode_event("MODIFIED", report())
    ),
    "a report goes": Case(event=lambda it: it.gpunode_event("DELETED", report()), looks=["at leisure"]),
    "the API server refuses an object of the job": Case(
        event=lambda it: it.refuse(JOB, obstacle=Obstacle(reason="Quota", message="exceeded")),
        looks=["soon"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_an_event_wakes_whom_it_concerns_and_no_one_else(changes: Changes, woken: Woken, name: str) -> None:
    case = CASES[name]
    case.event(changes)
    assert (woken.keys, woken.later_keys, woken.looks) == (list(case.keys), list(case.later), list(case.looks))


async def test_the_end_of_a_batch_job_is_reconciled_sooner_than_what_passes(changes: Changes, woken: Woken) -> None:
    changes.child_event("MODIFIED", later(make_child(JOB, status={"active": 1, "startTime": at(0)})))
    passing = woken.later[-1][1]
    changes.child_event("MODIFIED", later(later(make_child(JOB, status=FAILED))))
    assert BURST_SECONDS == woken.later[-1][1] < passing


async def test_a_passing_state_is_written_a_second_after_it_began(changes: Changes) -> None:
    """However many states follow each other."""
    changes.child_event("MODIFIED", later(make_child(JOB, status={"active": 1, "startTime": at(0)})))
    assert "uid-x" in changes._pacing._since


@pytest.mark.parametrize(("reason", "seconds"), [("Evaluating", 1), ("Quota", 30), ("Invalid", 30)])
def test_after_a_refusal_job_and_queue_look_again_once_it_may_have_passed(
    woken: Woken, reason: Any, seconds: float
) -> None:
    async def scenario() -> None:
        changes = make_changes(woken)
        changes.state.store.job_changed(JOB)
        changes.refuse(JOB, obstacle=Obstacle(reason=reason, message="no"))
        woken.clear()
        await asyncio.sleep(seconds - 0.01)
        assert (woken.keys, woken.looks) == ([], [])
        await asyncio.sleep(0.02)
        assert (woken.keys, woken.looks) == (["team/x"], ["soon"])
        assert changes.state.decisions.refusal_of(JOB, now=NOW) is None

    virtual_time.run(scenario())


async def test_who_waits_for_a_written_object_goes_on_with_its_event(changes: Changes, woken: Woken) -> None:
    """Whichever object it is: a batch Job, a job, or one that is deleted meanwhile."""
    written, pending = later(CHILD), changes._pending
    pending.await_child("team/y", written=written, store=changes.state.store)
    assert pending.wait_seconds("team/y") > 0
    changes.child_event("MODIFIED", written)
    assert woken.keys == ["team/y"]
    for type_ in ("MODIFIED", "DELETED"):
        woken.clear()
        written = later(task(changes))
        pending.await_job("team/x", written=written, store=changes.state.store)
        assert pending.wait_seconds("team/x") > 0
        changes.job_event(type_, written)  # type: ignore[arg-type]
        assert "team/x" in woken.keys


async def test_our_own_status_wakes_those_who_wait_for_the_job(changes: Changes, woken: Woken) -> None:
    written = later(JOB, status=msgspec.structs.replace(JOB.status, phase="Succeeded"))
    changes._pending.await_job("team/x", written=written, store=changes.state.store, is_status=True)
    changes.job_event("MODIFIED", written)
    assert (woken.keys, woken.looks) == (["team/y"], ["soon"])


async def test_a_refusal_of_pods_concerns_the_job_of_its_own_namespace(changes: Changes, woken: Woken) -> None:
    def refusal(namespace: str) -> Event:
        about = {"kind": "Job", "namespace": namespace, "name": "x", "uid": "uid-child"}
        meta = {"name": "e", "namespace": "team"}
        return msgspec.convert({"metadata": meta, "involvedObject": about, "reason": "FailedCreate"}, Event)

    changes.refusal_event("ADDED", refusal("lab"))
    assert woken.looks == []
    changes.refusal_event("ADDED", refusal("team"))
    assert woken.looks == ["soon"]


def test_what_events_bring_is_in_the_view_and_leaves_it(woken: Woken) -> None:
    changes = make_changes(woken)
    view = changes.state.store.view
    changes.node_event("ADDED", make_node("n1"))
    changes.gpunode_event("ADDED", report(devices=2))
    assert [len(view.ledger.devices("n1")), list(view.nodes)] == [2, ["n1"]]
    changes.gpunode_event("DELETED", report())
    assert len(view.ledger.devices("n1")) == 0
    changes.node_event("DELETED", make_node("n1"))
    assert not view.nodes


def with_device(found: GPUNode, **changed: Any) -> GPUNode:
    first, *others = found.status.devices
    devices = [msgspec.structs.replace(first, **changed), *others]
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, devices=devices))


@pytest.mark.parametrize(
    ("changed", "looks"),
    [
        pytest.param({}, [], id="a sign of life"),
        pytest.param({"utilization": 0.7, "used_mib": 9, "temperature_celsius": 70, "power_watts": 300}, [], id="load"),
        pytest.param({"tenants": [TenantUse(uid="a", used_mib=9)], "totals": [TenantTotal(uid="a")]}, [], id="tenants"),
        pytest.param({"foreign_mib": 9}, ["at leisure"], id="memory of strangers"),
        pytest.param({"health": "Unhealthy", "health_reason": "Xid79"}, ["at leisure"], id="health"),
        pytest.param({"memory_mib": 9}, ["at leisure"], id="memory"),
        pytest.param({"taint": "Foreign"}, ["at leisure"], id="a taint"),
    ],
)
def test_a_report_asks_for_a_cycle_only_if_it_changes_what_fits(
    woken: Woken, changed: dict[str, Any], looks: list[str]
) -> None:
    changes = make_changes(woken)
    changes.node_event("ADDED", make_node("n1"))
    changes.gpunode_event("ADDED", first := report(devices=2))
    woken.clear()
    changes.gpunode_event("MODIFIED", later(with_device(first, **changed)))
    assert woken.looks == looks


def test_a_report_of_a_node_whose_measurements_had_grown_old_asks_for_a_cycle(woken: Woken) -> None:
    changes = make_changes(woken)
    changes.node_event("ADDED", make_node("n1"))
    changes.gpunode_event("ADDED", first := report(devices=2))
    changes.state.store.view.ledger.distrust("n1", note="its last report is too old")
    woken.clear()
    changes.gpunode_event("MODIFIED", later(first))
    changes.gpunode_event("MODIFIED", later(later(first)))
    assert woken.looks == ["at leisure"]


@pytest.mark.parametrize(
    ("changed", "looks"),
    [
        pytest.param({}, [], id="a sign of life"),
        pytest.param({"spec": NodeSpec(unschedulable=True)}, ["at leisure"], id="a cordon"),
        pytest.param({"status": NodeStatus(allocatable={"cpu": "1"})}, ["at leisure"], id="its size"),
    ],
)
def test_a_node_asks_for_a_cycle_only_if_it_has_changed(
    woken: Woken, changed: dict[str, Any], looks: list[str]
) -> None:
    changes = make_changes(woken)
    changes.node_event("ADDED", node := make_node("n1"))
    woken.clear()
    changes.node_event("MODIFIED", later(node, **changed))
    assert woken.looks == looks


def test_a_label_of_a_node_asks_for_a_cycle(woken: Woken) -> None:
    changes = make_changes(woken)
    changes.node_event("ADDED", node := make_node("n1"))
    woken.clear()
    relabelled = msgspec.structs.replace(node.metadata, labels={**node.metadata.labels, "zone": "a"})
    changes.node_event("MODIFIED", msgspec.structs.replace(node, metadata=relabelled))
    assert woken.looks == ["at leisure"]


def test_the_status_of_a_bound_plain_pod_asks_for_no_cycle_and_its_bind_and_its_end_do(woken: Woken) -> None:
    changes = make_changes(woken, n1=2)
    plain = {"name": "plain", "uid": "plain", "resourceVersion": "1", "labels": {}, "ownerReferences": []}
    waits = make_pod(node="", phase="Pending", meta=plain)
    bound = make_pod(node="n1", devices=1, meta=plain)
    for event, pod, looks in (
        ("ADDED", waits, ["at leisure"]),
        ("MODIFIED", bound, ["at leisure"]),
        ("MODIFIED", later(bound), []),
        ("MODIFIED", later(bound, status=PodStatus(phase="Succeeded")), ["at leisure"]),
        ("DELETED", bound, ["at leisure"]),
    ):
        woken.clear()
        changes.pod_event(event, pod)
        assert woken.looks == looks, (event, pod)


def test_a_node_is_open_again_once_its_driver_has_been_absent_for_a_while(woken: Woken) -> None:
    changes, now = make_changes(woken), 1000.0
    drivers = NodeDrivers(clock=lambda: now, absent_seconds=60)
    view = changes.state.store.view = ClusterView(ledger=changes.state.store.view.ledger, drivers=drivers)
    changes.node_event("ADDED", make_node("n1"))
    changes.slice_event("ADDED", make_slice())
    for seconds in (0, 61):
        now += seconds
        changes.time_passes()
        assert view.closed("n1") is not None, "the driver serves the node"
    changes.slice_event("DELETED", make_slice())
    for seconds, is_open in ((59, False), (2, True)):
        woken.clear()
        now += seconds
        changes.time_passes()
        assert (view.closed("n1") is None, woken.looks) == (is_open, ["at leisure"] * is_open)


def test_quotas_count_with_the_devices_of_a_node_as_its_labels_and_its_agent_say(
    woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, counted = make_changes(woken), list[str]()

    def note(node: str, *, ledger: Ledger) -> None:
        assert ledger is changes.state.store.view.ledger
        counted.append(node)

    monkeypatch.setattr(changes.state.store.quotas, "devices_changed", note)
    changes.node_event("ADDED", make_node("n1"))
    changes.gpunode_event("ADDED", report())
    changes.gpunode_event("DELETED", report())
    assert counted == ["n1"] * 3


@pytest.mark.parametrize("passed", ["a driver's absence", "a measurement", "nothing"])
def test_the_queue_looks_when_time_alone_has_changed_something(
    woken: Woken, monkeypatch: pytest.MonkeyPatch, passed: str
) -> None:
    changes = make_changes(woken)
    view = changes.state.store.view
    monkeypatch.setattr(view, "drivers_pass", lambda: passed == "a driver's absence")
    monkeypatch.setattr(view, "time_passes", lambda: passed == "a measurement")
    changes.time_passes()
    assert woken.looks == ([] if passed == "nothing" else ["at leisure"])
