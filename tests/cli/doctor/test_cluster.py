"""How the doctor reads a cluster and prints its findings."""

import json
from typing import Any

import pytest

from dovetail.api.builtin import Node
from dovetail.api.resources import NODES
from dovetail.query.doctor import diagnosis
from dovetail.query.doctor.findings import Finding, Unseen
from dovetail.query.doctor.neighbours import NEIGHBOURS
from dovetail.query.doctor.picture import LEASED, RIGHTS
from dovetail_cli import app
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.doctor import findings
from dovetail_cli.doctor.pods import read_pods
from dovetail_cli.doctor.reads import job_namespaces, listed, read_all, seen
from tests.core.kube.api import Answer, Api
from tests.core.query.doctor.test_diagnosis import GONE, picture, wrong


def listing(*items: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": list(items)})


async def test_what_pods_ask_and_where_jobs_are_is_read_of_all_namespaces(api: Api, cluster: Cluster) -> None:
    limits = [{"nvidia.com/gpu": "1", "cpu": "1"}, {"amd.com/gpu": "0"}]
    containers = [{"name": f"c{at}", "resources": {"limits": each}} for at, each in enumerate(limits)]
    api.answer("GET /api/v1/pods", listing({"metadata": {"namespace": "a"}, "spec": {"initContainers": containers}}))
    api.answer("GET /apis/dovetail.dev/v1beta1/gpujobs", listing({"metadata": {"namespace": "b"}, "spec": {"gpu": 1}}))
    assert (await read_pods(cluster)).resources_asked == {"a": {"nvidia.com/gpu"}}
    assert await job_namespaces(cluster) == {"b"}


async def test_what_the_api_server_says_at_length_is_said_in_short(api: Api, cluster: Cluster) -> None:
    long = 'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope'
    api.answer("GET /api/v1/nodes", Answer(status=403, body={"code": 403, "reason": "Forbidden", "message": long}))
    assert await seen(listed(cluster, resource=NODES, type_=Node)) == Unseen(
        why="you may not list nodes", missing=False
    )


@pytest.mark.parametrize(("levels", "code"), [(["ok", "warning", "unknown"], 0), (["ok", "error"], 1), ([], 0)])
def test_only_errors_make_the_exit_code_1(levels: list[Any], code: int) -> None:
    assert findings.exit_code([Finding(level=level, check="x", message="y") for level in levels]) == code


def test_the_table_says_how_to_mend_what_is_wrong_and_counts() -> None:
    text = findings.render(wrong(picture(webhook=GONE, runtime_class=GONE)), form="table")
    assert "WARN   webhook" in text
    assert "to fix it: helm upgrade" in text
    assert text.endswith("0 in order, 1 warning, 1 error, 0 not looked at")


def test_many_nodes_in_order_are_one_line_and_whole_in_json() -> None:
    many = [Finding(level="ok", check="node", subject=f"n{at}", message="2 GPUs") for at in range(50)]
    assert "n7" not in (table := findings.render(many, form="table"))
    assert "50 in order" in table
    assert len(json.loads(findings.render(many, form="json"))) == 50


async def test_a_user_without_any_rights_is_told_what_could_not_be_looked_at(api: Api, cluster: Cluster) -> None:
    no = Answer(status=403, body={"code": 403, "reason": "Forbidden", "message": "you may not"})
    dovetail, release = "/apis/dovetail.dev/v1beta1", "namespaces/dovetail-system"
    admission = "/apis/admissionregistration.k8s.io/v1"
    for path in (
        f"{dovetail}/namespaces/default/gpujobs", f"{dovetail}/gpuquotas", "/api/v1/nodes",
        f"{dovetail}/gpunodetenants",
        f"{dovetail}/namespaces/default/historyqueries",
        *(f"/apis/coordination.k8s.io/v1/{release}/leases/dovetail-{name}" for name in LEASED),
        f"/api/v1/{release}/configmaps/dovetail-config", "/apis/node.k8s.io/v1/runtimeclasses/nvidia",
        "/apis/scheduling.k8s.io/v1/priorityclasses/dovetail-gpujob",
        f"{admission}/mutatingwebhookconfigurations/dovetail", f"{admission}/validatingadmissionpolicies",
        f"{admission}/validatingadmissionpolicybindings", f"/apis/apps/v1/{release}/deployments/dovetail-webhook",
        "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets", "/apis/nvidia.com/v1/clusterpolicies",
        "/apis/resource.k8s.io/v1/resourceslices",
        "/api/v1/namespaces", "/api/v1/pods", f"{dovetail}/gpujobs",
        "/apis/storage.k8s.io/v1/storageclasses", "/apis/monitoring.coreos.com/v1/podmonitors",
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NEIGHBOURS[0].crd}",
    ):  # fmt: skip
        api.answer(f"GET {path}", no)
    api.answer(f"GET {dovetail}/gpunodes", no, no)
    api.answer("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", *[no] * len(RIGHTS))
    found = diagnosis.judge(await read_all(cluster))
    assert {finding.level for finding in found} == {"unknown"}
    assert findings.exit_code(found) == 0


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["doctor", "--host", "--root", "/nowhere"]) == 2
    assert capsys.readouterr().err == 'dovetail: --root "/nowhere": there is no such folder\n'


async def test_only_live_containers_with_a_gpu_and_a_place_are_asked_which_cuda_they_are_built_for(
    api: Api, cluster: Cluster
) -> None:
    def pod(name: str, *, limits: dict[str, str], node: str = "a", phase: str = "Running") -> dict[str, Any]:
        container = {"name": "main", "image": "nvidia/cuda:12.4.1-base", "resources": {"limits": limits}}
        spec = {"nodeName": node, "containers": [container]}
        return {"metadata": {"name": name, "namespace": "a"}, "spec": spec, "status": {"phase": phase}}

    asks = {"dovetail.dev/gpu-milli": "1k"}
    pods = [
        pod("train", limits=asks),
        pod("by-plugin", limits={"nvidia.com/gpu": "1"}),
        pod("no-gpu", limits={"cpu": "1"}),
        pod("ended", limits=asks, phase="Succeeded"),
        pod("waits", limits=asks, node=""),
    ]
    api.answer("GET /api/v1/pods", listing(*pods))
    found = (await read_pods(cluster)).built_containers
    assert [(each.pod, each.node, str(each.built.version)) for each in found] == [
        ("train", "a", "12.4"),
        ("by-plugin", "a", "12.4"),
    ]
