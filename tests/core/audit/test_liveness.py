"""What loses capacity or time, each scenario with its twin that is as it should be."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.audit.allocations import Rules, audit
from dovetail.audit.quota_use import DatedQuota
from tests.cli.builders import NOW, ago, make_gpunode, make_pod

LONG = ago(minutes=30)
OLD = Rules(older_than_seconds=60)
KINDS = {"AboveQuota", "CapacityWithheld", "WaitsThoughItFits", "PreemptionUnused"}


def node(name: str = "a", *, labels: dict[str, str] | None = None, ready: str = ago(days=1), **spec: Any) -> Node:
    """A managed node that is ready, with 16 CPUs."""
    said = {
        "metadata": {"name": name, "labels": {names.LABEL_MANAGED: "true", **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}],
        },
    }
    return msgspec.convert(said, Node)


def report(name: str = "a", *, spec: dict[str, Any] | None = None, **device: Any) -> GPUNode:
    """Two V100."""
    found = make_gpunode(name, **device)
    return msgspec.structs.replace(found, spec=msgspec.convert(spec or {}, type(found.spec)))


def job(name: str = "train", *, created: str = LONG, **said: Any) -> GPUJob:
    """A job as on the API server; it waits for room unless `status` says otherwise."""
    status = {"phase": "Queued", "reason": "Resources", "message": "Need 1 GPU, only 0 available"}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": created}
    template = {"spec": {"containers": [{"name": "main"}], **said.pop("template", {})}}
    whole = {
        "metadata": {**meta, **said.pop("meta", {})},
        "status": {**status, **said.pop("status", {})},
        "spec": {"gpu": 1, "template": template, **said},
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=GPUJob)


def planned(*, workers: int = 1, admitted: str = LONG, released: Sequence[int] = (), **status: Any) -> dict[str, Any]:
    nodes = [{"name": "a", "workers": workers}]
    placement = {"generation": 1, "nodes": nodes, "worker": {"request": "1"}, "released": list(released)}
    return {"phase": "Running", "reason": "", "placement": placement, "admittedTime": admitted, **status}


def reserved(on: str) -> dict[str, Any]:
    room = {"time": LONG, "nodes": [{"name": on, "workers": 1}], "kept": [{"name": on, "keeps": ["1"]}]}
    return {"queue": {"position": 1, "reserved": room}}


def holding(name: str, *, of: str = "train", index: int = 0, **changes: Any) -> Pod:
    labels = {names.LABEL_JOB: of} if of else {}
    held = ((index, 1000, 32768),)
    return make_pod(name, held=held, asks={names.GPU_MILLI: "1000"}, labels=labels, **changes)


def quota(
    name: str = "q", *, written: str = ago(days=1), status: dict[str, Any] | None = None, **spec: Any
) -> DatedQuota:
    meta = {
        "name": name,
        "creationTimestamp": ago(days=2),
        "managedFields": [{"time": written}, {"time": ago(seconds=1), "subresource": "status"}],
    }
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, DatedQuota)


def found(
    *jobs: GPUJob,
    pods: tuple[Pod, ...] = (),
    nodes: tuple[Node, ...] = (node(),),
    reports: tuple[GPUNode, ...] = (report(),),
    quotas: tuple[DatedQuota, ...] | None = (),
) -> list[tuple[str, str]]:
    looked = audit(nodes=nodes, gpunodes=reports, pods=pods, jobs=jobs, rules=OLD, quotas=quotas, now=NOW)
    return [(each.kind, each.subject) for each in looked.items if each.kind in KINDS]


WAITS = [("WaitsThoughItFits", "default/train")]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param({"jobs": [job()]}, id="a free GPU"),
        pytest.param({"jobs": [job(gpu=2)]}, id="two GPUs of a node"),
        pytest.param({"jobs": [job(workers=2)]}, id="two workers"),
        pytest.param({"jobs": [job(workers=3, minWorkers=2)]}, id="the fewest workers of an elastic job"),
        pytest.param({"jobs": [job(gpu="1(V100)")]}, id="the model"),
        pytest.param({"jobs": [job(status={"reason": "Reserved"})]}, id="reserved for no one"),
        pytest.param({"jobs": [job(status=reserved("a"))]}, id="room that is kept for this very job"),
        pytest.param({"jobs": [job()], "pods": (holding("p", of=""),)}, id="one GPU held, one free"),
        pytest.param(
            {"jobs": [job(template={"nodeSelector": {"zone": "x"}})], "nodes": (node(labels={"zone": "x"}),)},
            id="the node that it selects",
        ),
        pytest.param(
            {"jobs": [job()], "nodes": (node(labels={names.LABEL_POOL: "p"}),), "quotas": (quota(pools=["p"]),)},
            id="the pool that its quota allows",
        ),
        pytest.param(
            {"jobs": [job(), job("other", status=planned(), gpu=1)], "pods": (holding("p", of="other"),)},
            id="beside a job that has its pods",
        ),
    ],
)  # fmt: skip
def test_a_job_that_fits_and_waits_long_is_found(scene: dict[str, Any]) -> None:
    assert found(*scene.pop("jobs"), **scene) == WAITS


JUST_NOW = {
    "type": "Admitted",
    "status": "False",
    "reason": "Resources",
    "message": "",
    "lastTransitionTime": ago(seconds=5),
}


def nominated() -> Pod:
    pod = make_pod("n", node="")
    return msgspec.structs.replace(pod, status=msgspec.convert({"nominatedNodeName": "a"}, type(pod.status)))


def container(**said: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **said}]}


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param({"jobs": [job(created=ago(seconds=59))]}, id="not for long"),
        pytest.param({"jobs": [job(status={"conditions": [JUST_NOW]})]}, id="it waits again since a moment"),
        pytest.param({"jobs": [job(beginTime=ago(seconds=5))]}, id="its time has just come"),
        *(
            pytest.param({"jobs": [job(status={"reason": reason})]}, id=reason)
            for reason in ("Held", "BeginTime", "Dependency", "Quota", "Provisioning", "ExternallyManaged", "Invalid")
        ),
        pytest.param({"jobs": [job(suspend=True)]}, id="on hold"),
        pytest.param({"jobs": [job(cancel=True)]}, id="cancelled"),
        pytest.param({"jobs": [job(gpu=3)]}, id="more than a node has"),
        pytest.param({"jobs": [job(gpu=2)], "pods": (holding("p", of=""),)}, id="a GPU is held"),
        pytest.param({"jobs": [job(gpu="1(A100)")]}, id="another model"),
        pytest.param({"jobs": [job(gpu="0.5")]}, id="a share"),
        pytest.param({"jobs": [job(template=container(resources={"requests": {"cpu": "17"}}))]}, id="CPU"),
        pytest.param({"jobs": [job(template=container(resources={"limits": {"memory": "65Gi"}}))]}, id="memory"),
        pytest.param({"jobs": [job(template=container(resources={"limits": {"x/y": 1}}))]}, id="another resource"),
        pytest.param({"jobs": [job(template=container(ports=[{"hostPort": 80}]))]}, id="a port of the node"),
        pytest.param({"jobs": [job(template={"affinity": {"podAffinity": {}}})]}, id="affinity"),
        pytest.param({"jobs": [job(template={"volumes": [{"persistentVolumeClaim": {}}]})]}, id="a volume"),
        pytest.param({"jobs": [job(template={"nodeSelector": {"zone": "x"}})]}, id="another node"),
        pytest.param({"jobs": [job(pool="p")]}, id="another pool"),
        pytest.param({"jobs": [job()], "quotas": (quota(pools=["p"]),)}, id="its quota allows another pool"),
        pytest.param({"jobs": [job()], "quotas": None}, id="quotas cannot be read"),
        pytest.param({"jobs": [job(topology={"required": "rack"})]}, id="one rack"),
        pytest.param({"jobs": [job()], "nodes": (node(unschedulable=True),)}, id="a cordoned node"),
        pytest.param(
            {"jobs": [job()], "nodes": (node(taints=[{"key": "x", "effect": "NoSchedule"}]),)}, id="a taint"
        ),
        pytest.param({"jobs": [job()], "nodes": ()}, id="no node"),
        pytest.param(
            {"jobs": [job()], "reports": (report(spec={"cordoned": ["GPU-a-0", "GPU-a-1"]}),)}, id="cordoned GPUs"
        ),
        pytest.param({"jobs": [job()], "reports": (report(health="Unhealthy"),)}, id="unhealthy GPUs"),
        pytest.param({"jobs": [job()], "reports": (report(taint="Strangers"),)}, id="tainted GPUs"),
        pytest.param({"jobs": [job()], "reports": (report(foreign_mib=100),)}, id="memory of others"),
        pytest.param({"jobs": [job(), job("first", gpu=2, workers=2, status=reserved("a"))]}, id="kept for another"),
        pytest.param(
            {"jobs": [job()], "quotas": (quota(status={"kept": [{"name": "a", "keeps": ["1"]}]}, advanceReservations=[
                {"name": "exam", "gpus": 2, "startTime": ago(hours=1), "endTime": ago(hours=-1)}]),)},
            id="kept by an advance reservation",
        ),
        pytest.param(
            {"jobs": [job(), job("other", status=planned(admitted=ago(seconds=5)))]}, id="planned for a job that starts"
        ),
        pytest.param({"jobs": [job()], "pods": (nominated(),)}, id="nominated for a pod"),
    ],
)  # fmt: skip
def test_a_job_that_has_a_reason_to_wait_is_not_found(scene: dict[str, Any]) -> None:
    assert found(*scene.pop("jobs"), **scene) == []


@pytest.mark.parametrize(
    ("record", "pods", "withheld"),
    [
        pytest.param(job(status=planned()), (), True, id="a plan without a pod"),
        pytest.param(job(status=planned(admitted=ago(seconds=30))), (), False, id="a plan of a moment ago"),
        pytest.param(job(status=planned()), (holding("p"),), False, id="its pod"),
        pytest.param(job(workers=2, status=planned(workers=2)), (holding("p"),), True, id="one of two pods"),
        pytest.param(
            job(workers=2, status=planned(workers=2)), (holding("p"), holding("q", index=1, phase="Succeeded")), False,
            id="a worker that has succeeded",
        ),
        pytest.param(
            job(workers=2, status=planned(workers=2, workersSucceeded=1)), (holding("p"),), False,
            id="a worker that has succeeded and gone",
        ),
        pytest.param(job(status=planned()), (holding("p", phase="Failed"),), True, id="a pod that has failed"),
        pytest.param(
            job(workers=2, managedBy=names.GUESTS_MANAGER, status=planned(workers=2)), (holding("p"),), False,
            id="a guest's controller makes its pods in its own time",
        ),
        pytest.param(
            job(workers=2, managedBy=names.GUESTS_MANAGER, status=planned(workers=2)), (), True,
            id="a guest that was scaled to nothing",
        ),
        pytest.param(
            job(workers=2, managedBy=names.GUESTS_MANAGER, status=planned(workers=2, released=[0, 1])), (), False,
            id="a guest that was scaled to nothing, and has given everything back",
        ),
        pytest.param(job(status=planned(phase="Succeeded")), (), False, id="a job that has ended"),
    ],
)  # fmt: skip
def test_a_plan_that_keeps_room_for_no_pod(record: GPUJob, pods: tuple[Pod, ...], withheld: bool) -> None:
    assert found(record, pods=pods) == ([("CapacityWithheld", "default/train")] if withheld else [])


@pytest.mark.parametrize(("since", "subjects"), [(ago(minutes=30), ["a"]), (ago(minutes=5), [])])
def test_a_gpu_that_is_partitioned_for_too_long(since: str, subjects: list[str]) -> None:
    spec = {"reshape": {"GPU-a-0": {"profiles": ["1g.10gb"], "requestedTime": since}}}
    assert [subject for _, subject in found(reports=(report(spec=spec),))] == subjects


@pytest.mark.parametrize(("end", "subjects"), [(ago(minutes=5), ["q"]), (ago(seconds=30), []), (ago(hours=-1), [])])
def test_what_an_advance_reservation_keeps_after_its_end(end: str, subjects: list[str]) -> None:
    window = {"name": "exam", "gpus": 1, "startTime": ago(hours=2), "endTime": end}
    late = quota(status={"kept": [{"name": "a", "keeps": ["1"]}]}, advanceReservations=[window])
    assert [subject for _, subject in found(quotas=(late,))] == subjects


def ended(*, at: str = ago(minutes=10), by: str = "uid-other") -> GPUJob:
    preemption = {"count": 1, "lastTime": at, "by": by, "message": ""}
    return job("victim", status={"phase": "Preempted", "reason": "", "preemption": preemption})


@pytest.mark.parametrize(
    ("scene", "is_found"),
    [
        pytest.param({"jobs": [ended(), job("other", gpu=2)]}, True, id="it waits on"),
        pytest.param({"jobs": [ended(at=ago(seconds=30)), job("other", gpu=2)]}, False, id="its pods may still leave"),
        pytest.param({"jobs": [ended(by="Drain")]}, False, id="a drain"),
        pytest.param({"jobs": [ended()]}, False, id="that job is gone"),
        pytest.param({"jobs": [ended(), job("other", status={"reason": "Held"})]}, False, id="that job is held"),
        pytest.param({"jobs": [ended(), job("other", status={"phase": "Running"})]}, False, id="that job runs"),
        pytest.param(
            {"jobs": [ended(), job("other", status={"admittedTime": ago(minutes=9)})]}, False, id="it has run since"
        ),
        pytest.param(
            {"jobs": [ended(), job("other", gpu=2)], "nodes": (node(ready=ago(minutes=5)),)}, False,
            id="a node has failed since",
        ),
        pytest.param(
            {"jobs": [ended(), job("other", gpu=2)], "reports": (report(health="Unhealthy"),)}, False,
            id="a GPU is broken",
        ),
    ],
)  # fmt: skip
def test_a_job_that_was_ended_for_one_that_does_not_start(scene: dict[str, Any], is_found: bool) -> None:
    kinds = [each for each in found(*scene.pop("jobs"), **scene) if each[0] == "PreemptionUnused"]
    assert kinds == ([("PreemptionUnused", "default/victim")] if is_found else [])


def running(name: str, *, user: str = "ada", project: str = "", admitted: str = LONG, **said: Any) -> GPUJob:
    meta = {"annotations": {names.USER: user}, "labels": {names.LABEL_PROJECT: project} if project else {}}
    return job(name, meta=meta, status=planned(admitted=admitted), **said)


BOTH = (holding("p", of="x"), holding("q", of="y", index=1))


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        pytest.param({"limit": {"gpus": 1}, "namespaces": ["default"]}, (), id="namespace"),
        pytest.param({"limit": {"gpus": 1}}, (), id="limit"),
        pytest.param({"limit": {"gpus": 1}, "users": ["ada"]}, (), id="users"),
        pytest.param({"limit": {"gpus": 1}, "per": "User"}, (), id="each user"),
        pytest.param({"limit": {"gpus": 1}, "per": "Namespace"}, (), id="each namespace"),
        pytest.param({"limit": {"gpus": 1}, "projects": ["vision"]}, (), id="projects"),
        pytest.param({"limit": {"memory": "48Gi"}}, (), id="memory"),
        pytest.param({"limit": {"models": {"V100": 1}}}, (), id="model"),
        pytest.param({"limit": {"runningJobs": 1}}, (), id="jobs"),
        pytest.param({"limit": {"gpus": 1}}, (quota("child", namespaces=["default"], parent="q"),), id="a tree"),
    ],
)
def test_use_above_a_quota_of_any_kind_is_found(spec: dict[str, Any], more: tuple[DatedQuota, ...]) -> None:
    jobs = [running(name, project="vision", gpu="1(V100)") for name in "xy"]
    assert found(*jobs, pods=BOTH, quotas=(quota(**spec), *more)) == [("AboveQuota", "q")]


@pytest.mark.parametrize(
    ("spec", "jobs"),
    [
        pytest.param({"limit": {"gpus": 2}}, [running("x"), running("y")], id="as much as it allows"),
        pytest.param({"limit": {"gpus": 1}, "namespaces": ["other"]}, [running("x"), running("y")], id="elsewhere"),
        pytest.param({"limit": {"gpus": 1}, "users": ["bert"]}, [running("x"), running("y")], id="another user"),
        pytest.param({"limit": {"gpus": 1}, "per": "User"}, [running("x"), running("y", user="bert")], id="each user"),
        pytest.param({"limit": {"gpus": 1}, "projects": ["vision"]}, [running("x"), running("y")], id="a project"),
        pytest.param({"limit": {"models": {"V100": 1}}}, [running("x"), running("y")], id="the model is not named"),
        pytest.param(
            {"limit": {"gpus": 1}, "written": ago(minutes=1)},
            [running("x"), running("y")],
            id="a limit that was lowered later",
        ),
    ],
)  # fmt: skip
def test_use_within_a_quota_is_clean(spec: dict[str, Any], jobs: list[GPUJob]) -> None:
    assert found(*jobs, pods=BOTH, quotas=(quota(**spec),)) == []


def test_a_job_that_was_admitted_under_a_lowered_limit_is_found() -> None:
    jobs = [running("x", admitted=ago(hours=2)), running("y", admitted=ago(minutes=10))]
    assert found(*jobs, pods=BOTH, quotas=(quota(limit={"gpus": 1}, written=ago(minutes=30)),)) == [("AboveQuota", "q")]


def test_pods_outside_jobs_count_towards_their_namespace_and_towards_no_user() -> None:
    condition = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG}]
    pods = tuple(
        msgspec.structs.replace(
            pod, status=msgspec.convert({"phase": "Running", "conditions": condition}, type(pod.status))
        )
        for pod in (holding("p", of=""), holding("q", of="", index=1))
    )
    assert found(pods=pods, quotas=(quota(limit={"gpus": 1}),)) == [("AboveQuota", "q")]
    assert found(pods=pods, quotas=(quota(limit={"gpus": 1}, per="User"),)) == []


def test_without_a_time_nothing_is_judged_by_its_age() -> None:
    looked = audit(nodes=[node()], gpunodes=[report()], pods=[], jobs=[job(status=planned())], rules=OLD, quotas=())
    assert looked.items == []


def test_the_bound_is_the_readers() -> None:
    young = job(created=ago(seconds=30))
    rules = Rules(older_than_seconds=timedelta(seconds=20).total_seconds())
    looked = audit(nodes=[node()], gpunodes=[report()], pods=[], jobs=[young], rules=rules, quotas=(), now=NOW)
    assert [each.kind for each in looked.items] == ["WaitsThoughItFits"]
