"""What the doctor reads of a cluster: all that the user may see, and of the rest why not."""

from typing import Any

from dovetail.api.builtin import Node
from dovetail.api.resources import NODES
from dovetail.cluster.picture import LEASED, RIGHTS, Unseen
from dovetail.kube.client import Client
from dovetail.kube.queries.picture import job_namespaces, listed, read_picture, read_pods, seen
from dovetail.query.doctor.diagnosis import CRDS, judge
from dovetail.query.doctor.findings import diagnosis_of
from tests.core.kube.api import Answer, Api
from tests.core.query.doctor.test_diagnosis import NOW


def listing(*items: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": list(items)})


async def test_what_pods_ask_and_where_jobs_are_is_read_of_all_namespaces(api: Api, client: Client) -> None:
    limits = [{"nvidia.com/gpu": "1", "cpu": "1"}, {"amd.com/gpu": "0"}]
    containers = [{"name": f"c{at}", "resources": {"limits": each}} for at, each in enumerate(limits)]
    api.answer("GET /api/v1/pods", listing({"metadata": {"namespace": "a"}, "spec": {"initContainers": containers}}))
    api.answer("GET /apis/dovetail.dev/v1beta1/gpujobs", listing({"metadata": {"namespace": "b"}, "spec": {"gpu": 1}}))
    assert (await read_pods(client)).resources_asked == {"a": {"nvidia.com/gpu"}}
    assert await job_namespaces(client) == {"b"}


async def test_what_the_api_server_says_at_length_is_said_in_short(api: Api, client: Client) -> None:
    long = 'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope'
    api.answer("GET /api/v1/nodes", Answer(status=403, body={"code": 403, "reason": "Forbidden", "message": long}))
    assert await seen(listed(client, resource=NODES, type_=Node)) == Unseen(why="you may not list nodes", missing=False)


async def test_a_user_without_any_rights_is_told_what_could_not_be_looked_at(api: Api, client: Client) -> None:
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
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRDS[0]}",
    ):  # fmt: skip
        api.answer(f"GET {path}", no)
    api.answer(f"GET {dovetail}/gpunodes", no, no)
    api.answer("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", *[no] * len(RIGHTS))
    read = await read_picture(client, release="dovetail-system", namespace="default", crds=CRDS, now=lambda: NOW)
    found = diagnosis_of(judge(read))
    assert {each.level for each in found.items} == {"unknown"}
    assert (found.unknown, found.errors) == (len(found.items), 0)


async def test_only_live_containers_with_a_gpu_and_a_place_are_asked_which_cuda_they_are_built_for(
    api: Api, client: Client
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
    found = (await read_pods(client)).built_containers
    assert [(each.pod, each.node, str(each.built.version)) for each in found] == [
        ("train", "a", "12.4"),
        ("by-plugin", "a", "12.4"),
    ]
