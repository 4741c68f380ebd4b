"""Which pods run as a user's processes."""

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import EnvSource, EnvVar, FieldRef
from dovetail_local_node import admission
from dovetail_local_node.pod_object import LocalPod
from tests.local_node import builders


def test_the_users_own_job_runs() -> None:
    assert admission.check(builders.pod("true"), submitter="alice", user="alice") is None


def test_a_job_of_another_user_is_refused_with_both_names() -> None:
    refusal = admission.check(builders.pod("true"), submitter="mallory", user="alice")
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (
        "ForeignUser",
        "The local node runs jobs of alice only; mallory submitted this one.",
    )


def test_a_job_by_rest_with_the_users_token_runs() -> None:
    account = "system:serviceaccount:default:sandbox-user"
    assert admission.check(builders.pod("true"), submitter=account, user="alice", accounts=[account]) is None
    assert admission.check(builders.pod("true"), submitter="", user="alice", accounts=[""]) is not None


def test_a_job_without_a_recorded_user_is_refused() -> None:
    refusal = admission.check(builders.pod("true"), submitter="", user="alice")
    assert refusal is not None
    assert refusal.reason == "ForeignUser"


def test_a_pod_without_a_job_is_refused() -> None:
    refusal = admission.check(builders.pod("true"), submitter=None, user="alice")
    assert refusal is not None
    assert refusal.reason == "NotAJob"


@pytest.mark.parametrize("owner", ["", "another"])
def test_a_label_without_the_controlling_job_proves_nothing(owner: str) -> None:
    assert admission.job_name(builders.pod("true", owner=owner)) == ""


@pytest.mark.parametrize("changes", [{"controller": False}, {"api_version": "apps/v1"}, {"kind": "Pod"}])
def test_an_owner_that_is_not_the_controlling_job_proves_nothing(changes: dict[str, Any]) -> None:
    made = builders.pod("true")
    owners = [replace(each, **changes) for each in made.metadata.owner_references]
    assert admission.job_name(replace(made, metadata=replace(made.metadata, owner_references=owners))) == ""


@pytest.mark.parametrize("field", ["containers", "init_containers"])
def test_a_pod_of_several_containers_is_refused_whichever_they_are(field: str) -> None:
    made = builders.pod("true")
    others = [*getattr(made.spec, field), made.spec.containers[0]]
    refusal = admission.check(
        replace(made, spec=replace(made.spec, **{field: others})), submitter="alice", user="alice"
    )
    assert refusal is not None
    assert (refusal.reason, "this one has 2" in refusal.message) == ("SeveralContainers", True)


def test_label_and_controlling_job_together_name_the_gpujob() -> None:
    assert admission.job_name(builders.pod("true")) == "train"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (builders.pod("true", containers=2), "SeveralContainers"),
        (builders.pod(), "NoCommand"),
        (builders.pod("true", env=[EnvVar(name="A", value_from=EnvSource())]), "UnknownVariable"),
    ],
)
def test_a_pod_that_needs_more_than_one_process_is_refused(pod: LocalPod, reason: str) -> None:
    refusal = admission.check(pod, submitter="alice", user="alice")
    assert refusal is not None
    assert refusal.reason == reason


def test_a_reservation_needs_no_command() -> None:
    held = builders.pod(labels={names.LABEL_RESERVATION: "true"})
    assert admission.check(held, submitter="alice", user="alice") is None


@pytest.mark.parametrize("source", ["secretKeyRef", "configMapKeyRef", "resourceFieldRef"])
def test_a_variable_that_is_no_field_of_the_pod_is_refused_by_its_name(source: str) -> None:
    field = EnvVar(name="FIELD", value_from=EnvSource(field_ref=FieldRef(field_path="metadata.name")))
    other = EnvVar(name="OTHER", value_from=convert({source: {"key": "k"}}, EnvSource))
    refusal = admission.check(builders.pod("true", env=[field, other]), submitter="alice", user="alice")
    assert refusal is not None
    assert (refusal.reason, refusal.message.partition(" ")[0]) == ("UnknownVariable", "OTHER")


def test_variables_that_come_from_a_whole_object_are_refused() -> None:
    made = builders.pod("true")
    container = replace(made.spec.containers[0], env_from=[{"secretRef": {"name": "keys"}}])
    refusal = admission.check(
        replace(made, spec=replace(made.spec, containers=[container])), submitter="alice", user="alice"
    )
    assert refusal is not None
    assert (refusal.reason, refusal.message.partition(" ")[0]) == ("UnknownVariable", "envFrom")
