"""Kinds whose replicas wait one by one: the label goes to their pods, and the pods of a replica are one group."""

from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.decoding import convert
from dovetail.jobs.guests.kind import Guest, GuestError, value_at
from dovetail.jobs.guests.pod_admission import patch_of_queued_pod
from dovetail.jobs.guests.replicas import (
    DISAGGREGATEDSETS,
    LEADERWORKERSETS,
    REPLICATED,
    Replicated,
    patch_of_replicated,
    replicated_of,
    service_of,
)
from tests.core.jobs.guests.examples import FOLDER
from tests.core.jobs.guests.test_kinds import patched

each_kind = pytest.mark.parametrize("kind", REPLICATED, ids=lambda kind: kind.resource.kind)


def example(kind: Replicated) -> dict[str, Any]:
    """The example of a kind."""
    text = FOLDER.joinpath(f"{kind.resource.kind.lower()}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def admitted(body: dict[str, Any], *, kind: Replicated) -> dict[str, Any]:
    return patched(body, patch=patch_of_replicated(convert(body, as_type=Guest), kind=kind))


@each_kind
def test_what_the_object_says_of_the_queue_goes_to_its_pods(kind: Replicated) -> None:
    body = example(kind)
    body["metadata"]["labels"][names.LABEL_PROJECT] = "vision"
    body["metadata"]["annotations"] = {names.PRIORITY: "20", "theirs": "x"}
    after = admitted(body, kind=kind)
    templates = [value_at(after["spec"], path=path) for path in kind.paths(after["spec"])]
    assert templates
    for template in templates:
        assert template["metadata"]["labels"].items() >= {
            names.LABEL_QUEUE: "default", names.LABEL_PROJECT: "vision"
        }.items()  # fmt: skip
        assert template["metadata"]["annotations"][names.PRIORITY] == "20"
        assert "theirs" not in template["metadata"]["annotations"]
    assert patch_of_replicated(convert(after, as_type=Guest), kind=kind) == [], "a second look changes nothing"


@each_kind
def test_what_the_template_says_stays(kind: Replicated) -> None:
    body = example(kind)
    body["metadata"]["annotations"] = {names.PRIORITY: "20"}
    template = value_at(body["spec"], path=kind.paths(body["spec"])[-1])
    template["metadata"]["annotations"][names.PRIORITY] = "30"
    after = admitted(body, kind=kind)
    assert value_at(after["spec"], path=kind.paths(body["spec"])[-1])["metadata"]["annotations"][names.PRIORITY] == "30"


@each_kind
def test_others_are_left_alone(kind: Replicated) -> None:
    body = example(kind)
    for labels in ({}, {names.LABEL_QUEUE: "default", names.KUEUE_QUEUE: "team"}):
        body["metadata"]["labels"] = labels
        assert patch_of_replicated(convert(body, as_type=Guest), kind=kind) == []
    assert replicated_of(group=kind.resource.group, kind=kind.resource.kind) is kind
    assert replicated_of(group="other", kind=kind.resource.kind) is None


@each_kind
@pytest.mark.parametrize("value", [7, "text", []])
def test_a_template_that_is_none_is_one_sentence(kind: Replicated, value: Any) -> None:
    body = example(kind)
    *way, last = kind.paths(body["spec"])[-1]
    value_at(body["spec"], path=tuple(way))[last] = value
    with pytest.raises(GuestError, match="is no pod template"):
        patch_of_replicated(convert(body, as_type=Guest), kind=kind)


def test_a_leader_that_must_be_ready_first_is_told() -> None:
    body = example(LEADERWORKERSETS)
    body["spec"]["startupPolicy"] = "LeaderReady"
    with pytest.raises(GuestError, match=r"spec\.startupPolicy is LeaderReady: .* so it must be LeaderCreated"):
        patch_of_replicated(convert(body, as_type=Guest), kind=LEADERWORKERSETS)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("llm-1", {"worker-index": "0"}),
        ("llm-1", {"worker-index": "0", "group-index": "1"}),
        ("llm-1-2", {"worker-index": "2", "group-index": "1"}),
    ],
    ids=["leader-before-its-index", "leader", "worker"],
)
def test_the_pods_of_a_replica_are_one_group(name: str, labels: dict[str, str]) -> None:
    said = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in {"name": "llm", **labels}.items()}
    metadata = {
        "name": name,
        "labels": {names.LABEL_QUEUE: "default", **said},
        "annotations": {"leaderworkerset.sigs.k8s.io/size": "3"},
    }
    body = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    after = patched(body, patch=patch_of_queued_pod(convert(body, as_type=Guest), review="r", user="sts"))
    assert after["metadata"]["labels"][names.POD_GROUP] == "llm-1"
    assert after["metadata"]["annotations"][names.POD_GROUP_SIZE] == "3"


def test_the_leaderworkersets_of_a_disaggregatedset_get_all_its_roles() -> None:
    body = example(DISAGGREGATEDSETS)
    roles = admitted(body, kind=DISAGGREGATEDSETS)["spec"]["roles"]
    assert [role["metadata"]["annotations"][names.GANG_ROLES] for role in roles] == ["prefill,decode"] * 2
    body["spec"]["roles"][1]["spec"]["startupPolicy"] = "LeaderReady"
    with pytest.raises(GuestError, match=r"^spec\.roles\[1\]\.spec\.startupPolicy is LeaderReady: "):
        admitted(body, kind=DISAGGREGATEDSETS)


def owned(kind: str, name: str, **labels: str) -> ObjectMeta:
    owner = OwnerReference(api_version="apps/v1", kind=kind, name=name, uid="u", controller=True)
    return ObjectMeta(name="p", namespace="team", labels=labels, owner_references=[owner])


@pytest.mark.parametrize(
    ("pod", "service"),
    [
        (owned("ReplicaSet", "serve-5d4f", **{"pod-template-hash": "5d4f"}), ("team", "Deployment", "serve")),
        (owned("ReplicaSet", "bare"), ("team", "ReplicaSet", "bare")),
        (owned("StatefulSet", "serve"), ("team", "StatefulSet", "serve")),
        (
            owned("StatefulSet", "serve-0", **{"leaderworkerset.sigs.k8s.io/name": "serve"}),
            ("team", "LeaderWorkerSet", "serve"),
        ),
        (ObjectMeta(name="p", namespace="team"), None),
    ],
)
def test_the_service_of_a_replica(pod: ObjectMeta, service: tuple[str, str, str] | None) -> None:
    assert service_of(pod) == service
