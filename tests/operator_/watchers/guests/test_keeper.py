"""The keeper of guests on a scripted API server: records, what is shown to them, and gates."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job, Pod, PodStatus
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, Placement, PlannedNode, PlannedWorker, job_of
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.record import record_of
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.guests import keeper
from dovetail_operator.watchers.guests.directory import Known
from tests.background import running
from tests.core.jobs.guests.examples import guest, kind_named
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import at, make_job, make_keeper, make_state
from tests.world.tables import tables

KIND = kind_named("Job")
RECORDS = "/apis/dovetail.dev/v1beta1/namespaces/team/gpujobs"
GUESTS = "/apis/batch/v1/namespaces/team/jobs"
PODS = "/api/v1/namespaces/team/pods"
PLAN = {"generation": 1, "nodes": [{"name": "a", "workers": 2}], "worker": {"request": "1"}}


def held(*, suspend: bool = True, version: int = 7, **annotations: str) -> Guest:
    """A batch Job as the webhook has left it."""
    found = guest(KIND, annotations={names.RUN: "r1", names.USER: "ada", **annotations}, resourceVersion=str(version))
    return msgspec.structs.replace(found, spec={**found.spec, "suspend": suspend})


def record(*, uid: str = "uid-record", status: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    """The record of that batch Job as the API server has it."""
    made = record_of(held(), kind=KIND)
    meta = {**made["metadata"], "uid": uid, "resourceVersion": "5", "generation": 1}
    status = {"placement": PLAN, "plans": 1} if status is None else status
    return job_of({**made, "metadata": meta, "spec": {**made["spec"], **spec}, "status": status})


def pod(name: str, *, gated: bool = True, seat: str = "", gpus: bool = True, gpu: str = "1", run: str = "r1") -> Pod:
    """A pod of that batch Job."""
    annotations = ({names.REQUEST: gpu} if gpus else {}) | ({names.SEAT: seat} if seat else {})
    labels = {names.RUN: run} | ({names.LABEL_JOB: "job-train"} if seat else {})
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "8"}
    gates = [{"name": names.QUEUE_GATE}, {"name": "other"}] if gated else []
    whole = {"metadata": {**meta, "labels": labels, "annotations": annotations}, "spec": {"schedulingGates": gates}}
    return msgspec.convert(whole, Pod)


@dataclass
class Clock:
    """A clock that a test moves."""

    seconds: float = 0.0


class Rig:
    """A keeper over a state of two GPUs, what it shows, and what it says."""

    def __init__(self, client: Client) -> None:
        self.state = make_state(a=2)
        self.pods: dict[str, Pod] = {}
        self.said: list[Announcement] = []
        self.shown: list[tuple[str, Job]] = []
        self.clock = Clock()
        self.keeper = make_keeper(
            client, state=self.state, pods=self.pods, post=self.said.append, clock=lambda: self.clock.seconds
        )
        self.keeper.connect(self._show)

    def _show(self, type_: Any, child: Job) -> None:
        self.shown.append((type_, child))
        self.state.store.child_event(type_, child)

    def guest(self, found: Guest, *, type_: Any = "MODIFIED") -> None:
        """An event of a guest."""
        self.keeper._on_guest(type_, found, KIND)

    def pod(self, found: Pod) -> None:
        """An event of a pod."""
        self.pods[f"team/{found.metadata.name}"] = found
        self.state.store.pod_event("MODIFIED", found)
        self.keeper.pod_event("MODIFIED", found)

    def gone(self, found: Pod) -> None:
        """The deletion of a pod."""
        del self.pods[f"team/{found.metadata.name}"]
        self.state.store.pod_event("DELETED", found)
        self.keeper.pod_event("DELETED", found)

    async def keep(self, key: str = "team/job-train") -> None:
        """One look at the guest of that record."""
        await self.keeper._keep(key)


@pytest.fixture
def rig(client: Client) -> Rig:
    return Rig(client)


async def test_a_guest_gets_its_record(rig: Rig, api: Api) -> None:
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record()), status=201))
    rig.guest(held())
    await rig.keep()
    assert api.of(f"POST {RECORDS}")[0].body == record_of(held(), kind=KIND)


async def test_a_guest_whose_record_was_deleted_waits_once_more(rig: Rig, api: Api) -> None:
    api.answer(f"PATCH {GUESTS}/train", Answer(body=values_of(held())))
    api.answer(f"POST {RECORDS}", Answer(body=values_of(record()), status=201))
    rig.guest(held(suspend=False))
    await rig.keep()
    (seen,) = api.of(f"PATCH {GUESTS}/train")
    assert seen.body == {"metadata": {"uid": "uid-guest", "resourceVersion": "7"}, "spec": {"suspend": True}}
    assert api.of(f"POST {RECORDS}")


async def test_an_ended_guest_needs_no_record(rig: Rig, api: Api) -> None:
    over = {"conditions": [{"type": "Complete", "status": "True"}]}
    rig.guest(msgspec.structs.replace(held(suspend=False), status=over))
    await rig.keep()
    assert not api.of(f"POST {RECORDS}")


async def test_the_guest_is_shown_once_for_each_version(rig: Rig) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held())
    await rig.keep()
    await rig.keep()
    assert [(type_, child.spec.suspend) for type_, child in rig.shown] == [("MODIFIED", True)]
    rig.guest(held(suspend=False, version=9))
    await rig.keep()
    assert [child.spec.suspend for _, child in rig.shown] == [True, False]
    rig.guest(held(suspend=False, version=9), type_="DELETED")
    assert rig.shown[-1][0] == "DELETED"


async def test_another_record_is_shown_the_guest_too(rig: Rig) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held())
    await rig.keep()
    rig.state.store.job_deleted("team/job-train", uid="uid-record")
    rig.state.store.job_changed(record(uid="uid-second"))
    await rig.keep()
    assert [(type_, child.metadata.uid) for type_, child in rig.shown] == [
        ("MODIFIED", "uid-record"),
        ("DELETED", "uid-record"),
        ("MODIFIED", "uid-second"),
    ]


async def test_gates_open_one_for_each_seat_of_the_plan(rig: Rig, api: Api) -> None:
    worker = PlannedWorker(request="1", mode="Exclusive")
    plan = Placement(generation=3, nodes=[PlannedNode(name="a", workers=2)], worker=worker)
    rig.state.store.job_changed(record(status={"placement": values_of(plan), "plans": 3, "phase": "Starting"}))
    rig.guest(held(suspend=False))
    rig.pod(pod("one"))
    rig.pod(pod("three", gated=False, seat="uid-record/1"))
    rig.pod(pod("two"))
    api.answer(f"PATCH {PODS}/one", Answer(body=values_of(pod("one", gated=False, seat="uid-record/0"))))
    await rig.keep()
    (seen,) = api.of(f"PATCH {PODS}/one")
    assert seen.body["metadata"]["annotations"][names.SEAT] == "uid-record/0"
    assert '"generation":3' in seen.body["metadata"]["annotations"][names.PLAN]
    assert seen.body["metadata"]["labels"] == {names.LABEL_JOB: "job-train"}
    assert seen.body["spec"] == {"schedulingGates": [{"name": "other"}]}
    assert not api.of(f"PATCH {PODS}/two"), "both seats are taken"
    # Before the watch brings the pod with its seat, the seat is not given twice.
    await rig.keep()
    assert len(api.of(f"PATCH {PODS}/one")) == 1
    assert not api.of(f"PATCH {PODS}/two")


def scaled(found: Guest, *, to: int) -> Guest:
    """The batch Job with another parallelism."""
    return msgspec.structs.replace(found, spec={**found.spec, "parallelism": to, "completions": max(to, 2)})


async def test_a_running_guest_gets_no_more_seats_than_it_asks_for_pods(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(scaled(held(suspend=False), to=1))
    for name in ("one", "three"):
        rig.pod(pod(name))
    rig.pod(pod("head", gpus=False))
    for name in ("one", "head"):
        api.answer(f"PATCH {PODS}/{name}", Answer(body=values_of(pod(name, gated=False))))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/one")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"
    assert not api.of(f"PATCH {PODS}/three")
    assert "annotations" not in api.of(f"PATCH {PODS}/head")[0].body["metadata"], "it has no seat"


async def test_a_running_guest_that_is_scaled_down_is_shown_with_fewer_workers(rig: Rig) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    rig.guest(held(suspend=False))
    await rig.keep()
    rig.guest(scaled(held(suspend=False, version=8), to=1))
    await rig.keep()
    rig.guest(scaled(held(suspend=False, version=9), to=0))
    await rig.keep()
    assert [child.spec.parallelism for _, child in rig.shown] == [2, 1, 0]


async def test_a_pod_of_another_size_stays_gated_and_says_so_once(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(suspend=False))
    rig.pod(pod("big", gpu="8(A100)"))
    rig.pod(pod("small"))
    api.answer(f"PATCH {PODS}/small", Answer(body=values_of(pod("small", gated=False))))
    await rig.keep()
    await rig.keep()
    assert not api.of(f"PATCH {PODS}/big")
    assert api.of(f"PATCH {PODS}/small")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"
    (news,) = rig.said
    assert (news.of.kind, news.about.name, news.reason) == ("Pod", "big", "NotQueued")
    assert news.message == (
        "Stays gated: it requests 8(A100), and each pod of GPUJob job-train has 1. Delete the pod, or suspend its "
        "object: when the object waits again, the queue plans what its templates say then"
    )


async def test_a_seat_that_was_released_is_given_to_no_pod(rig: Rig, api: Api) -> None:
    worker = PlannedWorker(request="1", mode="Exclusive")
    plan = Placement(generation=1, nodes=[PlannedNode(name="a", workers=2)], worker=worker, released=[0])
    rig.state.store.job_changed(record(status={"placement": values_of(plan), "plans": 1, "phase": "Running"}))
    rig.guest(held(suspend=False))
    for name in ("one", "two"):
        rig.pod(pod(name))
        api.answer(f"PATCH {PODS}/{name}", Answer(body=values_of(pod(name, gated=False))))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/one")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/1"
    assert not api.of(f"PATCH {PODS}/two")


def listing(*items: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "5"}, "items": list(items)})


async def test_the_record_of_a_guest_that_left_it_behind_is_deleted(rig: Rig, api: Api) -> None:
    """As after `kubectl delete --cascade=orphan`: the garbage collector takes the owner reference away."""
    orphan = record(status={"phase": "Running"})
    meta = msgspec.structs.replace(orphan.metadata, owner_references=[])
    rig.state.store.job_changed(msgspec.structs.replace(orphan, metadata=meta))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    (seen,) = api.of(f"DELETE {RECORDS}/job-train")
    assert seen.body["preconditions"]["uid"] == "uid-record"


async def test_the_record_of_a_guest_that_has_gone_is_deleted(rig: Rig, api: Api) -> None:
    rig.guest(held(suspend=False))
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    rig.guest(held(suspend=False), type_="DELETED")
    api.answer(f"GET {GUESTS}", listing({"metadata": {"name": "train", "uid": "another"}}))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    assert api.of(f"GET {GUESTS}")[0].query["fieldSelector"] == "metadata.name=train"
    assert api.of(f"DELETE {RECORDS}/job-train")


async def test_the_record_of_a_kind_that_is_not_installed_any_more_is_deleted(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    api.answer(f"GET {GUESTS}", refusal(404))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    assert api.of(f"DELETE {RECORDS}/job-train")


async def test_the_record_of_a_guest_that_no_watch_shows_stays_while_the_guest_exists(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    api.answer(f"GET {GUESTS}", listing(values_of(held())))
    await rig.keep()
    assert not [seen for seen in api.seen if seen.method != "GET"]


def _unexpected(_key: str, error: Exception, _seconds: float) -> None:
    raise error


async def test_the_record_of_a_guest_is_looked_at_until_the_guest_has_gone(
    rig: Rig, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_REFUSED_SECONDS", 0.01)
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    # A finalizer keeps the guest for a while, and no watch shows its end.
    there, gone = listing(values_of(held())), listing()
    api.answer(f"GET {GUESTS}", there, there, gone)
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    rig.keeper._queue.add("team/job-train")
    async with running(rig.keeper._queue.serve(rig.keeper._keep, hands=1, failed=_unexpected, rng=random.Random(0))):
        await api.until(f"DELETE {RECORDS}/job-train", count=1)
    assert len(api.of(f"GET {GUESTS}")) == 3


async def test_a_guest_whose_record_lost_its_owner_gets_another_one(rig: Rig, api: Api) -> None:
    taken = record(status={"phase": "Running"})
    meta = msgspec.structs.replace(taken.metadata, owner_references=[])
    rig.state.store.job_changed(msgspec.structs.replace(taken, metadata=meta))
    rig.guest(held(suspend=False))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    assert api.of(f"DELETE {RECORDS}/job-train")


async def test_a_held_guest_that_asks_for_no_pods_leaves_the_queue(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record(status={"phase": "Queued"}))
    rig.guest(scaled(held(), to=0))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    assert api.of(f"DELETE {RECORDS}/job-train")
    rig.state.store.job_deleted("team/job-train", uid="uid-record")
    await rig.keep()
    assert rig.said[-1].message == "Is not queued: it asks for no pods, so there is nothing to queue"


async def test_a_guest_that_is_being_deleted_asks_for_no_pods(rig: Rig) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    going = held(suspend=False)
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    rig.guest(msgspec.structs.replace(going, metadata=meta))
    await rig.keep()
    (_, child) = rig.shown[-1]
    assert (child.spec.parallelism, child.metadata.deletion_timestamp) == (0, None)


async def test_all_pods_of_a_guest_without_gpus_have_seats(rig: Rig, api: Api) -> None:
    found = held(suspend=False)
    template = {"spec": found.spec["template"]["spec"]}
    rig.state.store.job_changed(record(gpu=None, resources={"device": "cpu"}))
    rig.guest(msgspec.structs.replace(found, spec={**found.spec, "template": template}))
    rig.pod(pod("one", gpus=False))
    api.answer(f"PATCH {PODS}/one", Answer(body=values_of(pod("one", gated=False))))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/one")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"


async def test_no_gate_of_a_worker_opens_before_the_plan_is_seen(rig: Rig, api: Api) -> None:
    """The watch of the record may be later than that of its guest."""
    api.answer(f"GET {RECORDS}/job-train", Answer(body=values_of(record())))
    rig.state.store.job_changed(record(status={"phase": "Queued"}))
    rig.guest(held(suspend=False))
    rig.pod(pod("one"))
    await rig.keep()
    assert not api.of(f"PATCH {PODS}/one")
    assert not api.of(f"PATCH {GUESTS}/train")


async def test_a_guest_that_was_let_go_without_a_plan_waits_once_more(rig: Rig, api: Api) -> None:
    """It was let go by the plan of a record that has gone, or by its owner: no gate of it would ever open."""
    unplanned = record(status={"phase": "Starting"})
    api.answer(f"GET {RECORDS}/job-train", Answer(body=values_of(unplanned)))
    api.answer(f"PATCH {GUESTS}/train", Answer(body=values_of(held())))
    rig.state.store.job_changed(unplanned)
    rig.guest(held(suspend=False))
    await rig.keep()
    # Its pods are yet to come.
    assert not api.of(f"PATCH {GUESTS}/train")
    rig.pod(pod("one"))
    await rig.keep()
    (seen,) = api.of(f"PATCH {GUESTS}/train")
    assert seen.body == {"metadata": {"uid": "uid-guest", "resourceVersion": "7"}, "spec": {"suspend": True}}
    assert not api.of(f"PATCH {PODS}/one")


@pytest.mark.parametrize("before", [None, "r0"])
async def test_pods_that_were_seen_before_the_run_of_their_guest_get_their_seats(
    rig: Rig, api: Api, before: str | None
) -> None:
    """Another guest of the name may have been known until then: after a relist no watch tells of its end."""
    rig.state.store.job_changed(record())
    if before is not None:
        rig.guest(held(suspend=False, version=6, **{names.RUN: before}))
    rig.pod(pod("one"))
    rig.guest(held(suspend=False))
    api.answer(f"PATCH {PODS}/one", Answer(body=values_of(pod("one", gated=False))))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/one")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"


async def test_no_gate_opens_while_the_guest_is_held(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held())
    rig.pod(pod("one"))
    await rig.keep()
    assert not api.of(f"PATCH {PODS}/one")


async def test_a_pod_that_changed_meanwhile_keeps_its_seat_free(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(suspend=False))
    rig.pod(pod("one"))
    api.answer(f"PATCH {PODS}/one", refusal(409), Answer(body=values_of(pod("one", gated=False))))
    await rig.keep()
    await rig.keep()
    assert [seen.body["metadata"]["annotations"][names.SEAT] for seen in api.of(f"PATCH {PODS}/one")] == [
        "uid-record/0",
        "uid-record/0",
    ]


async def test_a_pod_of_another_namespace_finds_no_guest(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(suspend=False))
    foreign = pod("one")
    foreign = msgspec.structs.replace(foreign, metadata=msgspec.structs.replace(foreign.metadata, namespace="other"))
    rig.pod(foreign)
    await rig.keep()
    assert not [seen for seen in api.seen if seen.method == "PATCH"]


async def test_holding_takes_the_version_that_was_read(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held())
    api.answer(f"PATCH {GUESTS}/train", Answer(body=values_of(held(suspend=False, version=9))), refusal(409))
    written = await rig.keeper.hold(record(), suspend=False)
    assert written is not None
    assert (written.spec.suspend, written.metadata.resource_version) == (False, "9")
    assert await rig.keeper.hold(record(), suspend=True) is None, "it is held already"
    with pytest.raises(Conflict):
        await rig.keeper.hold(record(), suspend=False)


async def test_a_changed_priority_is_written_to_the_record(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(**{names.PRIORITY: "99"}))
    api.answer(f"PATCH {RECORDS}/job-train", Answer(body=values_of(record())))
    await rig.keep()
    assert api.of(f"PATCH {RECORDS}/job-train")[0].body["spec"] == {"priority": 99}


def with_nodes(found: Guest, *, pool: str) -> Guest:
    """The guest with another node selector in its template."""
    template = found.spec["template"]
    pods = {**template, "spec": {**template["spec"], "nodeSelector": {"pool": pool}}}
    return msgspec.structs.replace(found, spec={**found.spec, "template": pods})


async def test_the_record_of_a_held_guest_follows_its_template(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(with_nodes(held(), pool="b"))
    api.answer(f"PATCH {RECORDS}/job-train", Answer(body=values_of(record())))
    await rig.keep()
    (seen,) = api.of(f"PATCH {RECORDS}/job-train")
    assert seen.body["spec"] == {"template": {"spec": {"nodeSelector": {"pool": "b"}}}}


async def test_the_record_of_a_running_guest_keeps_its_template(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    rig.guest(with_nodes(held(suspend=False), pool="b"))
    await rig.keep()
    assert not [seen for seen in api.seen if seen.method != "GET"]


async def test_a_change_that_the_api_server_refuses_is_said_once_on_the_guest(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(**{names.PRIORITY: "99"}))
    api.answer(f"PATCH {RECORDS}/job-train", refusal(422), refusal(422), Answer(body=values_of(record())))
    await rig.keep()
    await rig.keep()
    (news,) = rig.said
    assert news.message.startswith("GPUJob job-train stays as it was: The API server refuses the change: ")
    await rig.keep()
    assert len(api.of(f"PATCH {RECORDS}/job-train")) == 3


async def test_a_changed_size_makes_another_record(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    larger = held()
    rig.guest(msgspec.structs.replace(larger, spec={**larger.spec, "parallelism": 3, "completions": 3}))
    api.answer(f"DELETE {RECORDS}/job-train", Answer(body={}))
    await rig.keep()
    assert api.of(f"DELETE {RECORDS}/job-train")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (held(**{names.PREEMPTIBLE: "no"}), "Is not queued: annotation dovetail.dev/preemptible is 'no'"),
        (guest(KIND), "Is not queued: label dovetail.dev/queue counts only on a Job that has it from its creation"),
    ],
    ids=["annotation", "late-label"],
)
async def test_what_is_wrong_is_said_once_on_the_guest(rig: Rig, found: Guest, sentence: str) -> None:
    rig.guest(found)
    await rig.keep()
    await rig.keep()
    (news,) = rig.said
    assert (news.of.kind, news.about.name, news.severity, news.reason) == ("Job", "train", "Warning", "NotQueued")
    assert news.message.startswith(sentence)


async def test_a_guest_that_becomes_wrong_later_is_still_followed_to_its_end(rig: Rig, api: Api) -> None:
    wrong = held(suspend=False, version=8, **{names.PRIORITY: "high"})
    over = {"conditions": [{"type": "Complete", "status": "True"}]}
    rig.guest(held(suspend=False))
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    rig.guest(msgspec.structs.replace(wrong, status=over))
    await rig.keep()
    await rig.keep()
    assert [each.type for each in rig.shown[-1][1].status.conditions] == ["Complete"]
    (news,) = rig.said
    assert news.message == (
        "GPUJob job-train stays as it was: annotation dovetail.dev/gpu-priority is 'high': it must be a whole number "
        "from 0 to 255"
    )
    assert not [seen for seen in api.seen if seen.method != "GET"]


async def test_a_gpujob_of_the_records_name_is_left_alone(rig: Rig, api: Api) -> None:
    own = job_of({"metadata": {"name": "job-train", "namespace": "team", "uid": "u", "resourceVersion": "3"},
                  "spec": {"gpu": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}})  # fmt: skip
    rig.state.store.job_changed(own)
    rig.guest(held())
    await rig.keep()
    assert rig.said[0].message == "Is not queued: GPUJob job-train has the name of its record"
    assert not [seen for seen in api.seen if seen.method != "GET"]


async def test_the_guest_is_told_what_its_record_waits_for(rig: Rig) -> None:
    rig.guest(held())
    rig.state.store.job_changed(record(status={"phase": "Queued", "reason": "Evaluating"}))
    waits = {"phase": "Queued", "reason": "Resources", "message": "Need 1 GPU, only 0 available"}
    newer = record(status=waits)
    meta = msgspec.structs.replace(newer.metadata, resource_version="6")
    rig.state.store.job_changed(msgspec.structs.replace(newer, metadata=meta))
    assert [(news.of.kind, news.about.name, news.reason, news.message) for news in rig.said] == [
        ("Job", "train", "Resources", "Need 1 GPU, only 0 available")
    ]


async def test_a_kind_that_is_not_installed_rests_and_the_others_are_followed(rig: Rig, api: Api) -> None:
    listing = Answer(body={"metadata": {"resourceVersion": "5"}, "items": [values_of(held())]})
    api.answer("GET /apis/batch/v1/jobs", Answer(body={"metadata": {}, "items": []}), listing)
    for path in ("jobset.x-k8s.io/v1alpha2/jobsets", "ray.io/v1/rayjobs", "ray.io/v1/rayclusters"):
        api.answer(f"GET /apis/{path}", refusal(404))
    api.answer("GET /apis/kubeflow.org/v2beta1/mpijobs", refusal(404))
    api.answer("GET /api/v1/pods", Answer(body={"metadata": {"resourceVersion": "5"}, "items": []}))
    async with running(rig.keeper.watches.run()):
        await rig.keeper.watches.settled()
    assert api.of("GET /apis/batch/v1/jobs")[-1].query["labelSelector"] == names.LABEL_QUEUE


# --- what is woken and kept ----------------------------------------------------------------------------------------


def woken(rig: Rig) -> set[str]:
    """The keys of the records that are to be looked at."""
    return set(rig.keeper._queue._dirty)


def test_each_event_of_a_guest_its_record_and_its_pods_wakes_the_keeper(client: Client) -> None:
    def is_woken_by(event: Callable[[Rig], None]) -> bool:
        rig = Rig(client)
        rig.guest(held())
        rig.keeper._queue._dirty.clear()
        event(rig)
        return woken(rig) == {"team/job-train"}

    assert woken_by_first_sight(Rig(client)) == {"team/job-train"}
    assert is_woken_by(lambda rig: rig.guest(held(version=8)))
    assert is_woken_by(lambda rig: rig.guest(held(), type_="DELETED"))
    assert is_woken_by(lambda rig: rig.keeper.observe(record()))
    assert is_woken_by(lambda rig: rig.keeper.drop(record()))
    assert is_woken_by(lambda rig: rig.pod(pod("a")))


def woken_by_first_sight(rig: Rig) -> set[str]:
    rig.guest(held())
    return woken(rig)


def test_each_change_of_a_record_is_said_of_its_guest_once(rig: Rig) -> None:
    rig.guest(held())
    waits = {"phase": "Queued", "reason": "Resources", "message": "Need 1 GPU, only 0 available"}
    runs = {"phase": "Running", "nodes": ["a"]}
    for status in (waits, waits, runs, {**runs, "workersActive": 1}, {**runs, "workersActive": 2}, waits, runs):
        rig.keeper.observe(record(status=status))
    assert [each.reason for each in rig.said] == ["Running", "Resources", "Running"]
    assert {each.about.name for each in rig.said} == {"train"}
    rig.keeper.drop(record())
    rig.keeper.observe(record(status=waits))
    assert len(rig.said) == 3, "what a record says first is no change"


def test_the_first_estimate_of_a_start_is_said_of_the_guest(rig: Rig) -> None:
    rig.guest(held())
    waits = {"phase": "Queued", "reason": "Resources", "message": "Need 1 GPU, only 0 available"}
    place = {"position": 1, "estimatedStart": at(600), "basis": "Their limits"}
    bounds = {"estimatedStartEarliest": at(300), "estimatedStartLatest": at(900)}
    later = place | bounds | {"estimatedStart": at(700)}
    for queue in ({"position": 1}, place | bounds, later, {"position": 1}, place):
        rig.keeper.observe(record(status={**waits, "queue": queue}))
    assert [(each.reason, each.about.name) for each in rig.said] == [("StartEstimated", "train")] * 2
    assert rig.said[0].message == f"Is expected to start at {at(600)}, between {at(300)} and {at(900)}: Their limits"
    assert rig.said[1].message.startswith(f"Is expected to start at {at(600)}, between {at(600)} and {at(600)}")


def test_a_job_that_is_no_record_wakes_no_keeper(rig: Rig) -> None:
    plain = msgspec.structs.replace(record(), spec=msgspec.structs.replace(record().spec, managed_by=None))
    rig.keeper.observe(plain)
    rig.keeper.drop(plain)
    assert not woken(rig)


def test_a_guest_that_kueue_admits_is_left_alone(rig: Rig) -> None:
    found = held()
    labels = {**found.metadata.labels, names.KUEUE_QUEUE: "main"}
    rig.guest(msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=labels)))
    assert not woken(rig)


async def test_a_record_that_was_made_before_is_this_guests_or_is_in_its_way(rig: Rig, api: Api) -> None:
    exists = refusal(409, reason="AlreadyExists")
    mine, other = values_of(record()), values_of(record())
    other["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    api.answer(f"POST {RECORDS}", exists)
    api.answer(f"GET {RECORDS}/job-train", Answer(body=mine))
    rig.guest(held())
    await rig.keep()
    assert not rig.said
    api.answer(f"POST {RECORDS}", exists)
    api.answer(f"GET {RECORDS}/job-train", Answer(body=other))
    await rig.keep()
    assert "records something else" in rig.said[0].message


async def test_nothing_is_kept_of_a_guest_that_has_gone(rig: Rig, api: Api) -> None:
    api.answer(f"PATCH {PODS}/a", Answer(body=msgspec.to_builtins(pod("a", seat="uid-record/0"))))
    rig.state.store.job_changed(record())
    rig.guest(held(suspend=False))
    rig.pod(pod("a"))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/a"), "its seat is given and not seen yet"
    rig.guest(held(suspend=False), type_="DELETED")
    left = {path: table.content for path, table in tables(rig.keeper._gates).items() if table.content}
    assert not {path for path in left if "_state" not in path and "_client" not in path and "_pods" not in path}


def keeps(rig: Rig) -> dict[str, int]:
    """The tables of the keeper and of its parts that are not empty, but for the pods that the API server has."""
    parts = (rig.keeper, rig.keeper._guests, rig.keeper._gates, rig.keeper._counts, rig.keeper._notices)
    own = [each for part in parts for each in vars(part).items() if each[0] not in {"_pods", "_kinds"}]
    return {name: len(value) for name, value in own if isinstance(value, dict | set) and value}


async def test_a_guest_of_which_something_is_wrong_leaves_nothing_either(
    rig: Rig, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said of it, since when it lacks pods, and the pods that are more than it asks for."""
    api.answer(f"POST {RECORDS}", refusal(422))
    rig.guest(held())
    await rig.keep()
    assert "_said" in keeps(rig)
    rig.guest(held(), type_="DELETED")
    assert keeps(rig) == {}
    part_that_comes_later(rig, api)
    await rig.keep()
    assert "_incomplete" in keeps(rig)
    growing = rig.keeper._guests.at("team/job-train")
    assert growing is not None
    rig.guest(growing.guest, type_="DELETED")
    assert keeps(rig) == {}
    rig.state.store.job_changed(record())
    rig.guest(held(suspend=False))
    rig.keeper._counts._short["team/job-train"] = (1, 0.0)
    rig.keeper._beyond["uid-more"] = 0.0
    rig.pod(more := pod("more", gpu="2"))
    await rig.keep()
    rig.state.store.job_deleted("team/job-train", uid="uid-record")
    rig.guest(held(suspend=False), type_="DELETED")
    rig.gone(more)
    assert keeps(rig) == {}


async def test_a_part_that_came_after_all_has_its_whole_time_the_next_time(rig: Rig, api: Api) -> None:
    """A guest that was complete in between is not said to lack pods at once."""
    api.answer(f"POST {RECORDS}", *[Answer(body=values_of(record()), status=201)] * 2)
    part_that_comes_later(rig, api)
    await rig.keep()
    rig.clock.seconds = 19.0
    rig.keeper._guests.put(Known(guest=held(), kind=KIND))
    await rig.keep()
    part_that_comes_later(rig, api)
    for seconds, said in ((25.0, 0), (44.0, 0), (45.0, 1)):
        rig.clock.seconds = seconds
        await rig.keep()
        assert len(rig.said) == said


async def test_the_next_operator_looks_at_records_without_a_guest_and_at_pods_that_were_there(
    rig: Rig, api: Api
) -> None:
    orphan = record(status={"phase": "Running"})
    rig.state.store.job_changed(orphan)
    rig.keeper._queue.add = (added := list[str]()).append  # type: ignore[assignment, method-assign]
    rig.pods["team/one"] = pod("one")
    rig.guest(held())
    added.clear()
    rig.keeper._guests.drop(Known(guest=held(), kind=KIND))
    seen = list[str]()
    rig.keeper.pod_event = lambda type_, each: seen.append(f"{type_} {each.metadata.name}")  # type: ignore[method-assign]

    async def serve(*_: Any, **__: Any) -> None:
        return

    rig.keeper._queue.serve = serve  # type: ignore[method-assign]
    await rig.keeper.run()
    assert (added, seen) == (["team/job-train"], ["MODIFIED one"])


@pytest.mark.parametrize("code", [409, 404])
async def test_a_seat_that_could_not_be_written_is_free_again(rig: Rig, api: Api, code: int) -> None:
    rig.state.store.job_changed(record())
    rig.guest(scaled(held(suspend=False), to=1))
    rig.pod(pod("one"))
    api.answer(f"PATCH {PODS}/one", refusal(code))
    await rig.keep()
    rig.gone(pod("one"))
    rig.pod(pod("two"))
    api.answer(f"PATCH {PODS}/two", Answer(body=values_of(pod("two", gated=False))))
    await rig.keep()
    assert api.of(f"PATCH {PODS}/two")[0].body["metadata"]["annotations"][names.SEAT] == "uid-record/0"


async def test_a_pod_that_went_with_a_seat_that_no_event_showed_leaves_it(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(scaled(held(suspend=False), to=1))
    for name in ("one", "two"):
        rig.pod(pod(name))
        api.answer(f"PATCH {PODS}/{name}", Answer(body=values_of(pod(name, gated=False))))
        await rig.keep()
        seen = api.of(f"PATCH {PODS}/{name}")[0].body["metadata"]
        assert (seen["annotations"][names.SEAT], seen["uid"]) == ("uid-record/0", f"uid-{name}")
        assert seen["resourceVersion"] == "8"
        rig.gone(pod(name))


def test_a_guest_whose_running_pods_have_ended_is_idle(rig: Rig) -> None:
    """All that is left of it is gated: it may return to the queue as a whole."""
    found = Known(guest=held(suspend=False), kind=KIND)
    rig.guest(held(suspend=False))
    gates = rig.keeper._gates
    rig.pod(pod("gated"))
    assert gates.is_idle(found)
    running_one = pod("runs", gated=False)
    rig.pod(running_one)
    assert not gates.is_idle(found)
    ended = msgspec.structs.replace(running_one, status=msgspec.convert({"phase": "Failed"}, PodStatus))
    rig.pod(ended)
    assert gates.is_idle(found)


async def test_a_record_is_changed_as_that_very_one(rig: Rig, api: Api) -> None:
    """One that was deleted and made again meanwhile is another one's."""
    rig.state.store.job_changed(record())
    rig.guest(held(**{names.PRIORITY: "20"}))
    api.answer(f"PATCH {RECORDS}/job-train", Answer(body=values_of(record())))
    await rig.keep()
    (seen,) = api.of(f"PATCH {RECORDS}/job-train")
    assert seen.body["metadata"] == {"uid": "uid-record"}


# --- what no event ends ---------------------------------------------------------------------------------------------


def refused_record(rig: Rig, api: Api) -> None:
    rig.guest(held())
    api.answer(f"POST {RECORDS}", refusal(422))


def refused_change(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record())
    rig.guest(held(**{names.PRIORITY: "99"}))
    api.answer(f"PATCH {RECORDS}/job-train", refusal(422))


def taken_name(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(make_job("job-train"))
    rig.guest(held())


def record_that_outlives_its_watch(rig: Rig, api: Api) -> None:
    rig.state.store.job_changed(record(status={"phase": "Running"}))
    api.answer(f"GET {GUESTS}", listing(values_of(held())))


def part_that_comes_later(rig: Rig, api: Api) -> None:
    wrong = scaled(held(), to=0)
    rig.keeper._guests.put(Known(guest=Growing(**msgspec.structs.asdict(wrong)), kind=KIND))


class Growing(Guest, frozen=True, kw_only=True):
    """A guest of which a part is about to be created."""

    @property
    def is_growing(self) -> bool:
        return True


@pytest.mark.parametrize(
    "begins", [refused_record, refused_change, taken_name, record_that_outlives_its_watch, part_that_comes_later]
)
async def test_a_guest_that_cannot_go_on_now_is_looked_at_later_without_an_event(
    rig: Rig, api: Api, begins: Callable[[Rig, Api], None]
) -> None:
    begins(rig, api)
    rig.keeper._queue.forget("team/job-train")
    await rig.keep()
    assert "team/job-train" in rig.keeper._queue._timers
