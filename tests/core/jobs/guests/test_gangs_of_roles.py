"""Gangs with several parts: Grove's PodGangs, and the DisaggregatedSets of LeaderWorkerSet."""

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.decoding import convert
from dovetail.jobs.guests.gangs import (
    DISAGGREGATED_SETS,
    POD_GANGS,
    Gang,
    GangKind,
    gang_named_by,
    gang_of,
    levels_of,
    scheduled_patch,
)
from dovetail.jobs.guests.kind import Guest, GuestError
from dovetail.jobs.guests.pod_group import PodGroup, group_of, kind_of_group, refuse_unready, run_of_group
from dovetail.jobs.guests.record import record_of
from tests.core.jobs.guests.test_pod_group import GATED
from tests.core.jobs.guests.test_pod_group import pod as plain_pod

GROVE_GATE = [*GATED, {"name": "grove.io/podgang-pending-creation"}]
SET = "disaggregatedset.x-k8s.io"


def pod(name: str, *, labels: dict[str, str], kind: GangKind, gang: str, **spec: Any) -> Guest:
    """A pod of a gang, as the webhook has left it."""
    made = plain_pod(name)
    annotations = {names.REQUEST: "1", names.USER: "ada", names.GANG: f"{kind.called}/{gang}"}
    labels = {names.LABEL_QUEUE: "default", names.RUN: run_of_group(annotations[names.GANG]), **labels}
    return replace(
        made, metadata=replace(made.metadata, labels=labels, annotations=annotations), spec={**made.spec, **spec}
    )


def of_grove(name: str, *, clique: str, index: int = 0, **spec: Any) -> Guest:
    labels = {"grove.io/podgang": "serve-0", "grove.io/podclique": clique, "grove.io/podclique-pod-index": str(index)}
    return pod(name, labels=labels, kind=POD_GANGS, gang="serve-0", **spec)


def of_set(name: str, *, role: str) -> Guest:
    return pod(name, labels=labels_of(role), kind=DISAGGREGATED_SETS, gang="serve-0-abc")


def labels_of(role: str) -> dict[str, str]:
    return {f"{SET}/name": "serve", f"{SET}/slice": "0", f"{SET}/revision": "abc", f"{SET}/role": role}


def pod_gang(parts: dict[str, int], **spec: Any) -> Gang:
    """Grove's PodGang with so many pods of each PodClique that start together."""
    groups = [{"name": name, "minReplicas": least, "podReferences": []} for name, least in parts.items()]
    meta = {"name": "serve-0", "namespace": "team", "uid": "uid-gang", "resourceVersion": "11"}
    found = convert({"metadata": meta, "spec": {"podgroups": groups, **spec}}, as_type=Guest)
    return gang_of([found], kind=POD_GANGS)


def of_role(role: str, *, replicas: int, size: int = 1, roles: str = "prefill,decode") -> Guest:
    """The LeaderWorkerSet of a role, as the controller of DisaggregatedSets makes it."""
    owner = {"apiVersion": f"{SET}/v1", "kind": "DisaggregatedSet", "name": "serve", "uid": "u", "controller": True}
    meta = {"name": f"serve-0-abc-{role}", "namespace": "team", "resourceVersion": "5", "labels": labels_of(role)}
    said = {"annotations": {names.GANG_ROLES: roles} if roles else {}, "ownerReferences": [owner]}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size}}
    return convert({"metadata": {**meta, **said}, "spec": spec}, as_type=Guest)


def a_set(*found: Guest) -> Gang:
    return gang_of(found, kind=DISAGGREGATED_SETS)


def group(*pods: Guest, gang: Gang) -> PodGroup:
    found = group_of(pods, gang=gang)
    assert found is not None
    return found


def refusal(found: PodGroup) -> str:
    try:
        refuse_unready(found)
        record_of(found, kind=kind_of_group(found))
    except GuestError as error:
        return str(error)
    return ""


def own(found: PodGroup) -> set[str]:
    return {member.name for member in found.members}


def test_no_pod_of_one_part_takes_the_place_of_another_parts() -> None:
    gang = pod_gang({"prefill": 2, "decode": 1})
    prefill = [of_grove(f"p-{index}", clique="prefill", index=index) for index in range(3)]
    half = group(*prefill, gang=gang)
    assert refusal(half) == "PodGang serve-0 waits for its pods: decode 0 of 1"
    whole = group(*prefill, of_grove("d-9", clique="decode"), gang=gang)
    assert (own(whole), whole.more, refusal(whole)) == ({"p-0", "p-1", "d-9"}, ["uid-p-2"], "")
    record = record_of(whole, kind=kind_of_group(whole))
    assert (record["metadata"]["name"], record["spec"]["workers"]) == ("podgang-serve-0", 3)


@pytest.mark.parametrize(
    "found",
    [
        pod_gang({f"part-{at}": 1 for at in range(1025)}),
        a_set(of_role("prefill", replicas=1, roles=",".join(map(str, range(1025))))),
    ],
    ids=["PodGang", "DisaggregatedSet"],
)
def test_an_object_has_no_more_parts_than_a_record_has_workers(found: Gang) -> None:
    """A user wrote 100,000 roles into an annotation, and each event of a pod read them."""
    assert found.problem.endswith(": it has 1025 parts that start together, and at most 1024 are allowed")
    assert found.parts == {}


def test_ranks_follow_the_parts_of_the_object_and_then_the_indexes() -> None:
    gang = pod_gang({"prefill": 2, "decode": 1})
    pods = (
        of_grove("x-2", clique="decode"),
        of_grove("x-1", clique="prefill", index=10),
        of_grove("x-0", clique="prefill", index=9),
    )
    assert group(*pods, gang=gang).order == ["uid-x-0", "uid-x-1", "uid-x-2"]


def test_a_pod_that_grove_still_holds_is_not_there_yet() -> None:
    gang = pod_gang({"prefill": 1})
    held = group(of_grove("p-0", clique="prefill", schedulingGates=GROVE_GATE), gang=gang)
    assert refusal(held) == "PodGang serve-0 waits for its pods: prefill 0 of 1"
    more = of_grove("p-1", clique="prefill", schedulingGates=GROVE_GATE)
    assert group(of_grove("p-0", clique="prefill"), more, gang=gang).more == []


def test_a_pod_of_grove_without_its_podgang_is_refused() -> None:
    made = of_grove("p-0", clique="prefill")
    assert gang_named_by(made) == "PodGang.scheduler.grove.io/serve-0"
    labels = {key: value for key, value in made.metadata.labels.items() if key != "grove.io/podgang"}
    with pytest.raises(GuestError, match=r"^label grove\.io/podgang is missing on a pod of PodClique prefill: "):
        gang_named_by(replace(made, metadata=replace(made.metadata, labels=labels)))


def test_a_podgang_without_status_gets_the_phase_that_its_schema_wants() -> None:
    patch = scheduled_patch(pod_gang({"prefill": 1}), is_scheduled=False, message="Need 1 GPU", at="now")
    assert patch is not None
    assert (patch["status"]["phase"], patch["status"]["conditions"][0]["type"]) == ("Pending", "Scheduled")


def test_the_levels_of_a_podgang_are_those_of_the_whole() -> None:
    pack = {"packConstraint": {"required": "zone", "preferred": "rack"}}
    gang = pod_gang({"prefill": 1}, topologyConstraint=pack)
    assert levels_of(gang, named={"zone": "z", "rack": "r"}) == {"required": "z", "preferred": "r"}
    groups = [{"name": "prefill", "minReplicas": 1, "topologyConstraint": {"packConstraint": {"required": "rack"}}}]
    inner = pod_gang({}, podgroups=groups, topologyConstraint=pack)
    assert inner.problem.startswith("PodGang serve-0: prefill has the required topology 'rack' of its own: ")
    groups[0]["topologyConstraint"] = pack
    assert pod_gang({}, podgroups=groups, topologyConstraint=pack).problem == ""
    configs = [
        {"name": "all", "podGroupNames": ["prefill"], "topologyConstraint": {"packConstraint": {"required": "x"}}}
    ]
    assert (
        "all has the required topology 'x'" in pod_gang({"prefill": 1}, topologyConstraintGroupConfigs=configs).problem
    )


def test_all_pods_of_all_roles_start_together() -> None:
    gang = a_set(of_role("prefill", replicas=1, size=2), of_role("decode", replicas=1))
    assert (gang.metadata.name, gang.resource.kind, gang.condition) == ("serve", "DisaggregatedSet", "")
    prefill = [of_set("serve-0-abc-prefill-0", role="prefill"), of_set("serve-0-abc-prefill-0-1", role="prefill")]
    half = group(*prefill, gang=gang)
    assert refusal(half) == "DisaggregatedSet serve-0-abc waits for its pods: decode 0 of 1"
    whole = group(*prefill, of_set("serve-0-abc-decode-0", role="decode"), gang=gang)
    assert refusal(whole) == ""
    assert record_of(whole, kind=kind_of_group(whole))["metadata"]["name"] == "disaggregatedset-serve-0-abc"


def test_a_role_without_leaderworkerset_or_replicas_holds_the_others() -> None:
    prefill = of_set("serve-0-abc-prefill-0", role="prefill")
    for found in ([of_role("prefill", replicas=1)], [of_role("prefill", replicas=1), of_role("decode", replicas=0)]):
        half = group(prefill, gang=a_set(*found))
        assert refusal(half) == "DisaggregatedSet serve-0-abc waits for its pods: decode 0 of 1"


def test_a_set_whose_templates_alone_have_the_label_is_told() -> None:
    gang = a_set(of_role("prefill", replicas=1, roles=""))
    assert gang.problem == (
        "DisaggregatedSet serve-0-abc: its LeaderWorkerSets have no annotation dovetail.dev/gang-roles: give the "
        "DisaggregatedSet the label dovetail.dev/queue, and not its templates alone"
    )


def test_a_pod_of_a_set_names_its_slice_and_revision_and_other_leaderworkersets_name_none() -> None:
    made = of_set("x-0", role="prefill")
    assert gang_named_by(made) == "DisaggregatedSet.disaggregatedset.x-k8s.io/serve-0-abc"
    bare = replace(made, metadata=replace(made.metadata, labels={f"{SET}/name": "serve"}))
    assert gang_named_by(bare) == ""
