"""The conformance suite of adapters: what each kind's must do, on the example of the kind."""

import json
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import job_of, spec_of
from dovetail.decoding import convert
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.jobs.batch_job import is_child, is_guests, is_managed
from dovetail.jobs.guests.kind import Guest, GuestError, Kind, has_ended, is_suspended, suspend_patch, value_at
from dovetail.jobs.guests.record import is_record_of, record_of
from dovetail.jobs.guests.registry import KINDS, admission_patch
from dovetail.jobs.guests.run import POD_MAKERS, as_batch_job
from dovetail.jobs.guests.trainjob import TrainJobs, composed
from dovetail.pods.demand import ask_of_job
from tests.core.jobs.guests.examples import EXPECTED, FOLDER, example, guest, job_set_of, kind_named

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
# All but TrainJobs, whose templates are in another object.
each_kind_with_templates = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not isinstance(kind, TrainJobs)], ids=lambda kind: kind.resource.kind
)

# How each kind says that it was suspended and how it ended; a kind without an end has none.
SUSPENDED: dict[str, dict[str, Any]] = {
    "Job": {"conditions": [{"type": "Suspended", "status": "True"}]},
    "JobSet": {"conditions": [{"type": "Suspended", "status": "True"}]},
    "RayJob": {"jobDeploymentStatus": "Suspended"},
    "RayCluster": {"conditions": [{"type": "RayClusterSuspended", "status": "True"}]},
    "MPIJob": {"conditions": [{"type": "Suspended", "status": "True"}]},
    "TrainJob": {"conditions": [{"type": "Suspended", "status": "True"}]},
}
SUCCEEDED: dict[str, dict[str, Any]] = {
    "Job": {"conditions": [{"type": "Complete", "status": "True"}]},
    "JobSet": {"conditions": [{"type": "Completed", "status": "True"}]},
    "RayJob": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    "MPIJob": {"conditions": [{"type": "Succeeded", "status": "True"}]},
    "TrainJob": {"conditions": [{"type": "Complete", "status": "True"}]},
}
FAILED: dict[str, dict[str, Any]] = {
    "Job": {"conditions": [{"type": "Failed", "status": "True"}]},
    "JobSet": {"conditions": [{"type": "Failed", "status": "True"}]},
    "RayJob": {"jobDeploymentStatus": "Failed", "message": "no cluster"},
    "MPIJob": {"conditions": [{"type": "Failed", "status": "True"}]},
    "TrainJob": {"conditions": [{"type": "Failed", "status": "True"}]},
}


UNCLEAN = "spec.runPolicy.cleanPodPolicy must be Running or All: else the workers keep their GPUs after the end"


def patched(body: dict[str, Any], *, patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The object after a JSON patch of additions."""
    after: dict[str, Any] = json.loads(json.dumps(body))
    for step in patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at: Any = after
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[last] = step["value"]
    return after


def test_each_kind_has_an_example_and_each_example_a_kind() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} >= {kind.resource.kind.lower() for kind in KINDS}
    assert EXPECTED.keys() == {kind.resource.kind for kind in KINDS}


@each_kind
def test_the_record_has_the_workers_of_the_guest(kind: Kind) -> None:
    expected, found = EXPECTED[kind.resource.kind], guest(kind)
    assert sum(pods.count for pods in kind.pod_sets(found.spec)) == expected.pods
    record = job_of(record_of(found, kind=kind))
    assert (record.metadata.name, record.spec.workers) == (expected.name, expected.workers)
    assert is_guests(record)
    assert is_managed(record)
    assert is_record_of(record, guest=found)
    asked = ask_of_job(record, ranking=DEFAULT_RANKING)
    assert str(asked.gpu) == "1"


@each_kind
def test_the_record_holds_nothing_that_only_the_guests_readers_may_see(kind: Kind) -> None:
    written = json.dumps(spec_of(job_of(record_of(guest(kind), kind=kind)).spec.template))
    assert "image" not in written
    assert "command" not in written


@each_kind_with_templates
def test_admission_holds_the_guest_and_gates_all_its_pods(kind: Kind) -> None:
    body = example(kind)
    found = convert(body, as_type=Guest)
    patch = admission_patch(found, kind=kind, run="review-1", user="ada")
    after = convert(patched(body, patch=patch), as_type=Guest)
    assert is_suspended(after, kind=kind)
    assert after.metadata.annotations[names.RUN] == "review-1"
    assert after.metadata.annotations[names.USER] == "ada"
    for pods in kind.pod_sets(after.spec):
        assert pods.template.labels[names.RUN] == "review-1"
        assert pods.template.spec["schedulingGates"] == [{"name": names.QUEUE_GATE}]
    # A second look, after another webhook has changed something, changes nothing more than the run.
    again = patched(msgspec.to_builtins(after), patch=admission_patch(after, kind=kind, run="review-1", user="ada"))
    assert convert(again, as_type=Guest) == after


OWN: dict[str, Any] = {
    "metadata": {"labels": {"theirs": "y"}, "annotations": {"theirs": "x"}},
    "spec": {"schedulingGates": [{"name": "example.com/quota"}], "nodeSelector": {"zone": "z"}},
}


def leaves(value: Any, *, at: str = "") -> dict[str, Any]:
    """The values by their places; those of a list by what they say, so that another one before them moves none."""
    if isinstance(value, dict) and value:
        return {key: leaf for step, each in value.items() for key, leaf in leaves(each, at=f"{at}/{step}").items()}
    if isinstance(value, list) and value:
        return {f"{at}/{json.dumps(each)}" if "Gates" in at else f"{at}/{index}{place}": leaf
                for index, each in enumerate(value) for place, leaf in leaves(each).items()}  # fmt: skip
    return {at: value}


@each_kind_with_templates
def test_admission_only_adds_to_what_the_user_wrote_in_a_template(kind: Kind) -> None:
    body = example(kind)
    for pods in kind.pod_sets(convert(body, as_type=Guest).spec):
        template = value_at(body["spec"], path=pods.path)
        for part, fields in OWN.items():
            template[part] = fields | template.get(part, {})
    before = leaves(body)
    assert any("example.com/quota" in place for place in before)
    patch = admission_patch(convert(body, as_type=Guest), kind=kind, run="review-1", user="ada")
    after = leaves(patched(body, patch=patch))
    held = {"/spec/" + "/".join(map(str, kind.suspend_path))}
    assert {place: after.get(place) for place in before.keys() - held} == {
        place: before[place] for place in before.keys() - held
    }


@each_kind_with_templates
@pytest.mark.parametrize("copied", [{}, {names.RUN: "r", names.USER: "ada", "theirs": "x"}], ids=["labels", "all"])
def test_a_part_of_a_guest_waits_with_the_guest_and_leaves_the_queue(kind: Kind, copied: dict[str, str]) -> None:
    """A RayJob's RayCluster has the templates of the RayJob, its labels and its annotations."""
    held = patched(example(kind), patch=admission_patch(guest(kind), kind=kind, run="r", user="ada"))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "tune", "uid": "uid-tune", "controller": True}
    labels = {names.LABEL_QUEUE: "default", "theirs": "y"}
    metadata = {"name": "part", "labels": labels, "annotations": copied, "ownerReferences": [owner]}
    part = {**held, "metadata": metadata}
    found = convert(part, as_type=Guest)
    patch = admission_patch(found, kind=kind, run="other", user="system:serviceaccount:ray:kuberay-operator")
    after = patched(part, patch=patch)
    assert after["metadata"]["labels"] == {"theirs": "y"}
    assert after["metadata"]["annotations"].keys() == copied.keys() - {names.RUN, names.USER}
    assert after["spec"] == held["spec"]
    # A second look finds nothing of ours.
    assert admission_patch(convert(after, as_type=Guest), kind=kind, run="third", user="other") == []


@each_kind_with_templates
@pytest.mark.parametrize("owner", [None, ("batch/v1", "CronJob"), ("argoproj.io/v1alpha1", "Workflow")])
@pytest.mark.parametrize("copied", [{}, {names.RUN: "r", names.USER: "ada"}], ids=["labels", "all"])
def test_a_copy_of_a_guest_has_a_turn_of_its_own(
    kind: Kind, owner: tuple[str, str] | None, copied: dict[str, str]
) -> None:
    """Its templates have the run and the gate of the first."""
    held = patched(example(kind), patch=admission_patch(guest(kind), kind=kind, run="r", user="ada"))
    owners = (
        [{"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "uid-o", "controller": True}] if owner else []
    )
    metadata = {"name": "copy", "labels": {names.LABEL_QUEUE: "default"}, "annotations": copied}
    copy = {**held, "metadata": {**metadata, "ownerReferences": owners}}
    patch = admission_patch(convert(copy, as_type=Guest), kind=kind, run="other", user="eve")
    after = convert(patched(copy, patch=patch), as_type=Guest)
    assert is_suspended(after, kind=kind)
    assert (after.metadata.annotations[names.RUN], after.metadata.annotations[names.USER]) == ("other", "eve")
    assert names.LABEL_QUEUE in after.metadata.labels
    assert {pods.template.labels[names.RUN] for pods in kind.pod_sets(after.spec)} == {"other"}


@each_kind
def test_a_guest_with_an_owner_is_still_itself_in_a_second_look(kind: Kind) -> None:
    """A CronJob's Job, which another webhook has changed after ours."""
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "uid-c", "controller": True}
    body = example(kind)
    body["metadata"]["ownerReferences"] = [owner]
    first = patched(body, patch=admission_patch(convert(body, as_type=Guest), kind=kind, run="r", user="cron"))
    again = patched(first, patch=admission_patch(convert(first, as_type=Guest), kind=kind, run="r", user="cron"))
    assert again == first


@each_kind
def test_admission_leaves_others_alone(kind: Kind) -> None:
    assert admission_patch(guest(kind, labels={}), kind=kind, run="r", user="ada") == []
    kueues = {names.LABEL_QUEUE: "default", names.KUEUE_QUEUE: "team"}
    assert admission_patch(guest(kind, labels=kueues), kind=kind, run="r", user="ada") == []


@each_kind
def test_the_guest_is_shown_as_a_batch_job(kind: Kind) -> None:
    found = guest(kind)
    record = job_of(record_of(found, kind=kind))
    record = msgspec.structs.replace(record, metadata=msgspec.structs.replace(record.metadata, uid="uid-record"))
    child = as_batch_job(found, kind=kind, record=record, workers=3)
    assert is_child(child, job=record)
    assert (child.metadata.uid, child.metadata.resource_version) == ("uid-record", "7")
    assert (child.spec.suspend, child.spec.parallelism) == (False, 3)


@each_kind
def test_suspension_and_end_are_read_from_the_status(kind: Kind) -> None:
    name = kind.resource.kind
    held = kind.progress(guest(kind, status=SUSPENDED[name]))
    assert [(each.type, each.status) for each in held.conditions] == [("Suspended", "True")]
    for ends, type_ in ((SUCCEEDED, "Complete"), (FAILED, "Failed")):
        if name in ends:
            over = guest(kind, status=ends[name])
            assert has_ended(over, kind=kind)
            assert [each.type for each in kind.progress(over).conditions] == [type_]
    assert not has_ended(guest(kind), kind=kind)


@each_kind
def test_the_field_that_holds_it_is_patched_alone(kind: Kind) -> None:
    patch = suspend_patch(kind, suspend=True)
    assert value_at(patch["spec"], path=kind.suspend_path) is True
    assert len(json.dumps(patch)) < 50


@each_kind
@pytest.mark.parametrize(
    "status", [{"conditions": 7}, {"conditions": [3]}, {"jobDeploymentStatus": []}, {"active": "x"}]
)
def test_a_hostile_status_is_no_progress(kind: Kind, status: dict[str, Any]) -> None:
    assert not has_ended(guest(kind, status=status), kind=kind)


@each_kind
@pytest.mark.parametrize("value", [7, "text", [], {}, None, [7], {"a": 7}])
def test_a_hostile_spec_is_one_sentence(kind: Kind, value: Any) -> None:
    told, found = [], guest(kind)
    for field in found.spec:
        try:
            record_of(Guest(metadata=found.metadata, spec={**found.spec, field: value}), kind=kind)
        except GuestError as error:
            told.append(str(error))
    assert not any("\n" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("Job", {"parallelism": 0}, "it asks for no pods, so there is nothing to queue"),
        ("Job", {"parallelism": "2"}, "spec.parallelism must be a whole number from 0, and not '2'"),
        ("JobSet", {"replicatedJobs": []}, "spec.replicatedJobs must name at least one Job"),
        ("RayJob", {"shutdownAfterJobFinishes": False},
         "spec.shutdownAfterJobFinishes must be true: KubeRay suspends no other RayJob"),
        ("RayJob", {"clusterSelector": {"a": "b"}},
         "spec.clusterSelector names a cluster that exists already: queue that RayCluster instead"),
        ("RayCluster", {"enableInTreeAutoscaling": True},
         "spec.enableInTreeAutoscaling is true: the queue plans a fixed number of pods"),
        ("MPIJob", {"mpiReplicaSpecs": {}}, "spec.mpiReplicaSpecs must name at least one role"),
        ("MPIJob", {"runPolicy": {"cleanPodPolicy": "None"}}, UNCLEAN),
        ("MPIJob", {"runPolicy": {}}, UNCLEAN),
    ],
)  # fmt: skip
def test_what_cannot_be_queued_is_told(name: str, change: dict[str, Any], sentence: str) -> None:
    kind = kind_named(name)
    found = guest(kind)
    with pytest.raises(GuestError) as caught:
        record_of(Guest(metadata=found.metadata, spec={**found.spec, **change}), kind=kind)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("change", "workers"),
    [
        ({"replicas": 5, "minReplicas": 0, "maxReplicas": 3}, 3),
        ({"replicas": 1, "minReplicas": 2, "maxReplicas": 3}, 2),
        ({"replicas": None, "minReplicas": 2}, 2),
        ({"replicas": 5}, 5),
        ({"replicas": 5, "maxReplicas": 3, "numOfHosts": 2}, 6),
        ({"replicas": 2, "suspend": True}, 0),
        ({"replicas": 2, "suspend": False}, 2),
    ],
)
def test_a_group_of_ray_has_the_workers_that_kuberay_makes(change: dict[str, Any], workers: int) -> None:
    kind = kind_named("RayCluster")
    spec = json.loads(json.dumps(guest(kind).spec))
    (group,) = spec["workerGroupSpecs"]
    for field in ("replicas", "minReplicas", "maxReplicas"):
        group.pop(field, None)
    group.update(change)
    _, found = kind.pod_sets(spec)
    assert found.count == workers


def test_an_mpijob_without_replicas_has_the_pods_that_the_mpi_operator_makes() -> None:
    kind = kind_named("MPIJob")
    spec = json.loads(json.dumps(guest(kind).spec))
    for part in spec["mpiReplicaSpecs"].values():
        part.pop("replicas", None)
    assert {pods.path[1]: pods.count for pods in kind.pod_sets(spec)} == {"Launcher": 1, "Worker": 0}


@pytest.mark.parametrize(
    ("name", "makers"),
    [("Job", ""), ("JobSet", "Job/together-driver-,Job/together-workers-"), ("TrainJob", "Job/finetune-node-")],
)
def test_the_objects_that_make_a_guest_s_pods_are_named_with_it(name: str, makers: str) -> None:
    kind, found = kind_named(name), guest(kind_named(name))
    if name == "TrainJob":
        found = composed(found, job_set=job_set_of(found))
    child = as_batch_job(found, kind=kind, record=job_of(record_of(found, kind=kind)), workers=1)
    assert child.metadata.annotations.get(POD_MAKERS, "") == makers
