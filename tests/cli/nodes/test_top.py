"""dovetail top: what one look shows, for people and for programs."""

from collections.abc import Sequence

import msgspec
import pytest

from dovetail import names
from dovetail.answers.inventory import take
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.kube.errors import Forbidden
from dovetail_cli.app import run
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.nodes import inventory, top, top_screen
from dovetail_cli.nodes.top_screen import Screen
from dovetail_cli.ui import output
from tests.cli.builders import NOW, make_gpunode, make_job, make_pod
from tests.core.kube.api import Answer, Api, refusal


def with_user(job: GPUJob, user: str) -> GPUJob:
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, annotations={names.USER: user}))


JOBS = [
    with_user(make_job("train", number=5, phase="Running"), "ada"),
    make_job("wait", number=6, phase="Queued"),
    make_job("old", number=4, phase="Failed"),
]
PODS = [
    make_pod("train-0", held=((0, 500, 1024),), labels={names.LABEL_JOB_NUMBER: "5"}),
    make_pod("notebook", held=((1, 1000, 1024),)),
]


def screen(*gpunodes: GPUNode, pods: Sequence[Pod] = (), jobs: Sequence[GPUJob] = ()) -> Screen:
    found = take(gpunodes, pods=pods, scheduler="Running", namespace="default")
    return Screen(now=NOW, inventory=found, jobs=jobs, called=top_screen.called(jobs))


def test_each_device_is_shown_with_its_load_and_who_holds_it() -> None:
    node = make_gpunode("a", utilization=0.354, used_mib=1024, temperature_celsius=45)
    assert screen(node, pods=PODS, jobs=JOBS).lines() == [
        (
            "12:00:00 UTC  1 nodes, 2 GPUs: 2 held, 0 available; 35% busy, 2.0/64.0 GiB in use; "
            "tenants: 2 unspecified; jobs: 1 run, 1 wait"
        ),
        "",
        "NODE  GPU  MODEL  UTIL             MEMORY          TEMP  POWER  TENANTS        HELD BY",
        "a     0    V100   ████······  35%  1024/32768 MiB  45 C  -      1 unspecified  5 train (ada) [0.5]",
        "a     1    V100   ████······  35%  1024/32768 MiB  45 C  -      1 unspecified  pod default/notebook",
    ]


def test_a_job_that_may_not_be_seen_keeps_its_number_and_namespace() -> None:
    assert screen(make_gpunode("a"), pods=PODS).lines()[3].endswith("  5 (default) [0.5]")


def test_a_device_that_is_out_of_use_says_so_beside_who_holds_it() -> None:
    sick = make_gpunode("a", health="Unhealthy", health_reason="XID 79")
    lines = screen(sick, pods=PODS[:1], jobs=JOBS).lines()
    assert lines[3].endswith("5 train (ada) [0.5]; GPU 0 on node a is unhealthy: XID 79")
    assert lines[4].endswith("  Unavailable: GPU 1 on node a is unhealthy: XID 79")


def test_where_the_devices_have_no_room_there_is_a_line_for_each_node_the_busiest_first() -> None:
    nodes = [make_gpunode("a"), make_gpunode("b", utilization=0.9, used_mib=16384), make_gpunode("c", utilization=0.5)]
    lines = screen(*nodes, pods=PODS, jobs=JOBS).lines(height=6, width=70)
    assert [line.split()[0] for line in lines[2:5]] == ["NODE", "b", "c"]
    assert lines[3].split()[1:3] == ["2", "2"]
    assert lines[-1] == "… and 1 nodes more that do less"
    assert max(map(len, lines)) <= 70


def test_mig_instances_are_counted_apart_from_gpus() -> None:
    nodes = [make_gpunode("a", mig_profile="3g.40gb"), make_gpunode("b")]
    found = screen(*nodes, pods=PODS[:1], jobs=JOBS)
    assert "2 nodes, 2 GPUs: 0 held, 2 available; 0% busy, 2 MIG instances: 1 held, 1 available; " in found.lines()[0]
    assert found.lines(height=6)[3:5][0].split()[1:7] == ["0", "+", "2", "MIG", "0", "+"]
    only = screen(make_gpunode("a", mig_profile="3g.40gb"))
    assert only.lines()[0].startswith("12:00:00 UTC  1 nodes, 0 GPUs: 0 held")


def test_no_gpu_at_all_is_said() -> None:
    assert screen().lines()[0] == "12:00:00 UTC  No node reports a GPU."
    assert screen().record()["utilization"] is None


def test_programs_get_sums_and_devices_as_numbers() -> None:
    found = screen(make_gpunode("a", utilization=0.25, used_mib=100), pods=PODS, jobs=JOBS)
    told = found.record()
    assert (told["heldGpus"], told["availableGpus"], told["totalGpus"], told["utilization"]) == (2, 0, 2, 0.25)
    assert (told["jobsRunning"], told["jobsWaiting"], told["memoryUsedMiB"]) == (1, 1, 200)
    assert told["nodes"][0]["devices"][0]["tenants"][0]["job"] == 5
    table = output.as_csv(found.rows(), columns=top_screen.CSV_COLUMNS).splitlines()
    assert table[1].endswith(",5 train (ada) [0.5]")


def items(*given: object) -> Answer:
    return Answer(body={"metadata": {}, "items": values_of(list(given))})


def answer_what_judges_nodes(api: Api) -> None:
    """A user who may not list nodes, in a cluster without settings and without DRA."""
    api.answer("GET /api/v1/nodes", refusal(403, message="no nodes"))
    api.answer("GET /apis/scheduling.k8s.io/v1/priorityclasses/dovetail-gpujob", refusal(404))
    api.answer("GET /api/v1/namespaces/dovetail-system/configmaps/dovetail-config", refusal(403))
    for version in ("v1", "v1beta2", "v1beta1"):
        api.answer(f"GET /apis/resource.k8s.io/{version}/resourceslices", refusal(404))


async def test_who_may_not_list_all_jobs_sees_those_of_the_namespace(api: Api, cluster: Cluster) -> None:
    none = Answer(body={"metadata": {}, "items": []})
    refused = Answer(status=403, body={"code": 403, "reason": "Forbidden", "message": "no"})
    missing = Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no"})
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", none)
    api.answer("GET /api/v1/pods", none)
    api.answer("GET /apis/dovetail.dev/v1beta1/gpujobs", refused)
    answer_what_judges_nodes(api)
    own = Answer(body={"metadata": {}, "items": [values_of(JOBS[0])]})
    api.answer("GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs", own)
    system = "namespaces/dovetail-system"
    api.answer(f"GET /apis/coordination.k8s.io/v1/{system}/leases/dovetail-scheduler", missing)
    api.answer(f"GET /apis/apps/v1/{system}/deployments/dovetail-scheduler", missing)
    assert [job.metadata.name for job in (await top.read_screen(cluster)).jobs] == ["train"]


def of_one_namespace(api: Api, *, gpunodes: Answer) -> None:
    none, system = Answer(body={"metadata": {}, "items": []}), "namespaces/dovetail-system"
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", gpunodes)
    api.answer("GET /api/v1/pods", refusal(403, message="no pods"))
    answer_what_judges_nodes(api)
    api.answer("GET /api/v1/namespaces/default/pods", none)
    api.answer(f"GET /apis/coordination.k8s.io/v1/{system}/leases/dovetail-scheduler", refusal(404))
    api.answer(f"GET /apis/apps/v1/{system}/deployments/dovetail-scheduler", refusal(404))


async def test_who_sees_the_devices_is_told_that_the_pods_of_others_are_not_shown(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    of_one_namespace(api, gpunodes=Answer(body={"metadata": {}, "items": []}))
    found = await inventory.read_inventory(cluster)
    # Not by the look itself, which a screen takes again and again.
    assert capsys.readouterr().err == ""
    inventory.print_missing(found)
    said = capsys.readouterr().err
    assert "you may not list the pods of other namespaces" in said
    assert "you may not list nodes: whether a node is ready, cordoned or served by another driver is not shown" in said


async def test_the_driver_that_hands_out_a_nodes_devices_is_named(api: Api, cluster: Cluster) -> None:
    system, slices = "namespaces/dovetail-system", "GET /apis/resource.k8s.io/v1/resourceslices"
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", items(*map(make_gpunode, "ab")))
    api.answer("GET /api/v1/pods", items())
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    managed = {names.LABEL_MANAGED: "true"}
    nodes = [{"metadata": {"name": name, "labels": managed}, "status": ready} for name in "ab"]
    api.answer("GET /api/v1/nodes", items(*nodes))
    api.answer(f"GET /api/v1/{system}/configmaps/dovetail-config", refusal(404))
    api.answer(f"GET /apis/coordination.k8s.io/v1/{system}/leases/dovetail-scheduler", refusal(404))
    api.answer(f"GET /apis/apps/v1/{system}/deployments/dovetail-scheduler", refusal(404))
    own = {"metadata": {"name": "a-gpus"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "a"}}
    api.answer(slices, items(own), *[items()] * 3)
    found = await inventory.read_inventory(cluster)
    assert [seen.query["fieldSelector"] for seen in api.of(slices)] == [
        f"spec.driver={driver}" for driver in names.GPU_DRIVERS
    ]
    assert "both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs" in found.nodes["a"].reason
    assert not found.nodes["b"].reason


async def test_who_may_not_see_the_devices_is_told_that_alone(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    of_one_namespace(api, gpunodes=refusal(403, message="no gpunodes"))
    with pytest.raises(Forbidden, match="no gpunodes"):
        await inventory.read_inventory(cluster)
    assert capsys.readouterr().err == ""


def test_an_interval_that_is_too_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("top", arguments=["--interval", "0"], prog="dovetail top") == 2
    assert capsys.readouterr().err == "dovetail: --interval 0: at least 0.1 seconds\n"


def test_jobs_of_one_number_are_called_by_their_own_names_in_each_namespace() -> None:
    jobs = [make_job(name, namespace=name, number=5) for name in ("red", "blue")]
    jobs.append(make_job("waits", namespace="red"))
    assert top_screen.called(jobs) == {("red", 5): "5 red", ("blue", 5): "5 blue"}
