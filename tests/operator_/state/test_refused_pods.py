"""Jobs whose pods the API server refuses, of which only an event about the batch Job tells."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import job_of
from dovetail.api.meta import EventType
from dovetail.jobs.guests.kind import suspend_patch
from dovetail.jobs.guests.record import record_of
from dovetail.jobs.guests.run import as_batch_job
from dovetail.kube.client import Client
from dovetail_operator.controller.informers import build_refusals
from dovetail_operator.job.plan_doubts import Doubt
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.state.refused_pods import RefusedPods, doubt_of, jobs_that_lack, lacks_pods, refusal_in
from dovetail_operator.state.state import State
from tests.core.jobs.guests.examples import guest, kind_named
from tests.core.kube.api import Answer, Api
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod, make_state

EVENTS = "GET /api/v1/events"
QUOTA = "exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2"
NO_ACCOUNT = 'error looking up service account team/nope: serviceaccount "nope" not found'


def event(
    message: str,
    *,
    seconds: float = 1,
    about: str = "uid-child",
    name: str = "x",
    reason: str = "FailedCreate",
    kind: str = "Job",
    namespace: str = "team",
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"e{seconds}", "namespace": namespace, "resourceVersion": "5"},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": about},
        "reason": reason,
        "message": message,
        "lastTimestamp": at(seconds),
    }


def started(**spec: Any) -> Job:
    return make_child(make_job(), status={"startTime": at(0)}, **spec)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], ""),
        ([event(f'Error creating: pods "x-0-abcde" is forbidden: {QUOTA}')], f"forbidden: {QUOTA}"),
        (
            [event(f'(combined from similar events): Error creating: pods "x-0-abcde" is forbidden: {NO_ACCOUNT}')],
            f"forbidden: {NO_ACCOUNT}",
        ),
        ([event("Error creating: old", seconds=1), event("Error creating: new", seconds=2)], "new"),
        ([event("Error creating: of the start before", seconds=-1)], ""),
        ([event("Created pod: x-0", reason="SuccessfulCreate")], ""),
        ([event("Error creating: when?") | {"lastTimestamp": None}], ""),
    ],
    ids=["nothing", "a quota", "several", "the newest", "an earlier start", "something else", "no time"],
)
def test_the_words_are_those_of_the_newest_refusal_since_the_start(events: list[dict[str, Any]], says: str) -> None:
    assert refusal_in([msgspec.convert(each, Event) for each in events], start=at(0), pods=()) == says


def test_of_a_batch_job_that_has_not_begun_nothing_is_told() -> None:
    found = [msgspec.convert(event("Error creating: x"), Event)]
    assert refusal_in(found, start=None, pods=()) == ""


def test_what_was_refused_before_another_pod_was_made_has_passed() -> None:
    found = [msgspec.convert(event("Error creating: try again", seconds=2), Event)]
    assert refusal_in(found, start=at(0), pods=[make_pod(0, created=1)]) == "try again"
    assert refusal_in(found, start=at(0), pods=[make_pod(0, created=1), make_pod(1, created=3)]) == ""


@pytest.mark.parametrize(
    ("child", "pods", "lacks"),
    [
        (started(completions=2), (), True),
        (started(completions=2), (make_pod(0),), True),
        (started(completions=2), (make_pod(0), make_pod(1, phase="Pending", node="")), False),
        (started(completions=1), (), True),
        (started(completions=1), (make_pod(0),), False),
        (started(completions=2, suspend=True), (), False),
        (make_child(make_job(), completions=2, status={"startTime": at(0), "succeeded": 2}), (), False),
        (make_child(make_job(), completions=2, status={"conditions": [condition("FailureTarget")]}), (), False),
    ],
    ids=["none", "a part", "all", "of fewer workers", "all of fewer workers", "suspended", "done", "failing"],
)
def test_a_job_at_work_lacks_the_pods_that_are_not_there(child: Job, pods: tuple[Pod, ...], lacks: bool) -> None:
    assert lacks_pods(make_job(workers=2), child=child, pods=pods) == lacks


def test_a_job_of_kueue_is_left_to_kueue() -> None:
    job = make_job(workers=2, meta={"labels": {"kueue.x-k8s.io/queue-name": "team"}})
    assert not lacks_pods(job, child=started(completions=2), pods=())


def test_a_plan_whose_pods_are_refused_rests_longer_each_time() -> None:
    doubts = [doubt_of(make_job(status={"plans": plans}), words=NO_ACCOUNT) for plans in (0, 1, 2, 3, 90)]
    assert [doubt.rest_seconds for doubt in doubts] == [30, 30, 60, 120, 300]
    assert {doubt.reason for doubt in doubts} == {"Invalid"}
    assert doubt_of(make_job(), words=QUOTA).reason == "Quota"


class Rig:
    """A job of three workers of which two have a pod."""

    def __init__(self) -> None:
        self.state: State = make_state(a=4)
        placement = {"generation": 1, "nodes": [{"name": "a", "workers": 3}], "worker": {"request": "1"}}
        self.job = make_job(workers=3, status={"number": 1, "plans": 1, "placement": placement})
        self.state.store.job_changed(self.job)
        self.state.store.child_changed(make_child(self.job, completions=3, status={"startTime": at(0)}))
        for worker in range(2):
            self.state.store.pod_event("ADDED", make_pod(worker, node="a", devices=1))

    def told(self, message: str, *, type_: EventType = "ADDED", **more: Any) -> None:
        self.state.store.refused_pods.changed(type_, event=msgspec.convert(event(message, **more), Event))

    def doubts(self) -> dict[str, Doubt]:
        cycle = survey(self.state, now=NOW)
        list(decide(self.state, cycle=cycle))
        return cycle.doubts


def test_a_gang_of_which_some_pods_are_refused_is_doubted_in_the_api_servers_words() -> None:
    rig = Rig()
    assert rig.doubts() == {}
    rig.told(f'Error creating: pods "x-2-abcde" is forbidden: {QUOTA}')
    doubt = rig.doubts()["uid-x"]
    assert (doubt.reason, doubt.words) == ("Quota", f"the API server refuses its pods: forbidden: {QUOTA}")
    # Once it has all its pods nothing is doubted any more.
    rig.state.store.pod_event("ADDED", make_pod(2, node="a", devices=1))
    assert rig.doubts() == {}


def test_what_is_told_of_another_jobs_pods_is_not_held_against_this_one() -> None:
    rig = Rig()
    rig.told("Error creating: y", about="uid-y")
    assert rig.doubts() == {}


def test_what_the_api_server_keeps_no_longer_is_forgotten() -> None:
    rig = Rig()
    rig.told("Error creating: x", seconds=1)
    rig.told("Error creating: y", seconds=2)
    rig.told("Error creating: y", seconds=2, type_="DELETED")
    assert rig.doubts()["uid-x"].words == "the API server refuses its pods: x"
    rig.told("Error creating: x", seconds=1, type_="DELETED")
    rig.told("Error creating: x", seconds=1, type_="DELETED")
    assert rig.doubts() == {}


def test_what_refused_the_pods_of_one_run_does_not_stop_the_next() -> None:
    rig = Rig()
    rig.told(f'Error creating: pods "x-2-abcde" is forbidden: {QUOTA}')
    again = make_child(rig.job, completions=3, status={"startTime": at(60)})
    meta = msgspec.structs.replace(again.metadata, resource_version="21")
    rig.state.store.child_changed(msgspec.structs.replace(again, metadata=meta))
    assert rig.doubts() == {}


def refused_guest(guests: str, *, admitted: float = 0, message: str = "Error creating: ", **about: Any) -> Doubt | None:
    """The doubt about the record of a guest without pods, of which there is this event."""
    adapter = kind_named(guests)
    found = guest(adapter, status={"rayClusterName": "tune-2x7fb"} if guests == "RayJob" else None)
    found = msgspec.structs.replace(found, spec=found.spec | suspend_patch(adapter, suspend=False)["spec"])
    made = record_of(guest(adapter), kind=adapter)
    status = {"phase": "Starting", "admittedTime": at(admitted)}
    record = job_of({**made, "metadata": {**made["metadata"], "uid": "uid-record"}, "status": status})
    refused, raw = RefusedPods(), msgspec.convert(event(f"{message}{NO_ACCOUNT}", **about), Event)
    refused.changed("ADDED", event=raw)
    doubt = refused.doubt(record, child=as_batch_job(found, kind=adapter, record=record, workers=2), pods=())
    # The handler of the event finds the record by the name of the object.
    assert doubt is None or record.metadata.name in jobs_that_lack(raw.involved_object)
    return doubt


HEAD = {"kind": "RayCluster", "reason": "FailedToCreateHeadPod"}
WORKER = {"kind": "RayCluster", "reason": "FailedToCreateWorkerPod"}
MPI = {"kind": "MPIJob", "reason": "MPIJobFailed"}


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("Job", {"about": "uid-guest", "name": "train"}),
        ("JobSet", {"about": "uid-inner", "name": "together-workers-1"}),
        ("TrainJob", {"about": "uid-inner", "name": "finetune-node-0"}),
        (
            "RayCluster",
            HEAD | {"about": "uid-guest", "name": "notebook", "message": "Failed to create head Pod team/h, "},
        ),
        (
            "RayJob",
            WORKER
            | {
                "about": "uid-cluster",
                "name": "tune-2x7fb",
                "message": "Failed to create worker Pod for the cluster team/tune-2x7fb, ",
            },
        ),
        ("MPIJob", MPI | {"about": "uid-guest", "name": "allreduce", "message": "worker pod created failed: "}),
    ],
)
def test_a_guest_whose_pods_are_refused_is_doubted(kind: str, about: dict[str, Any]) -> None:
    doubt = refused_guest(kind, **about)
    assert doubt is not None
    assert (doubt.reason, doubt.words) == ("Invalid", f"the API server refuses its pods: {NO_ACCOUNT}")
    assert refused_guest(kind, admitted=60, **about) is None, "of the start before"


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("Job", {"name": "train"}),
        ("Job", {"name": "train-0"}),
        ("JobSet", {"name": "together"}),
        ("JobSet", {"name": "together-workers"}),
        ("JobSet", {"name": "together-other-0"}),
        ("JobSet", WORKER | {"name": "together-workers-0"}),
        ("JobSet", {"name": "together-workers-1", "namespace": "other"}),
        ("RayJob", WORKER | {"name": "tune-2x7fb", "namespace": "other"}),
        ("TrainJob", {"name": "finetune-workers-0"}),
        ("RayCluster", WORKER | {"name": "notebook"}),
        ("RayJob", WORKER | {"name": "tune-other"}),
        ("RayJob", {"name": "tune-2x7fb"}),
        ("MPIJob", MPI | {"name": "allreduce", "about": "uid-guest", "message": "has failed: "}),
    ],
)
def test_a_guest_is_not_doubted_for_the_pods_of_another_object(kind: str, about: dict[str, Any]) -> None:
    assert refused_guest(kind, **{"about": "uid-other", **about}) is None


def test_what_the_api_server_no_longer_keeps_of_an_inner_job_is_forgotten() -> None:
    refused = RefusedPods()
    for type_ in ("ADDED", "MODIFIED", "DELETED", "DELETED"):
        raw = event("Error creating: x", about="uid-inner", name="together-workers-1")
        refused.changed(type_, event=msgspec.convert(raw, Event))
    assert (refused._events, refused._uids) == ({}, {})


async def test_only_what_a_controller_cannot_make_is_followed(client: Client, api: Api) -> None:
    seen: list[str] = []
    body = {"metadata": {"resourceVersion": "5"}, "items": [event("Error creating: x")]}
    api.answer(EVENTS, *[Answer(body=body)] * 40)
    reflectors = build_refusals(client, on_event=lambda _type, each: seen.append(each.message))
    following = [asyncio.create_task(each.run()) for each in reflectors]
    for each in reflectors:
        await each.synced.wait()
    for task in following:
        task.cancel()
    assert "Error creating: x" in seen
    assert {each.query["fieldSelector"] for each in api.of(EVENTS)} == {
        "reason=FailedCreate,involvedObject.kind=Job",
        "reason=FailedToCreateHeadPod,involvedObject.kind=RayCluster",
        "reason=FailedToCreateWorkerPod,involvedObject.kind=RayCluster",
        "reason=MPIJobFailed,involvedObject.kind=MPIJob",
    }
