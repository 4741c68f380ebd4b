"""The index of pods: whose they are, from event to event, and what kubelet gave them."""

import pytest

from dovetail.api.builtin import Job, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.names import SEAT
from dovetail_operator.state.pods import JobPods
from tests.core.engine.builders import make_ledger
from tests.operator_.builders import at, make_child, make_job, make_pod

JOB = make_job()
CHILD = make_child(JOB)
FIRST, SECOND = make_pod(0), make_pod(1)
NUMBERED = {"dovetail.dev/job": "x", "dovetail.dev/job-number": "7"}


@pytest.fixture
def pods() -> JobPods:
    index = JobPods()
    for pod in (FIRST, SECOND):
        assert index.changed("ADDED", pod=pod) == "team/x"
    return index


def uid(pod: Pod) -> str:
    return pod.metadata.uid


def test_the_pods_of_a_batch_job_are_the_same_tuple_until_one_of_them_changes(pods: JobPods) -> None:
    listed = pods.pods_of(CHILD)
    assert listed == (FIRST, SECOND)
    assert pods.pods_of(CHILD) is listed
    pods.changed("MODIFIED", pod=(changed := make_pod(1, phase="Succeeded", meta={"uid": uid(SECOND)})))
    assert pods.pods_of(CHILD) == (FIRST, changed)
    pods.changed("DELETED", pod=FIRST)
    assert pods.pods_of(CHILD) == (changed,)


def test_a_batch_job_without_pods_and_no_batch_job_have_none(pods: JobPods) -> None:
    assert pods.pods_of(None) == ()
    assert pods.pods_of(make_child(JOB, uid="another")) == ()
    for pod in (FIRST, SECOND):
        pods.changed("DELETED", pod=pod)
    assert pods.pods_of(CHILD) == ()


def test_a_pod_that_another_controller_takes_leaves_the_first_one(pods: JobPods) -> None:
    taken = make_pod(0, owner="another")
    pods.pods_of(CHILD)
    assert pods.changed("MODIFIED", pod=taken) == "team/x"
    assert (pods.pods_of(CHILD), pods.pods_of(make_child(JOB, uid="another"))) == ((SECOND,), (taken,))
    assert pods.named("team/x") == [SECOND, taken]
    pods.changed("DELETED", pod=taken)
    assert pods.named("team/x") == [SECOND]


def test_a_pod_is_known_by_its_job_until_the_last_one_is_deleted(pods: JobPods) -> None:
    assert (pods.job_of(uid(FIRST)), pods.job_of("other")) == ("team/x", None)
    assert (pods.are_there("team/x"), pods.are_there("team/y")) == (True, False)
    pods.changed("DELETED", pod=FIRST)
    assert (pods.job_of(uid(FIRST)), pods.are_there("team/x")) == (None, True)
    pods.changed("DELETED", pod=FIRST)
    pods.changed("DELETED", pod=SECOND)
    assert not pods.are_there("team/x")


def test_a_pod_without_a_controller_is_not_among_those_of_batch_jobs(pods: JobPods) -> None:
    left = make_pod(0, meta={"ownerReferences": []})
    assert pods.changed("MODIFIED", pod=left) == "team/x"
    assert (pods.named("team/x"), pods.are_there("team/x")) == ([SECOND], True)
    assert pods.changed("DELETED", pod=left) == "team/x"
    assert pods.changed("DELETED", pod=SECOND) == "team/x"
    assert not pods.are_there("team/x")


def test_pods_that_leave_are_each_named_once(pods: JobPods) -> None:
    assert pods.leaving(running={"uid-child"}) == []
    assert pods.leaving(running=()) == [FIRST, SECOND]
    going = make_pod(0, meta={"deletionTimestamp": at(0)})
    pods.changed("MODIFIED", pod=going)
    assert pods.leaving(running={"uid-child"}) == [going]
    assert pods.leaving(running=()) == [going, SECOND]
    pods.changed("DELETED", pod=going)
    assert pods.leaving(running={"uid-child"}) == []


def test_a_pod_with_a_seat_that_its_deleted_owner_has_left_behind_does_not_leave() -> None:
    index = JobPods()
    seat = {"annotations": {SEAT: "uid-record/0"}, "ownerReferences": []}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-guest"}
    orphan = make_pod(0, meta=seat | {"uid": "orphan"})
    owned = make_pod(1, meta=seat | {"uid": "owned", "ownerReferences": [owner]})
    for pod in (orphan, owned):
        index.changed("ADDED", pod=pod)
    assert index.of_run("uid-record") == (orphan, owned)
    assert index.leaving(running=()) == [owned]


def test_a_pod_of_no_job_leaves_as_well() -> None:
    index = JobPods()
    other = make_pod(meta={"labels": {}, "ownerReferences": [], "deletionTimestamp": at(0)})
    assert index.changed("ADDED", pod=other) is None
    assert index.leaving(running=()) == [other]
    assert index.changed("DELETED", pod=other) is None
    assert index.leaving(running=()) == []


@pytest.mark.parametrize(
    ("pod", "child", "left"),
    [
        pytest.param(make_pod(meta={"labels": NUMBERED}), None, True, id="no batch Job"),
        pytest.param(make_pod(meta={"labels": NUMBERED}), make_child(JOB, uid="new"), True, id="another batch Job"),
        pytest.param(make_pod(meta={"labels": NUMBERED}), CHILD, False, id="its own batch Job"),
        pytest.param(make_pod(meta={"labels": NUMBERED}, phase="Failed"), None, False, id="it has ended"),
        pytest.param(make_pod(), None, False, id="no number"),
        pytest.param(
            make_pod(meta={"labels": NUMBERED | {"dovetail.dev/job-number": "8"}}), None, False, id="another number"
        ),
    ],
)
def test_a_pod_is_left_over_where(pod: Pod, child: Job | None, left: bool) -> None:
    index = JobPods()
    index.changed("ADDED", pod=pod)
    assert index.left_over("team/x", number=7, child=child) == ([pod] if left else [])
    assert index.left_over("team/y", number=7, child=child) == []


DEVICES = (AllocatedDevice(index=0, uuid="g", share_milli=1000, memory_mib=1),)
PLUGIN = "nvidia.com/gpu"


def ledger_with(claim: Claim) -> Ledger:
    ledger = make_ledger(n=2)
    ledger.commit(claim)
    return ledger


def test_what_kubelet_gave_is_kept_until_the_pod_is_deleted(pods: JobPods) -> None:
    ledger = ledger_with(Claim(key=uid(FIRST), node="n", devices=DEVICES, resource=PLUGIN))
    pods.note_given([uid(FIRST), uid(SECOND)], ledger=ledger)
    assert pods.given([FIRST, SECOND]) == {uid(FIRST): DEVICES, uid(SECOND): ()}
    ledger.release(uid(FIRST))
    pods.note_given([uid(FIRST)], ledger=ledger)
    pods.changed("MODIFIED", pod=make_pod(0, phase="Succeeded", meta={"uid": uid(FIRST)}))
    assert pods.given([FIRST]) == {uid(FIRST): DEVICES}
    pods.changed("DELETED", pod=FIRST)
    assert pods.given([FIRST]) == {uid(FIRST): ()}


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(Claim(key=uid(FIRST), node="n", devices=DEVICES), id="Dovetail chose the devices"),
        pytest.param(Claim(key=uid(FIRST), node="n", resource=PLUGIN, unnamed=1), id="kubelet has not said which"),
        pytest.param(Claim(key="another", node="n", devices=DEVICES, resource=PLUGIN), id="a pod of no job"),
    ],
)
def test_nothing_is_kept_as_given_where(pods: JobPods, claim: Claim) -> None:
    pods.note_given([uid(FIRST), "another"], ledger=ledger_with(claim))
    other = make_pod(meta={"uid": "another"})
    assert pods.given([FIRST, other]) == {uid(FIRST): (), "another": ()}
