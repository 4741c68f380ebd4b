"""TrainJobs: what the webhook adds to them and to their JobSets, and what the queue reads of both."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.decoding import convert
from dovetail.jobs.guests.kind import Guest, GuestError, is_suspended
from dovetail.jobs.guests.record import record_of
from dovetail.jobs.guests.registry import admission_patch
from dovetail.jobs.guests.trainjob import JOB_SETS, composed, is_made_of
from tests.core.jobs.guests.examples import guest, job_set_of, kind_named
from tests.core.jobs.guests.test_kinds import patched

KIND: Final = kind_named("TrainJob")
OURS: Final = "dovetail.dev/queue"


def admitted(**changes: Any) -> dict[str, Any]:
    """The example after the webhook, with these fields of its spec."""
    found = guest(KIND)
    body = {
        "metadata": {
            "name": "finetune",
            "labels": found.metadata.labels,
            "annotations": dict(found.metadata.annotations),
        },
        "spec": {**{key: value for key, value in found.spec.items() if key != "jobSet"}, **changes},
    }
    read = convert(body, as_type=Guest)
    return patched(body, patch=admission_patch(read, kind=KIND, run="review-1", user="ada"))


def test_the_trainer_labels_the_jobset_with_the_run_and_passes_the_request_on() -> None:
    after = admitted()
    assert is_suspended(convert(after, as_type=Guest), kind=KIND)
    assert after["metadata"]["annotations"] == {names.REQUEST: "1", names.RUN: "review-1", names.USER: "ada"}
    metadata = {"labels": {names.RUN: "review-1"}, "annotations": {names.REQUEST: "1"}}
    assert after["spec"]["runtimePatches"] == [
        {"manager": OURS, "trainingRuntimeSpec": {"template": {"metadata": metadata}}}
    ]


def test_patches_of_others_stay_and_an_earlier_one_of_ours_goes() -> None:
    others = {"manager": "team.example/storage"}
    after = admitted(runtimePatches=[{"manager": OURS, "trainingRuntimeSpec": {}}, others])
    assert [each["manager"] for each in after["spec"]["runtimePatches"]] == ["team.example/storage", OURS]


def job_set(*parts: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """A new JobSet of a queued TrainJob."""
    labels = {names.RUN: "review-1"}
    return {"metadata": {"name": "finetune", "labels": labels, "annotations": annotations}, "spec": {
        "replicatedJobs": [{"name": f"part-{index}", "template": {"spec": {"template": part}}}
                           for index, part in enumerate(parts)],
    }}  # fmt: skip


def templates_after(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates of a JobSet after the webhook."""
    patch = admission_patch(convert(body, as_type=Guest), kind=JOB_SETS, run="other", user="trainer")
    after = patched(body, patch=patch)
    assert after["metadata"] == body["metadata"], "the JobSet itself stays as the Trainer wrote it"
    return [each["template"]["spec"]["template"] for each in after["spec"]["replicatedJobs"]]


def test_all_pods_of_the_jobset_are_gated_and_training_nodes_get_the_request() -> None:
    data = {"spec": {"containers": [{"name": "dataset-initializer"}]}}
    node = {"spec": {"containers": [{"name": "node"}]}}
    own = {"metadata": {"annotations": {names.REQUEST: "2"}}, "spec": {"containers": [{"name": "node"}]}}
    found = templates_after(job_set(data, node, own, **{names.REQUEST: "1", "theirs": "x"}))
    assert [each["metadata"]["labels"] for each in found] == [{names.RUN: "review-1"}] * 3
    assert [each["spec"]["schedulingGates"] for each in found] == [[{"name": names.QUEUE_GATE}]] * 3
    said = [each["metadata"].get("annotations") for each in found]
    assert said == [None, {names.REQUEST: "1"}, {names.REQUEST: "2"}]


def test_a_jobset_of_a_trainjob_that_is_not_queued_is_left_alone() -> None:
    body = job_set({"spec": {"containers": [{"name": "node"}]}})
    body["metadata"]["labels"] = {}
    assert admission_patch(convert(body, as_type=Guest), kind=JOB_SETS, run="other", user="trainer") == []


def test_a_trainjob_without_its_jobset_says_what_is_missing() -> None:
    alone = composed(guest(KIND), job_set=None)
    assert alone.is_growing
    with pytest.raises(GuestError) as caught:
        record_of(alone, kind=KIND)
    assert str(caught.value) == (
        "no JobSet of it has the label dovetail.dev/run: this needs Kubeflow Trainer 2.2 or later, whose log says why "
        "it does not create the JobSet"
    )


def test_the_jobset_says_how_many_workers_there_are() -> None:
    found = guest(KIND)
    changed = composed(found, job_set=job_set_of(found, nodes=5))
    assert not changed.is_growing
    assert record_of(changed, kind=KIND)["spec"]["workers"] == 5


def test_a_field_that_looks_like_the_jobset_counts_for_nothing() -> None:
    forged = replace(guest(KIND), spec={"jobSet": {"replicatedJobs": []}})
    assert composed(forged, job_set=None).spec == {}


def test_a_jobset_belongs_to_the_trainjob_that_controls_it() -> None:
    found = guest(KIND)
    made = job_set_of(found)
    assert is_made_of(made, of=found)
    assert not is_made_of(made, of=replace(found, metadata=replace(found.metadata, uid="uid-other")))
