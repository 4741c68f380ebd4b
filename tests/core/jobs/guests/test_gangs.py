"""Pods that an object of another API starts together: who is of them, how many start, and what the object is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.gpujob import job_of
from dovetail.api.meta import ObjectMeta
from dovetail.decoding import convert
from dovetail.jobs.guests.gangs import (
    POD_GROUP_OBJECTS,
    Gang,
    by_number,
    gang_in,
    gang_named_by,
    gang_of,
    levels_of,
    scheduled_patch,
)
from dovetail.jobs.guests.kind import Guest, GuestError, is_suspended
from dovetail.jobs.guests.pod_admission import patch_of_queued_pod
from dovetail.jobs.guests.pod_group import PodGroup, group_of, kind_of_group, refuse_unready, run_of_group, run_of_pod
from dovetail.jobs.guests.record import record_of
from tests.core.jobs.guests.test_kinds import patched
from tests.core.jobs.guests.test_pod_group import pod as plain_pod

RECORD = "schedulinggroup-train"
AT = "2026-01-01T12:00:00Z"


def pod(name: str, *, of: str = "train", job: str = "", node: str = "", **more: Any) -> Guest:
    """A pod of a PodGroup, as the webhook has left it; with `job` it has a seat of that record."""
    made = plain_pod(name, seat="u/0" if job else "", **more)
    labels = {key: value for key, value in made.metadata.labels.items() if key != names.POD_GROUP}
    labels |= {names.LABEL_JOB: job} if job else {}
    annotations = {key: value for key, value in made.metadata.annotations.items() if key != names.POD_GROUP_SIZE}
    annotations |= {names.GANG: f"PodGroup.scheduling.k8s.io/{of}"}
    labels[names.RUN] = run_of_group(annotations[names.GANG])
    spec = {**made.spec, "nodeName": node} if node else made.spec
    return replace(made, metadata=replace(made.metadata, labels=labels, annotations=annotations), spec=spec)


def pod_group(spec: dict[str, Any] | None = None, *, least: int = 2, **status: Any) -> Guest:
    """A PodGroup of Kubernetes."""
    meta = {"name": "train", "namespace": "team", "uid": "uid-train", "resourceVersion": "11"}
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}} if spec is None else spec
    return convert({"metadata": meta, "spec": spec, "status": status}, as_type=Guest)


def gang(spec: dict[str, Any] | None = None, *, least: int = 2, **status: Any) -> Gang:
    return gang_of([pod_group(spec, least=least, **status)], kind=POD_GROUP_OBJECTS)


def group(*pods: Guest, gang: Gang | None) -> PodGroup:
    found = group_of(pods, gang=gang)
    assert found is not None
    return found


def refusal(found: PodGroup) -> str:
    """Why the group cannot wait in the queue; empty if it can."""
    try:
        refuse_unready(found)
    except GuestError as error:
        return str(error)
    return ""


def own(found: PodGroup) -> set[str]:
    return {member.name for member in found.members}


def test_so_many_pods_as_the_object_says_start_together_and_the_others_by_themselves() -> None:
    found = group(pod("a-0"), pod("a-2"), pod("a-1"), gang=gang())
    record = job_of(record_of(found, kind=kind_of_group(found)))
    assert (record.metadata.name, record.spec.workers) == (RECORD, 2)
    assert own(found) == {"a-0", "a-1"}
    assert (found.more, found.surplus, refusal(found)) == (["uid-a-2"], "", "")
    assert is_suspended(found, kind=kind_of_group(found))


@pytest.mark.parametrize(
    ("found", "sentence", "grows"),
    [
        (group(pod("a-0"), gang=gang()), "PodGroup train waits for its pods: 1 of 2", True),
        (group(pod("a-0"), gang=None), "PodGroup train does not exist: create it", True),
        (
            group(pod("a-0"), gang=gang({"schedulingPolicy": {}})),
            "PodGroup train: spec.schedulingPolicy has neither gang.minCount nor basic",
            False,
        ),
        (
            group(pod("a-0"), pod("a-1", **{names.USER: "bob"}), gang=gang()),
            "its pods differ in the user who created them ('ada' and 'bob'): the pods of a group must agree",
            False,
        ),
    ],
    ids=["incomplete", "no-object", "no-policy", "two-users"],
)
def test_what_cannot_wait_is_told(found: PodGroup, sentence: str, grows: bool) -> None:
    assert refusal(found) == sentence
    assert found.is_growing == grows
    assert kind_of_group(found).prefix == "schedulinggroup"


def test_pods_of_the_policy_basic_start_one_by_one() -> None:
    found = group(pod("a-0"), pod("a-1"), gang=gang({"schedulingPolicy": {"basic": {}}}))
    assert (own(found), found.more, refusal(found)) == ({"a-0"}, ["uid-a-1"], "")


def test_a_pod_that_has_started_by_itself_is_no_part_of_those_that_start_together() -> None:
    found = group(pod("a-0", job="pod-a-0"), pod("a-1"), pod("a-2"), gang=gang())
    assert own(found) == {"a-1", "a-2"}
    assert is_suspended(found, kind=kind_of_group(found))


def test_a_started_pod_stays_when_the_object_asks_for_fewer_and_a_failed_one_is_replaced() -> None:
    seated = [pod(f"a-{index}", job=RECORD) for index in range(2)]
    assert own(group(*seated, gang=gang(least=1))) == {"a-0", "a-1"}
    failed = pod("a-2", job=RECORD, phase="Failed")
    assert own(group(seated[0], failed, pod("a-3"), gang=gang())) == {"a-0", "a-3"}
    assert own(group(seated[0], failed, gang=gang())) == {"a-0", "a-2"}


def test_seats_are_in_the_order_of_numbers() -> None:
    pods = [pod(f"a-{index}") for index in (10, 2, 1)]
    assert group(*pods, gang=gang(least=3)).order == ["uid-a-1", "uid-a-2", "uid-a-10"]
    assert sorted(["w-0-1", "w-10", "w-0", "w-2"], key=by_number) == ["w-0", "w-0-1", "w-2", "w-10"]


def test_the_webhook_writes_the_group_that_a_pod_names_and_takes_what_the_pod_says_of_it() -> None:
    meta = {"name": "a-0", "namespace": "team", "labels": {names.LABEL_QUEUE: "default"}}
    forged = {"annotations": {names.GANG: "PodGroup.scheduling.k8s.io/other"}}
    spec = {"containers": [{"name": "main"}], "schedulingGroup": {"podGroupName": "train"}}

    def admitted(**body: Any) -> ObjectMeta:
        found = convert(body, as_type=Guest)
        return convert(patched(body, patch=patch_of_queued_pod(found, review="r", user="ada")), as_type=Guest).metadata

    named = admitted(metadata={**meta, **forged}, spec=spec)
    assert gang_in(named) == (POD_GROUP_OBJECTS, "train")
    alone = admitted(metadata={**meta, **forged}, spec={"containers": []})
    assert names.GANG not in alone.annotations
    assert alone.labels[names.RUN] == "pod-r"
    plain = ObjectMeta(name="b", labels={names.POD_GROUP: "train"})
    assert named.labels[names.RUN].startswith("group-")
    assert named.labels[names.RUN] != run_of_pod(plain, review="r"), "a plain group of that name is another one"


def test_a_pod_without_an_object_of_another_api_names_none() -> None:
    assert gang_named_by(plain_pod("a-0")) == ""
    assert gang_in(ObjectMeta(annotations={names.GANG: "Deployment.apps/x"})) is None
    assert gang_in(ObjectMeta(annotations={names.GANG: "PodGroup.scheduling.k8s.io/"})) is None


def test_a_level_of_the_network_is_that_of_its_node_label() -> None:
    spec = {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "dovetail.dev/rack"}]}}
    named = {"dovetail.dev/rack": "rack", "topology.kubernetes.io/zone": "zone"}
    assert levels_of(gang(spec), named=named) == {"required": "rack"}
    assert levels_of(gang(), named=named) == {}
    with pytest.raises(GuestError, match=r"node label 'dovetail\.dev/rack', which is no level .*: a, b$"):
        levels_of(gang(spec), named={"b": "two", "a": "one"})
    spec["schedulingConstraints"] = {"topology": [{"key": "a"}, {"key": "b"}]}
    assert gang(spec).problem.endswith("topology has 2 levels, and the queue keeps to one")


def test_the_object_says_what_its_pods_wait_for_and_then_that_they_are_scheduled() -> None:
    waits = scheduled_patch(gang(), is_scheduled=False, message="Need 2 GPUs", at=AT)
    assert waits is not None
    said = {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable"}
    (condition,) = waits["status"]["conditions"]
    assert condition == {**said, "message": "Need 2 GPUs", "lastTransitionTime": AT}
    assert waits["metadata"] == {"uid": "uid-train", "resourceVersion": "11"}

    other = {"type": "DisruptionTarget", "status": "False"}
    told = gang(conditions=[other, condition])
    assert scheduled_patch(told, is_scheduled=False, message="Need 2 GPUs", at="later") is None
    later = scheduled_patch(told, is_scheduled=False, message="Need 1 GPU", at="later")
    assert later is not None
    assert later["status"]["conditions"] == [other, {**condition, "message": "Need 1 GPU"}]
    done = scheduled_patch(told, is_scheduled=True, message="", at="later")
    assert done is not None
    (_, true) = done["status"]["conditions"]
    assert (true["status"], true["reason"], true["lastTransitionTime"]) == ("True", "Scheduled", "later")
    assert scheduled_patch(gang(conditions=[true]), is_scheduled=False, message="Need 2 GPUs", at=AT) is None


@pytest.mark.parametrize(("nodes", "is_bound"), [(("a", "b"), True), (("a", ""), False)])
def test_a_gang_is_scheduled_once_all_that_start_together_have_a_node(nodes: tuple[str, str], is_bound: bool) -> None:
    pods = [pod(f"a-{index}", job=RECORD, node=node) for index, node in enumerate(nodes)]
    assert group(*pods, pod("a-9"), gang=gang()).is_bound == is_bound
    assert not group(pods[0], gang=gang()).is_bound
