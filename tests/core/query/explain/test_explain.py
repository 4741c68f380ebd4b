"""Explanations of pods, jobs and requests from the objects of a cluster."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobSpec, GPUJobStatus, QueuePlace, ResourceRequest, template_of
from dovetail.api.meta import MessageDetail, ObjectMeta
from dovetail.api.reasons.catalog import rendered
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.growing import Growing
from dovetail.config.settings import Settings
from dovetail.engine.score.mix_record import MixRecord, WeighedShape
from dovetail.query.errors import InvalidQueryError
from dovetail.query.explain import explanation, subjects
from dovetail.query.explain.explanation import Explanation
from dovetail.query.explain.requests import of_request
from dovetail.query.explain.rows import explanation_row
from dovetail.query.explain.subjects import Subject
from tests.cli.builders import NOW, ago, make_gpunode, make_pod, make_quota
from tests.core.explain.builders import make_node

SETTINGS = Settings()


def explain(subject: Subject, picture: ClusterObjects) -> Explanation:
    found = explanation.explain(subject, objects=picture, now=NOW)
    assert rendered(found.sentence.clauses).message == found.summary
    return found


def make_picture(*, pods: list[Pod] | None = None, jobs: list[GPUJob] | None = None) -> ClusterObjects:
    """Nodes a and b with two V100s each, and t with one but tainted."""
    nodes = [make_node("a"), make_node("b"), make_node("t", taint=True)]
    gpunodes = [make_gpunode("a"), make_gpunode("b"), make_gpunode("t", gpus=1)]
    return ClusterObjects(nodes=nodes, gpunodes=gpunodes, pods=pods or [], jobs=jobs or [], settings=SETTINGS)


def job_pod(job: str, number: int, *, node: str, devices: int = 2) -> Pod:
    labels = {names.LABEL_JOB: job, names.LABEL_JOB_NUMBER: str(number)}
    held = tuple((index, 1000, 32768) for index in range(devices))
    return make_pod(f"{job}-0", node=node, held=held, labels=labels)


def make_job(name: str, *, gpu: str = "1", number: int = 1, phase: Any = "Running", **changes: Any) -> GPUJob:
    spec = GPUJobSpec(
        gpu=gpu,
        template=template_of({"containers": [{"name": "main"}]}),
        workers=changes.pop("workers", 1),
        active_deadline_seconds=changes.pop("limit", None),
    )
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}-job", creation_timestamp="2026-01-01T10:00:00Z")
    return GPUJob(metadata=meta, spec=spec, status=GPUJobStatus(number=number, phase=phase, **changes))


def raw_pod(
    name: str = "p", *, gpu_milli: str = "2000", scheduler: str = names.SCHEDULER_NAME, **spec: Any
) -> dict[str, Any]:
    resources = {"requests": {names.GPU_MILLI: gpu_milli}} if gpu_milli else {}
    container = {"name": "main", "resources": resources}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


def ask(text: str, **options: str) -> Subject:
    return of_request(text, settings=SETTINGS, **options)  # type: ignore[arg-type]


def notes(subject: Subject) -> tuple[str, ...]:
    """The notes as texts."""
    return tuple(note.message for note in subject.notes)


def helps(found: Explanation) -> str:
    """What would help, in one text."""
    return "\n".join(change.text for change in found.answer.changes) if found.answer else ""


def filled() -> ClusterObjects:
    jobs = [
        make_job("train", number=17, start_time="2026-11-21T11:00:00Z", limit=3600),
        make_job("other", number=18),
    ]
    pods = [job_pod("train", 17, node="a"), job_pod("other", 18, node="b", devices=1)]
    return make_picture(pods=pods, jobs=jobs)


def test_a_record_has_everything_with_numbers() -> None:
    found = explain(subjects.of_pod(raw_pod(), settings=SETTINGS), filled())
    record = msgspec.to_builtins(explanation_row(found))
    assert (record["kind"], record["state"], record["fits"], record["reason"]) == ("Pod", "waiting", False, "Resources")
    assert record["asked"]["gpu"] == "2"
    assert [change["kind"] for change in record["changes"]] == ["Departure", "Departure", "FewerGPUs"]
    assert [(node["node"], node["reason"]) for node in record["nodes"]] == [
        ("a", "DevicesBusy"), ("b", "DevicesBusy"), ("t", "Taint"),
    ]  # fmt: skip


def test_a_request_that_fits_tells_where_and_with_which_devices() -> None:
    found = explain(ask("1"), filled())
    assert found.summary == "Fits now on 1 of 3 nodes, best on b with GPU 1"
    (row, *_) = explanation_row(found).nodes
    assert (row.node, row.fits, [device.uuid for device in row.devices]) == ("b", True, ["GPU-b-1"])


def test_a_bound_pod_is_told_with_what_is_around_it() -> None:
    picture = filled()
    raw = values_of(picture.pods[1])
    raw["spec"]["schedulerName"] = names.SCHEDULER_NAME
    raw["spec"]["containers"][0]["resources"] = {"requests": {names.GPU_MILLI: "1000"}}
    found = explain(subjects.of_pod(raw, settings=SETTINGS), picture)
    row = explanation_row(found)
    assert row.summary == "Pod default/other-0 is on b with GPU 0"
    assert [each.code for each in row.details] == ["ExplainedPod", "IsOn", "OnWithDevices"]
    assert row.details[-1].parameters == {"node": "b", "indexes": "0"}
    assert [(each.node, each.index, each.status) for each in row.around] == [
        ("b", 0, "In use by job 18"),
        ("b", 1, "Available"),
    ]
    assert found.held[0].uuid == "GPU-b-0"


def test_a_running_job_is_told_with_the_devices_of_all_its_workers() -> None:
    picture = filled()
    subject = subjects.of_job(picture.jobs[0], pods=[picture.pods[0]], settings=SETTINGS)
    assert explain(subject, picture).summary == "Job 17 (train) is on a with GPU 0,1"


@pytest.mark.parametrize(("count", "rest"), [(4, ""), (5, " and 1 more"), (7, " and 3 more")])
def test_of_many_nodes_the_first_four_are_named_and_the_others_counted(count: int, rest: str) -> None:
    nodes = [f"n{at}" for at in range(count)]
    picture = replace(make_picture(jobs=[make_job("train", number=17)]), nodes=[], gpunodes=[])
    pods = [job_pod("train", 17, node=node, devices=1) for node in nodes]
    subject = subjects.of_job(picture.jobs[0], pods=pods, settings=SETTINGS)
    named = ", ".join(f"{node} with GPU 0" for node in nodes[:4])
    assert explain(subject, picture).summary == f"Job 17 (train) is on {named}{rest}"


def told_job(picture: ClusterObjects, **job: Any) -> Explanation:
    return explain(subjects.of_job(make_job("x", number=3, **job), pods=(), settings=SETTINGS), picture)


def test_a_job_that_new_nodes_can_serve_is_told_what_is_requested() -> None:
    shape = {"gpus": 8, "model": "V100", "cpu": "64", "memory": "256Gi", "max_nodes": 2, "labels": {"pool": "grows"}}
    growing = SETTINGS.model_copy(update={"growing": Growing.model_validate({"pools": {"grows": shape}})})
    large = make_job("x", number=3, gpu="8", phase="Queued", reason="Provisioning")
    picture = replace(make_picture(jobs=[large]), settings=growing)
    found = explain(subjects.of_job(large, pods=(), settings=growing), picture)
    assert found.answer is not None
    assert found.answer.reason == "Provisioning"
    assert "1 node of pool grows requested at " in found.summary
    assert helps(found) == "wait until an autoscaler adds the nodes, or ask for what existing nodes have"


def test_a_queued_job_is_told_by_its_shortage_and_the_queue_only_where_it_says_something_else() -> None:
    shortage = "Need 2 GPUs, only 1 available"
    found = told_job(filled(), gpu="2", phase="Queued", reason="Resources", message=shortage)
    assert (found.summary, notes(found.subject)) == (f"Job 3 (x) waits: {shortage}", ())
    older = told_job(filled(), gpu="2", phase="Queued", reason="Resources", message="Need 2 GPUs, only 0 available")
    assert (older.summary, notes(older.subject)) == (found.summary, ())
    found = told_job(filled(), gpu="1", phase="Queued", reason="Priority", message="job 2 goes first")
    assert found.summary == "Job 3 (x) waits for the queue: fits now on 1 of 3 nodes, best on b with GPU 1"
    assert notes(found.subject) == ("the queue says Priority: job 2 goes first",)


@pytest.mark.parametrize(("reason", "names"), [("Fragmentation", True), ("Resources", False)])
def test_a_job_that_moves_may_help_is_told_the_command_that_tries_them(reason: str, names: bool) -> None:
    found = told_job(
        filled(), gpu="1", phase="Queued", reason=reason, message="scattered", queue=QueuePlace(position=1)
    )
    tries = "others that restart elsewhere may leave it room: dovetail move plan 3 tries that"
    assert (tries in notes(found.subject)) is names


def test_room_that_other_jobs_were_let_go_on_counts_as_taken() -> None:
    starting = make_job("starting", number=2, phase="Starting")
    picture = filled()
    picture = ClusterObjects(
        nodes=picture.nodes, gpunodes=picture.gpunodes, pods=picture.pods, jobs=[*picture.jobs, starting],
        settings=SETTINGS,
    )  # fmt: skip
    found = told_job(picture, phase="Queued")
    assert found.summary == "Job 3 (x) waits: Need 1 GPU, only 0 available"
    assert found.answer is not None
    assert "frees on b when job 18 ends" in [change.text for change in found.answer.changes]


def test_a_job_does_not_stand_in_its_own_way() -> None:
    starting = make_job("starting", number=2, phase="Starting")
    picture = make_picture(jobs=[starting])
    found = explain(subjects.of_job(starting, pods=(), settings=SETTINGS), picture)
    assert found.summary.startswith("Job 2 (starting) waits for kube-scheduler: fits now on 2 of 3 nodes")


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"phase": "Failed", "reason": "Failed", "message": "exit code 3"}, "has ended: Failed (Failed: exit code 3)"),
        ({"phase": "Queued", "gpu": "1.5"}, "its request cannot be read: gpu"),
        ({"phase": "Held", "reason": "Held", "message": "spec.suspend is set"}, "is held; without that: fits now on 2"),
    ],
)
def test_a_job_that_does_not_wait_for_room_says_so(job: dict[str, Any], sentence: str) -> None:
    assert told_job(make_picture(), **job).summary.startswith(f"Job 3 (x) {sentence}")


def test_a_job_without_gpus_is_not_ours_to_explain() -> None:
    spec = GPUJobSpec(resources=ResourceRequest(device="cpu"), template=template_of({"containers": [{"name": "main"}]}))
    job = GPUJob(metadata=ObjectMeta(name="x", namespace="default"), spec=spec)
    found = explain(subjects.of_job(job, pods=(), settings=SETTINGS), make_picture())
    assert found.summary == "Job x requests no GPU: it starts wherever enough CPU and memory is free"


def test_a_job_that_is_too_large_for_the_machine_says_so() -> None:
    says = "Need 100 CPUs: the largest request that fits this machine is 2"
    spec = GPUJobSpec(resources=ResourceRequest(device="cpu"), template=template_of({"containers": [{"name": "main"}]}))
    clause = MessageDetail(code="MachineCPUs", parameters={"cpus": "100", "most": "2"})
    status = GPUJobStatus(number=7, phase="Queued", reason="ExceedsCapacity", message=says, details=[clause])
    job = GPUJob(metadata=ObjectMeta(name="x", namespace="default"), spec=spec, status=status)
    found = explain(subjects.of_job(job, pods=(), settings=SETTINGS), make_picture())
    assert (found.summary, explanation_row(found).state) == (f"Job 7 (x) waits: {says}", "waiting")


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (raw_pod(gpu_milli=""), "asks Dovetail for no GPU: kube-scheduler alone places it"),
        (raw_pod(scheduler="other"), "names the scheduler other, not dovetail: Dovetail never sees it"),
        (raw_pod(gpu_milli="1500"), "its request cannot be read: "),
        ({**raw_pod(), "status": {"phase": "Succeeded"}}, "has ended: Succeeded"),
    ],
)
def test_a_pod_that_is_not_ours_to_place_says_why(pod: dict[str, Any], sentence: str) -> None:
    found = explain(subjects.of_pod(pod, settings=SETTINGS), make_picture())
    assert found.summary.startswith(f"Pod default/p {sentence}")
    assert found.answer is None
    assert explanation_row(found).nodes == []


def test_a_pod_of_kai_reads_how_to_ask_dovetail() -> None:
    pod = raw_pod(gpu_milli="", scheduler="kai-scheduler")
    pod["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    subject = subjects.of_pod(pod, settings=SETTINGS)
    assert subject.said.message == " asks Dovetail for no GPU: kai-scheduler alone places it"
    (cure,) = notes(subject)
    assert cure.startswith("It asks gpu-fraction: 0.5, which only nodes of another system have")
    assert subjects.of_pod(raw_pod(gpu_milli="", scheduler="kai-scheduler"), settings=SETTINGS).notes == ()


def test_scheduling_gates_are_told() -> None:
    subject = subjects.of_pod(raw_pod(schedulingGates=[{"name": "wait"}]), settings=SETTINGS)
    assert notes(subject) == ("kube-scheduler does not look at it while it has the gates wait",)


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("2x", {}, 'gpu "2x": unknown memory unit'),
        ("2", {"mode": "Fast"}, 'mode "Fast": allowed are Exclusive, Fractional, TimeShared'),
        ("0.5", {"mode": "exclusive"}, "0.5 is a share, and Exclusive takes whole GPUs"),
        ("2", {"policy": "Best"}, 'policy "Best": allowed are'),
        ("2", {"cpu": "much"}, 'cpu "much": write a Kubernetes quantity'),
        ("2", {"memory": "-1Gi"}, 'memory "-1Gi": must not be negative'),
        ("2", {"workload": "Play"}, 'workload "Play": allowed are Training, Inference'),
    ],
)
def test_a_request_that_cannot_be_is_told_in_one_sentence(text: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidQueryError) as told:
        ask(text, **options)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("text", "mode"), [("1", "Exclusive"), ("0.5", "Fractional"), ("16G,1", "Fractional")])
def test_a_request_has_the_mode_that_follows_from_it(text: str, mode: str) -> None:
    asked = ask(text).ask
    assert asked is not None
    assert asked.mode == mode


def test_options_of_a_request_reach_the_ask() -> None:
    asked = ask("1", mode="timeshared", policy="pack", cpu="500m", memory="2Gi", workload="training").ask
    assert asked is not None
    assert (asked.mode, asked.policy, asked.cpu_milli, asked.memory_mib) == ("TimeShared", "Pack", 500, 2048)
    assert asked.workload == "Training"


def limited_to(picture: ClusterObjects, **spec: Any) -> ClusterObjects:
    return replace(picture, quotas=[make_quota("vision", namespaces=["default"], **spec)])


def test_a_job_that_a_quota_keeps_back_is_told_so_though_there_is_room() -> None:
    job = make_job("x", number=3, gpu="2", phase="Queued", reason="Quota", message="an older one")
    runs = make_job("runs", number=2, start_time=ago(hours=1))
    picture = limited_to(make_picture(jobs=[job, runs]), limit={"gpus": 2})
    found = explain(subjects.of_job(job, pods=(), settings=SETTINGS), picture)
    sentence = "Namespace default may run 2 GPUs, 1 run, this job needs 2 (GPUQuota vision)"
    assert found.summary == f"Job 3 (x) waits: {sentence}"
    assert found.answer is not None
    assert (found.answer.fits, found.answer.reason) == (False, "Quota")
    assert [change.kind for change in found.answer.changes] == ["Limit"]


def test_a_pod_and_a_request_are_held_to_the_quotas_of_their_namespace() -> None:
    picture = limited_to(make_picture(), limit={"gpus": 1, "runningJobs": 0})
    found = explain(subjects.of_pod(raw_pod(), settings=SETTINGS), picture)
    assert "this pod would never fit, it needs 2 (GPUQuota vision)" in found.summary
    assert "may run 0 jobs" in explain(replace(ask("1"), namespace="default"), picture).summary
    assert explain(replace(ask("1"), namespace="other"), picture).summary.startswith("Fits now")


def test_what_the_queue_has_let_go_no_quota_keeps_back() -> None:
    job = make_job("x", number=3, phase="Starting")
    found = explain(
        subjects.of_job(job, pods=(), settings=SETTINGS), limited_to(make_picture(jobs=[job]), limit={"gpus": 0})
    )
    assert found.summary.startswith("Job 3 (x) waits for kube-scheduler: fits now")


@pytest.mark.parametrize(
    ("label", "kept"), [({names.LABEL_JOB: "x"}, False), ({names.LABEL_JOB: "y"}, True), ({}, True)]
)
def test_of_plain_pods_those_of_a_job_are_let_go(label: dict[str, str], kept: bool) -> None:
    picture = limited_to(make_picture(jobs=[make_job("x")]), limit={"gpus": 0})
    raw = raw_pod()
    raw["metadata"]["labels"] = label
    found = explain(subjects.of_pod(raw, settings=SETTINGS), picture)
    assert ("GPUQuota vision" in found.summary) is kept


def test_nodes_outside_of_a_pool_are_no_answer() -> None:
    found = explain(replace(ask("1"), namespace="default"), limited_to(make_picture(), pools=["big"]))
    assert found.answer is not None
    assert {(node.reason, node.message) for node in found.answer.nodes} >= {("NodeAffinity", "not in pool big")}
    assert found.summary.endswith("(in pool big)")
    assert "drop the required node affinity" not in helps(found)
    job = make_job("x", number=3, phase="Queued")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, pool="far"))
    told = explain(
        subjects.of_job(job, pods=(), settings=SETTINGS), limited_to(make_picture(jobs=[job]), pools=["big"])
    )
    assert "Asks for pool far, GPUQuota vision allows big alone" in told.summary


def test_gpus_that_are_kept_for_others_are_no_room() -> None:
    window = {"name": "exam", "startTime": ago(hours=-2), "endTime": ago(hours=-6), "gpus": 5}
    picture = replace(
        make_picture(), quotas=[make_quota("course", namespaces=["course"], advanceReservations=[window])]
    )
    found = explain(replace(ask("1"), namespace="default"), picture)
    assert "5 GPUs are kept by GPUQuota course until" in found.summary
    assert "time limit" in helps(found)


def test_who_may_not_see_quotas_is_told_so() -> None:
    found = explain(ask("1"), replace(make_picture(), quotas=None))
    assert any("limits are not counted" in note for note in notes(found.subject))


def test_what_a_score_rests_on_is_said_beside_it() -> None:
    pods = [
        make_pod(f"p{at}", node="a", held=((at, 1000, 32768),), asks={names.GPU_MILLI: "1000"}, request="1")
        for at in range(2)
    ]
    found = explain(ask("1"), make_picture(pods=pods))
    said = "fragmentation is computed by ph on the mix of the 2 pods that ask for GPUs here"
    assert said in found.basis.message
    assert explanation_row(found).basis == found.basis.message


def test_of_a_job_it_is_said_that_the_queue_plans_by_its_own_mix() -> None:
    waiting = make_job("w", phase="Queued")
    found = explain(subjects.of_job(waiting, pods=(), settings=SETTINGS), make_picture(jobs=[waiting]))
    assert found.basis.message.startswith("nodes are compared by ph on the mix of the 1 requests of jobs and pods here")
    assert "as the queue plans, and devices by ph on the mix of the 0 pods" in found.basis.message


def test_the_queue_s_mix_has_the_pods_of_no_job_too() -> None:
    waiting = make_job("w", phase="Queued")
    pods = [
        make_pod(
            name,
            node=node,
            held=((at, 1000, 32768),),
            asks={names.GPU_MILLI: "1000"},
            request="1",
            labels={names.LABEL_JOB: job} if job else {},
        )
        for name, job, node, at in [("plain", "", "a", 0), ("other", "", "b", 0), ("w-0", "w", "a", 1)]
    ]
    found = explain(subjects.of_job(waiting, pods=(), settings=SETTINGS), make_picture(jobs=[waiting], pods=pods))
    assert found.basis.message.startswith("nodes are compared by ph on the mix of the 3 requests of jobs and pods here")


def test_of_stored_mixes_it_is_said_that_they_are_those_of_the_queue_and_the_extender() -> None:
    waiting, usual = make_job("w", phase="Queued"), WeighedShape(1000, 1024, 1, 500, (), 1.0)
    record = MixRecord(policy="ph", arrivals=1, in_use=(usual,), counted=(usual,))
    picture = replace(make_picture(jobs=[waiting]), job_mix=record, pod_mix=record)
    assert explain(subjects.of_job(waiting, pods=(), settings=SETTINGS), picture).basis.message == (
        "nodes are compared by ph on what was submitted so far, as the queue plans, "
        "and devices by ph on the mix of the pods that the extender has seen"
    )


def test_without_highs_it_is_said_that_the_extender_may_choose_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.fragmentation.cutting_stock.available", lambda: False)
    assert "needs HiGHS" in explain(ask("1"), make_picture()).basis.message


def test_where_nothing_fits_there_is_nothing_to_compare() -> None:
    assert explain(ask("8"), make_picture()).basis.message == ""
