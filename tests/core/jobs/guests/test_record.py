"""The record of a guest: its name, what follows from annotations, and what a guest may not be."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import job_of
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.engine.model.topology import Spread
from dovetail.gpu.device_plugins import Vendors
from dovetail.jobs.guests.kind import Guest, GuestError, PodSet, Template, value_at
from dovetail.jobs.guests.record import node_ports, record_name, record_of
from dovetail.pods.demand import ask_of_job
from tests.core.jobs.guests.examples import guest, kind_named

JOB = kind_named("Job")


def job(*, template: dict[str, Any] | None = None, **metadata: Any) -> Guest:
    found = guest(JOB, **metadata)
    return found if template is None else Guest(metadata=found.metadata, spec={**found.spec, "template": template})


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("train", "job-train"),
        ("a.b", "job-a-b-08eeafef"),
        ("x" * 60, f"job-{'x' * 44}-"),
    ],
)
def test_the_name_is_a_dns_label_with_room_for_an_index(name: str, record: str) -> None:
    found = record_name(job(name=name), kind=JOB)
    assert found.startswith(record[:40])
    assert len(found) <= 57
    assert "." not in found


def test_two_guests_never_share_a_record() -> None:
    found = {record_name(job(name=name), kind=JOB) for name in ("a.b", "a-b", "a.b.", "a..b")}
    assert len(found) == 4


def test_annotations_of_the_guest_decide_priority_preemption_user_and_project() -> None:
    said = {names.PRIORITY: "200", names.PREEMPTIBLE: "false", names.USER: "ada"}
    labels = {names.LABEL_QUEUE: "default", names.LABEL_PROJECT: "vision", "app": "x"}
    record = record_of(job(annotations=said, labels=labels), kind=JOB)
    assert (record["spec"]["priority"], record["spec"]["preemptible"]) == (200, False)
    assert record["metadata"]["annotations"] == {names.USER: "ada"}
    assert record["metadata"]["labels"] == {names.LABEL_PROJECT: "vision"}


def test_a_guest_without_gpus_waits_for_cpu_and_memory() -> None:
    bare = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    assert record_of(job(template=bare), kind=JOB)["spec"]["resources"] == {"device": "cpu"}


def test_a_policy_in_capitals_is_recorded_as_the_schema_has_it() -> None:
    metadata = {"annotations": {names.REQUEST: "1", names.POLICY: "SPREAD"}}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["policy"] == "Spread"


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        (
            {names.PRIORITY: "high"},
            "annotation dovetail.dev/gpu-priority is 'high': it must be a whole number from 0 to 255",
        ),
        ({names.PREEMPTIBLE: "no"}, "annotation dovetail.dev/preemptible is 'no': it must be true or false"),
    ],
)
def test_wrong_annotations_are_told(annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(GuestError) as caught:
        record_of(job(annotations=annotations), kind=JOB)
    assert str(caught.value) == sentence


def test_gpus_by_container_are_told() -> None:
    split = {"metadata": {"annotations": {"dovetail.dev/gpu.side": "1"}}, "spec": {"containers": [{"name": "side"}]}}
    with pytest.raises(
        GuestError, match=r"annotation dovetail\.dev/gpu\.side: pods in the queue have their GPUs in one"
    ):
        record_of(job(template=split), kind=JOB)


@pytest.mark.parametrize("of_driver", [{}, {names.REQUEST: "1"}], ids=["alone", "too"])
def test_gpus_by_container_are_told_in_each_template(of_driver: dict[str, str]) -> None:
    """Else a template without seats would get GPUs that the queue does not count."""
    found = guest(kind_named("JobSet"))
    driver, workers = found.spec["replicatedJobs"]
    annotations = {**of_driver, f"{names.REQUEST}.main": "8"}
    template = {**driver["template"]["spec"]["template"], "metadata": {"annotations": annotations}}
    greedy = {**driver, "template": {"spec": {**driver["template"]["spec"], "template": template}}}
    for jobs in ([greedy, workers], [workers, greedy]):
        with pytest.raises(GuestError, match=r"annotation dovetail\.dev/gpu\.main: pods in the queue have their GPUs"):
            record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": jobs}), kind=kind_named("JobSet"))


def test_more_workers_than_a_job_has_are_told() -> None:
    found = guest(JOB)
    many = Guest(metadata=found.metadata, spec={**found.spec, "parallelism": 2000, "completions": 2000})
    with pytest.raises(GuestError, match="it has 2000 pods with GPUs, and a job in the queue has at most 1024"):
        record_of(many, kind=JOB)


def test_pods_of_two_sizes_are_told() -> None:
    kind = kind_named("JobSet")
    found = guest(kind)
    driver, workers = found.spec["replicatedJobs"]
    template = driver["template"]["spec"]["template"]
    with_gpus = {**template, "metadata": {"annotations": {names.REQUEST: "2"}}}
    greedy = {**driver, "template": {"spec": {**driver["template"]["spec"], "template": with_gpus}}}
    with pytest.raises(GuestError, match="its pods with GPUs differ in request, containers or placement"):
        record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": [greedy, workers]}), kind=kind)


def test_pods_that_differ_in_cpu_and_memory_are_planned_by_the_most() -> None:
    kind = kind_named("JobSet")
    found = guest(kind)
    driver, workers = found.spec["replicatedJobs"]
    annotations = workers["template"]["spec"]["template"]["metadata"]["annotations"]

    def role(job: dict[str, Any], *, containers: list[dict[str, Any]]) -> dict[str, Any]:
        template = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
        return {**job, "template": {"spec": {**job["template"]["spec"], "template": template}}}

    prefill = role(driver, containers=[{"name": "prefill", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}])
    decode = role(workers, containers=[{"name": "decode", "resources": {"requests": {"cpu": 1, "memory": "2G"}}}])
    made = record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": [prefill, decode]}), kind=kind)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "prefill", "resources": {"requests": {"cpu": "1500m", "memory": "2G"}}}
    two = role(workers, containers=[{"name": "decode"}, {"name": "proxy"}])
    with pytest.raises(GuestError, match="its pods with GPUs differ in request, containers or placement"):
        record_of(Guest(metadata=found.metadata, spec={"replicatedJobs": [prefill, two]}), kind=kind)


@pytest.mark.parametrize("part", ["limits", "requests"])
@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "dovetail.dev/gpu-milli"]
)
def test_gpus_by_resources_alone_are_told(resource: str, part: str) -> None:
    template = {"spec": {"containers": [{"name": "side"}, {"name": "main", "resources": {part: {resource: 1}}}]}}
    with pytest.raises(GuestError) as caught:
        record_of(job(template=template), kind=JOB)
    assert str(caught.value) == (
        f"container main requests {resource}, and its pod template has no annotation dovetail.dev/gpu: pods in the "
        "queue request GPUs by the annotation"
    )


def test_a_resource_that_the_configuration_names_is_told_too() -> None:
    template = {"spec": {"initContainers": [{"name": "load", "resources": {"limits": {"example.com/card": "1"}}}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["resources"] == {"device": "cpu"}
    with pytest.raises(GuestError, match=r"container load requests example\.com/card, "):
        record_of(job(template=template), kind=JOB, vendors=Vendors(by_name={"card": "example.com/card"}))


def test_a_template_with_the_annotation_may_have_the_resources_too() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    template = {"metadata": {"annotations": {names.REQUEST: "2"}}, "spec": {"containers": [{"name": "main", **limits}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["gpu"] == "2"


@pytest.mark.parametrize("resources", [7, {"limits": 7}, {"limits": ["nvidia.com/gpu"]}])
def test_resources_that_are_none_ask_for_nothing(resources: object) -> None:
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    assert record_of(job(template=template), kind=JOB)["spec"]["resources"] == {"device": "cpu"}


PORT = {"name": "main", "ports": [{"containerPort": 29500}]}
HOST_PORT = {"name": "main", "ports": [{"containerPort": 29500, "hostPort": 29500}]}


def apart_by(**labels: str) -> dict[str, Any]:
    """A required anti-affinity against pods with these labels."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def template_of(*, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": {names.REQUEST: "1"}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}


def asked(template: dict[str, Any], *, name: str = "train") -> Ask:
    """What the queue reads in the record of a batch Job with two pods of this template."""
    return ask_of_job(job_of(record_of(job(template=template, name=name), kind=JOB)), ranking=DEFAULT_RANKING)


@pytest.mark.parametrize(
    ("template", "apart"),
    [
        (template_of(), False),
        (template_of(labels={"app": "train"}, affinity=apart_by(app="train")), True),
        (template_of(labels={"app": "train"}, affinity=apart_by(app="other")), False),
        (template_of(affinity=apart_by(**{"batch.kubernetes.io/job-name": "train"})), True),
        (template_of(affinity=apart_by(**{"job-name": "train"})), True),
        (template_of(affinity=apart_by(**{"job-name": "job-train"})), False),
        (template_of(affinity=apart_by(**{names.LABEL_JOB: "job-train"})), True),
        (template_of(containers=[HOST_PORT]), True),
        (template_of(containers=[PORT]), False),
        (template_of(containers=[PORT], hostNetwork=True), True),
        (template_of(hostNetwork=True), False),
        (template_of(initContainers=[{**HOST_PORT, "name": "side", "restartPolicy": "Always"}]), True),
        (template_of(initContainers=[{**HOST_PORT, "name": "first"}]), False),
    ],
)
def test_the_record_keeps_workers_apart_as_the_guest_s_template_does(template: dict[str, Any], apart: bool) -> None:
    assert asked(template).apart is apart


def test_the_record_spreads_workers_as_the_guest_s_template_does() -> None:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = {**rule, "labelSelector": {"matchLabels": {"app": "train"}}}
    topology = asked(template_of(labels={"app": "train"}, topologySpreadConstraints=[spread])).topology
    assert topology is not None
    assert topology.spreads == (Spread(label="zone", max_skew=1),)


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("JobSet", "jobset.sigs.k8s.io/jobset-name"),
        ("RayCluster", "ray.io/cluster"),
        ("MPIJob", "training.kubeflow.org/job-name"),
        ("TrainJob", "jobset.sigs.k8s.io/jobset-name"),
    ],
)
def test_a_selector_of_the_guest_s_own_name_selects_its_workers(kind: str, label: str) -> None:
    found = guest(kind_named(kind))
    # The templates of a TrainJob are its JobSet's.
    within = found.spec["jobSet"] if kind == "TrainJob" else found.spec
    for pods in kind_named(kind).pod_sets(found.spec):
        value_at(within, path=(*pods.path, "spec"))["affinity"] = apart_by(**{label: found.metadata.name})
    record = job_of(record_of(found, kind=kind_named(kind)))
    assert ask_of_job(record, ranking=DEFAULT_RANKING).apart


def test_labels_that_no_rule_selects_stay_out_of_the_record() -> None:
    found = record_of(
        job(template=template_of(labels={"app": "a", "secret": "b"}, affinity=apart_by(app="a"))), kind=JOB
    )
    assert found["spec"]["template"]["metadata"] == {"labels": {"app": "a"}}
    assert "metadata" not in record_of(job(template=template_of(labels={"app": "a"})), kind=JOB)["spec"]["template"]


def test_templates_that_differ_in_labels_and_ports_are_still_queued() -> None:
    """A leader and its workers: the record has what they share."""
    kind = kind_named("JobSet")
    leader = template_of(labels={"app": "a", "role": "leader"}, affinity=apart_by(app="a"), containers=[HOST_PORT])
    worker = template_of(labels={"app": "a", "role": "worker"}, affinity=apart_by(app="a"), containers=[PORT])
    jobs = [
        {"name": str(index), "template": {"spec": {"template": each}}} for index, each in enumerate((leader, worker))
    ]
    found = record_of(Guest(metadata=guest(kind).metadata, spec={"replicatedJobs": jobs}), kind=kind)["spec"]
    assert found["workers"] == 2
    assert found["template"]["metadata"] == {"labels": {"app": "a"}}
    assert "ports" not in found["template"]["spec"]["containers"][0]


def test_the_first_port_of_a_node_counts_and_a_container_that_is_no_object_has_none() -> None:
    seated = [PodSet(path=(), template=Template(spec={"containers": [{"ports": [{"hostPort": 1}]}, 7]}), count=1)]
    assert node_ports(seated) == [1]
