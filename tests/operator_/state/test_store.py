"""The store of observed objects: which version counts, whose batch Job and pods are whose, what a report changes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Enforcement, GPUNode, Overuse, Reshape
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import ObjectMeta
from dovetail.names import LABEL_JOB
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_operator.state.state import State
from tests.containers import items_by_attribute
from tests.core.builders import make_node
from tests.operator_.builders import LET_GO, NOW, at, make_child, make_job, make_pod, make_state


def report(
    name: str = "n1",
    *,
    devices: int = 2,
    seconds: float | None = 0,
    of_node: dict[str, Any] | None = None,
    **changes: Any,
) -> GPUNode:
    """A node's report; `changes` are fields of each device, `of_node` fields of the report."""
    listed = [
        {
            "index": i,
            "uuid": f"GPU-{name}-{i}",
            "vendor": "nvidia",
            "model": "V100",
            "memoryMiB": 32768,
            "powerWatts": 9,
        }
        | changes
        for i in range(devices)
    ]
    status = {"devices": listed, "observedAt": None if seconds is None else at(seconds)}
    made = msgspec.convert({"metadata": {"name": name}, "status": status}, GPUNode)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, **(of_node or {})))


def with_job(state: State, name: str = "x", **spec: Any) -> GPUJob:
    job = make_job(name, **spec)
    state.store.job_changed(job)
    return job


class Follower:
    """Notes what it is passed."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def observe(self, job: GPUJob) -> None:
        self.seen.append(("put", job.metadata.uid))

    def drop(self, job: GPUJob) -> None:
        self.seen.append(("drop", job.metadata.uid))


def test_followers_get_each_newer_version_and_the_last_one_of_a_job_that_is_replaced() -> None:
    state, follower = make_state(), Follower()
    state.store.follow(follower)
    for version, uid in (("5", "a"), ("5", "a"), ("6", "a"), ("4", "b"), ("7", "b")):
        state.store.job_changed(make_job(meta={"resourceVersion": version, "uid": uid}))
    state.store.job_deleted("team/x", uid="a")
    assert follower.seen == [("put", "a"), ("put", "a"), ("drop", "a"), ("put", "b")]
    state.store.job_deleted("team/x", uid="b")
    state.store.job_deleted("team/x", uid="b")
    assert follower.seen[4:] == [("drop", "b")]


def test_jobs_that_ran_are_those_with_a_start_or_a_preemption() -> None:
    store = make_state().store
    store.job_changed(make_job(meta={"resourceVersion": "1"}))
    assert store.jobs_that_ran == {}
    for version, status in (("2", {"startTime": at(-5)}), ("3", {"preemption": {"by": "uid-y", "count": 1}})):
        store.job_changed(make_job(meta={"resourceVersion": version}, status=status))
        assert store.jobs_that_ran == {"team/x": store.jobs["team/x"]}
    store.job_changed(make_job(meta={"resourceVersion": "4"}))
    assert store.jobs_that_ran == {}
    store.job_changed(make_job(meta={"resourceVersion": "5"}, status={"startTime": at(-5)}))
    store.job_deleted("team/x", uid="uid-x")
    assert store.jobs_that_ran == {}


def test_jobs_that_count_are_those_of_a_group_or_that_never_end_for_another_one() -> None:
    store = make_state().store
    store.job_changed(make_job(meta={"resourceVersion": "1"}))
    assert store.jobs_that_count == {}
    for version, spec in (("2", {"group": "sweep"}), ("3", {"preemptible": False})):
        store.job_changed(make_job(meta={"resourceVersion": version}, **spec))
        assert store.jobs_that_count == {"team/x": store.jobs["team/x"]}
    store.job_changed(make_job(meta={"resourceVersion": "4"}))
    assert store.jobs_that_count == {}
    store.job_changed(make_job(meta={"resourceVersion": "5"}, group="sweep"))
    store.job_deleted("team/x", uid="uid-x")
    assert store.jobs_that_count == {}


def test_versions_are_numbers_and_not_texts() -> None:
    state = make_state()
    child = make_child(with_job(state))
    for version in ("9", "10", "9"):
        metadata = msgspec.structs.replace(child.metadata, resource_version=version)
        state.store.child_changed(msgspec.structs.replace(child, metadata=metadata))
    known = state.store.child_named("team/x")
    assert known is not None
    assert known.metadata.resource_version == "10"


def test_a_version_that_cannot_be_read_is_of_the_stored_job_until_one_can() -> None:
    state = make_state()
    meta = ObjectMeta(name="x", namespace="team", uid="uid-x")
    assert not state.store.job_unreadable(meta, message="odd")
    job = with_job(state)
    with_job(state, "y")
    other = ObjectMeta(name="x", namespace="team", uid="uid-other")
    assert not state.store.job_unreadable(other, message="odd")
    assert not state.store.is_unreadable("team/x")
    assert state.store.job_unreadable(meta, message="odd")
    assert (state.store.is_unreadable("team/x"), state.store.is_unreadable("team/y")) == (True, False)
    assert state.store.unreadable_message("uid-x") == "odd"
    found = state.obstacle_of(job, now=NOW)
    assert found is not None
    assert (found.message, engaged(state)) == ("odd", True)
    state.store.job_changed(make_job(meta={"resourceVersion": "11"}))
    assert (state.store.is_unreadable("team/x"), engaged(state)) == (False, False)


def test_an_event_of_its_batch_job_makes_no_unreadable_version_readable() -> None:
    state = make_state()
    job = with_job(state)
    state.store.job_unreadable(job.metadata, message="odd")
    state.store.child_event("ADDED", make_child(job))
    assert state.store.is_unreadable("team/x")
    state.store.child_event("DELETED", make_child(job))
    assert state.store.is_unreadable("team/x")


def test_a_deleted_job_that_could_not_be_read_is_forgotten() -> None:
    state = make_state()
    with_job(state)
    state.store.job_unreadable(ObjectMeta(name="x", namespace="team", uid="uid-x"), message="odd")
    state.store.job_deleted("team/x", uid="uid-x")
    assert state.store.unreadable_message("uid-x") is None


def test_only_batch_jobs_of_known_gpujobs_are_children() -> None:
    state = make_state()
    mine, forged, orphan = with_job(state), make_job("y"), make_job("z")
    with_job(state, "y", meta={"uid": "uid-later"})
    for job in (mine, forged, orphan):
        assert (
            state.store.child_event("ADDED", make_child(job, uid=f"child-{job.metadata.name}"))
            == f"team/{job.metadata.name}"
        )
    assert [child.metadata.uid for child in state.store.children()] == ["child-x"]
    named = state.store.child_named("team/y")
    assert named is not None
    assert named.metadata.uid == "child-y"


def test_an_event_of_an_unknown_batch_job_removes_none() -> None:
    state = make_state()
    job = with_job(state)
    assert state.store.child_event("DELETED", make_child(job)) == "team/x"
    state.store.child_event("ADDED", make_child(job))
    state.store.child_event("DELETED", make_child(make_job("y")))
    assert state.store.child_of(job) is not None


def engaged(state: State) -> bool:
    found = state.engaged({"uid-x": "team/x", "uid-z": "team/z"}, named={"team/x", "team/z"})
    assert found <= {"team/x"}
    return bool(found)


def test_a_job_is_left_to_itself_without_batch_job_pods_plan_or_obstacle() -> None:
    for happens in (
        lambda state, job: state.store.child_changed(make_child(job)),
        lambda state, _: state.store.pod_event("ADDED", make_pod()),
        lambda state, _: state.decisions.set_verdict("uid-x", verdict=LET_GO),
    ):
        state = make_state(a=1)
        job = with_job(state)
        assert not engaged(state)
        happens(state, job)  # type: ignore[no-untyped-call]
        assert engaged(state)


def test_jobs_of_another_controller_get_no_number_and_are_not_observed() -> None:
    state = make_state()
    ours = with_job(state)
    with_job(state, "theirs", managedBy="example.com/other")
    assert state.unnumbered() == [ours]
    assert state.observe("team/theirs", now=NOW) is None
    assert state.observe("team/none", now=NOW) is None


# --- reports ---


def on_a_device(state: State, *pods: int, name: str = "x") -> GPUJob:
    """A running job whose pods have a device of n1 each."""
    held = [
        {
            "node": "n1",
            "uuid": f"GPU-n1-{worker}",
            "index": worker,
            "worker": worker,
            "shareMilli": 1000,
            "memoryMiB": 1,
        }
        for worker in pods
    ]
    job = with_job(state, name, status={"number": 1, "phase": "Running", "devices": held})
    state.store.child_changed(make_child(job))
    for worker in pods:
        state.store.pod_event("ADDED", make_pod(worker, devices=1))
    return job


@pytest.mark.parametrize(
    ("reported", "busiest"),
    [
        pytest.param([report(utilization=0.25)], 0.25, id="measured"),
        pytest.param([report(utilization=0.25, seconds=-660)], 0.25, id="measured 660 s ago"),
        pytest.param([report(utilization=0.25, seconds=-661)], None, id="measured more than 660 s ago"),
        pytest.param([report(utilization=0.25, seconds=None)], None, id="a report without a time"),
        pytest.param([report(devices=0)], None, id="the device is not in the report"),
        pytest.param([report("n2")], None, id="another node's report"),
        pytest.param([report(powerWatts=None)], None, id="the driver measures nothing"),
        pytest.param([], None, id="no report"),
    ],
)
def test_the_utilization_of_a_job_is_known_where_its_device_is(reported: list[GPUNode], busiest: float | None) -> None:
    state = make_state(n1=2)
    job = on_a_device(state, 0)
    for each in reported:
        state.store.gpunode_changed(each)
    assert state.store.utilization_of(job, now=NOW) == busiest


def test_the_utilization_of_a_job_is_that_of_its_busiest_device_of_all_that_are_known() -> None:
    state = make_state(n1=2)
    job = on_a_device(state, 0, 1)
    first, second = report().status.devices
    for busy, found in ((0.75, 0.75), (0.0, 0.5)):
        devices = [msgspec.structs.replace(first, utilization=0.5), msgspec.structs.replace(second, utilization=busy)]
        status = msgspec.structs.replace(report().status, devices=devices)
        state.store.gpunode_changed(msgspec.structs.replace(report(), status=status))
        assert state.store.utilization_of(job, now=NOW) == found
    state.store.gpunode_changed(report(devices=1, utilization=0.5))
    assert state.store.utilization_of(job, now=NOW) is None, "of one device it is not known"
    assert state.store.utilization_of(make_job("y"), now=NOW) is None, "a job without devices"


def test_a_deleted_report_is_forgotten_with_all_that_it_said() -> None:
    state = make_state(n1=2)
    job = on_a_device(state, 0)
    state.store.gpunode_changed(report(health="Unhealthy", utilization=0.5))
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert ["(GPU-n1-0)" in card for card in seen.bad_cards] == [True]
    assert seen.enforcement["n1"] is not None
    state.store.gpunode_deleted("n1")
    state.store.gpunode_deleted("n1")
    seen = state.observe("team/x", now=NOW + timedelta(seconds=1))
    assert seen is not None
    assert (seen.bad_cards, seen.enforcement) == ((), {"n1": None})
    assert state.store.view.ledger.devices("n1") == ()
    assert state.store.utilization_of(job, now=NOW) is None


def test_a_report_concerns_the_jobs_on_the_devices_that_changed_and_each_once() -> None:
    state = make_state(n1=2)
    on_a_device(state, 0, 1)
    state.store.gpunode_changed(report())
    assert state.store.gpunode_changed(report()) == []
    assert state.store.gpunode_changed(report(health="Unhealthy")) == ["team/x"]
    enforcing = {"enforcement": Enforcement(mps=True)}
    assert state.store.gpunode_changed(report(health="Unhealthy", of_node=enforcing)) == ["team/x"]
    assert state.store.gpunode_changed(report(health="Unhealthy", of_node=enforcing)) == []


def test_use_that_a_report_brought_before_its_pod_counts_when_the_pod_comes() -> None:
    state = make_state(n1=1)
    job = with_job(state, gpu="0.5", memory={"strategy": "Dynamic"})
    state.store.child_changed(make_child(job))
    pod = make_pod(devices=1)
    used = [{"uid": pod.metadata.uid, "usedMiB": 5000}]
    state.store.gpunode_changed(report(devices=1, tenants=used))
    assert (use := state.requests.memory_of(job)) is None or not use.peak_mib
    state.store.pod_event("ADDED", pod)
    use = state.requests.memory_of(job)
    assert use is not None
    assert use.peak_mib == 5000
    more = [{"uid": pod.metadata.uid, "usedMiB": 6000}]
    assert state.store.gpunode_changed(report(devices=1, tenants=more)) == ["team/x"]
    told = {"memory": {"strategy": "Dynamic", "basis": "", "peakMiB": 6000, "limited": True}}
    with_job(state, gpu="0.5", memory={"strategy": "Dynamic"}, status=told, meta={"resourceVersion": "11"})
    assert state.store.gpunode_changed(report(devices=1, tenants=more)) == [], "the status has it"


def test_a_device_that_falls_ill_concerns_the_jobs_on_it_and_no_others_of_the_node() -> None:
    state = make_state(n1=2)
    for worker, name in enumerate(("x", "y")):
        job = with_job(state, name)
        state.store.child_changed(make_child(job, uid=f"child-{name}"))
        held = Allocation(
            node="n1",
            mode="Exclusive",
            containers=[
                ContainerAllocation(
                    index=0,
                    devices=[AllocatedDevice(uuid=f"GPU-n1-{worker}", index=worker, share_milli=1000, memory_mib=1)],
                )
            ],
        )
        meta = {"labels": {LABEL_JOB: name}, "uid": f"pod-{name}", "annotations": annotations_of(held)}
        state.store.pod_event("ADDED", make_pod(owner=f"child-{name}", meta=meta))
    state.store.gpunode_changed(report())
    first, second = report().status.devices
    ill = msgspec.structs.replace(second, health="Unhealthy")
    assert state.store.gpunode_changed(report(of_node={"devices": [first, ill]})) == ["team/y"]


def test_of_objects_that_have_come_and_gone_the_store_keeps_nothing() -> None:
    """Whatever was known of them: tenants of quotas, ill devices, overuses, what is enforced, and requests."""
    state = make_state()
    state.store.quotas.update(msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": 8}}}, GPUQuota))
    state.store.node_changed(make_node("n1"))
    before = +items_by_attribute(state)
    job, store = make_job(), state.store
    child, worker = make_child(job), make_pod(devices=1)
    plain = make_pod(1, devices=1, owner="uid-somebody", meta={"name": "plain", "uid": "uid-plain", "labels": {}})
    overuse = Overuse(
        uid=worker.metadata.uid, namespace="team", name="x", device="GPU-n1-0", index=0, promised_mib=1, used_mib=2,
        since="then", ends=True, evict=True,
    )  # fmt: skip
    of_node = {"enforcement": Enforcement(mps=True), "overuses": [overuse]}
    ill = report(health="Unhealthy", of_node=of_node)
    request = Reshape(profiles=["1g.10gb"], requested_time=at(0))
    ill = msgspec.structs.replace(ill, spec=msgspec.structs.replace(ill.spec, reshape={"GPU-n1-0": request}))
    store.job_changed(job)
    store.child_event("ADDED", child)
    for pod in (worker, plain):
        store.pod_event("ADDED", pod)
    store.gpunode_changed(ill)
    kept = (store.bad_cards._of_node, store.overuses._of_node, store.enforcements._of_node, store.reshaped)
    assert all(kept)
    for pod in (worker, plain):
        store.pod_event("DELETED", pod)
    store.child_event("DELETED", child)
    store.job_deleted("team/x", uid="uid-x")
    store.gpunode_deleted("n1")
    after = +items_by_attribute(state)
    grown = {name for name in after if after[name] > before[name]}
    # The ledger's log of changed rows is bounded, as are the columns of its table and the names of models.
    assert {name for name in grown if not name.startswith(("NodeTable.", "ChangeLog."))} == set()
