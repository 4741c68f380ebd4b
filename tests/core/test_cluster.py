from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.allocation import AllocatedDevice, Allocation, ContainerAllocation, annotations_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.asks import ask_of_job, ask_of_pod, host_request, resources_of, template_spec
from dovetail.cluster import ClusterView
from dovetail.engine.claims import Ask
from dovetail.engine.fit import Fit, check
from dovetail.engine.ledger import Ledger
from dovetail.kube.objects import Node, Pod, PodSpec
from dovetail.requests import GPURequest, RequestError
from tests.core.engine.builders import make_ask


def make_node(name: str = "a", **more: Any) -> Node:
    node = {
        "metadata": {"name": name, "labels": {names.LABEL_MANAGED: "true"}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "64Gi"},
            "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}],
        },
    } | more
    return msgspec.convert(node, Node)


def make_gpunode(name: str = "a", *, gpus: int = 2, cordoned: tuple[str, ...] = (), ready: str = "True") -> GPUNode:
    devices = [
        {"index": i, "uuid": f"{name}-{i}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
        for i in range(gpus)
    ]
    condition = {"type": "Ready", "status": ready, "reason": "", "message": "", "lastTransitionTime": ""}
    gpunode = {
        "metadata": {"name": name},
        "spec": {"cordoned": list(cordoned)},
        "status": {"devices": devices, "conditions": [condition]},
    }
    return msgspec.convert(gpunode, GPUNode)


def make_pod(
    resources: dict[str, Any] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    uid: str = "pod-1",
) -> Pod:
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": uid, "annotations": annotations or {}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": resources or {}}}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(pod, Pod)


def make_allocated_pod(*, node: str = "a", device: str = "a-0", phase: str = "Running") -> Pod:
    allocation = Allocation(
        node=node,
        mode="Exclusive",
        containers=[
            ContainerAllocation(
                index=0, devices=[AllocatedDevice(uuid=device, index=0, share_milli=1000, memory_mib=32768)]
            )
        ],
    )
    return make_pod({names.GPU_MILLI: "1000"}, annotations=annotations_of(allocation), node=node, phase=phase)


def make_view() -> ClusterView:
    view = ClusterView(ledger=Ledger())
    view.node_changed(make_node())
    view.gpunode_changed(make_gpunode())
    return view


def make_job(**spec: Any) -> GPUJob:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return msgspec.convert({"metadata": {"name": "j"}, "spec": {"template": template} | spec}, GPUJob)


def free(view: ClusterView) -> int:
    totals = view.ledger.totals()
    return (totals.milli - totals.promised_milli) // 1000


def test_a_bound_pod_holds_its_devices_until_it_has_ended() -> None:
    view = make_view()
    assert free(view) == 2
    view.pod_changed(make_allocated_pod())
    assert free(view) == 1
    view.pod_changed(make_allocated_pod(phase="Succeeded"))
    assert free(view) == 2


def test_a_deleted_pod_frees_its_devices() -> None:
    view = make_view()
    view.pod_changed(make_allocated_pod())
    view.pod_gone(make_allocated_pod())
    assert free(view) == 2


def test_pods_may_come_before_their_node() -> None:
    view = ClusterView(ledger=Ledger())
    view.pod_changed(make_allocated_pod())
    view.gpunode_changed(make_gpunode())
    view.node_changed(make_node())
    assert free(view) == 1


def test_a_broken_allocation_holds_no_device_and_stops_nothing() -> None:
    view = make_view()
    view.pod_changed(make_pod(annotations={names.ALLOCATION: "{"}, node="a"))
    assert free(view) == 2


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda view: view.node_gone("a"), "Unhealthy"),
        (lambda view: view.node_changed(make_node(ready="Unknown")), "Unhealthy"),
        (lambda view: view.node_changed(make_node(spec={"unschedulable": True})), "Cordoned"),
        (lambda view: view.gpunode_gone("a"), "NoGPU"),
        (lambda view: view.gpunode_changed(make_gpunode(ready="False")), "Unhealthy"),
        (lambda view: view.gpunode_changed(make_gpunode(cordoned=("a-0", "a-1"))), "Cordoned"),
    ],
)
def test_what_happens_to_a_node_shows_in_its_refusal(change: Any, kind: str) -> None:
    view = make_view()
    change(view)
    refusal = check(view.ledger, make_ask("1"), node="a", key="pod")
    assert not isinstance(refusal, Fit)
    assert refusal.kind == kind


@pytest.mark.parametrize(
    ("resources", "annotations", "request_", "mode"),
    [
        ({names.GPU_MILLI: "2000"}, {}, GPURequest(count=2), "Exclusive"),
        ({names.GPU_MILLI: "2k"}, {}, GPURequest(count=2), "Exclusive"),
        ({names.GPU_MILLI: "500"}, {}, GPURequest(share_milli=500), "Fractional"),
        (
            {names.GPU_MILLI: "500", names.GPU_MEMORY_MIB: "8192"},
            {},
            GPURequest(share_milli=500, memory_mib=8192),
            "Fractional",
        ),
        ({names.GPU_MILLI: "2000"}, {names.REQUEST: "2(V100)"}, GPURequest(count=2, models=("V100",)), "Exclusive"),
        (
            {names.GPU_TURN: "1"},
            {names.REQUEST: "0.5", names.MODE: "TimeShared"},
            GPURequest(share_milli=500),
            "TimeShared",
        ),
    ],
)
def test_a_pod_asks_what_its_resources_and_annotations_say(
    resources: dict[str, str], annotations: dict[str, str], request_: GPURequest, mode: str
) -> None:
    ask = ask_of_pod(make_pod(resources, annotations=annotations), default_policy="Pack")
    assert ask is not None
    assert (ask.gpu, ask.mode, ask.policy) == (request_, mode, "Pack")


def test_a_pod_without_our_resources_is_not_ours() -> None:
    assert ask_of_pod(make_pod({"cpu": "1"}), default_policy="Pack") is None


@pytest.mark.parametrize(
    ("resources", "annotations", "sentence"),
    [
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "2"},
            (
                'gpu "2": the pod\'s resources are dovetail.dev/gpu-milli: 500, but the request needs '
                "dovetail.dev/gpu-milli: 2000; write for example dovetail.dev/gpu-milli: 2000"
            ),
        ),
        (
            {names.GPU_MILLI: "1500"},
            {},
            (
                'gpu "1500": dovetail.dev/gpu-milli above 1000 must be a multiple of 1000 without the annotation '
                "dovetail.dev/gpu; write for example 2000"
            ),
        ),
        (
            {names.GPU_MEMORY_MIB: "1024"},
            {},
            (
                'gpu "1024": dovetail.dev/gpu-memory-mib needs dovetail.dev/gpu-milli or dovetail.dev/gpu-turn beside '
                "it; write for example 500"
            ),
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MODE: "Shared"},
            'mode "Shared": unknown mode; write for example Exclusive, Fractional, TimeShared',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MODE: "Exclusive"},
            'gpu "0.5": mode Exclusive takes whole GPUs, not a share; write for example Fractional',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.POLICY: "Best"},
            'policy "Best": unknown policy; write for example Spread, Pack, Balanced',
        ),
    ],
)
def test_a_pod_that_contradicts_itself_gets_a_sentence(
    resources: dict[str, str], annotations: dict[str, str], sentence: str
) -> None:
    with pytest.raises(RequestError) as caught:
        ask_of_pod(make_pod(resources, annotations=annotations), default_policy="Pack")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("spec", "request_", "mode"),
    [
        ({"gpu": 2}, GPURequest(count=2), "Exclusive"),
        ({"gpu": "8G,0.5"}, GPURequest(share_milli=500, memory_mib=8192), "Fractional"),
        (
            {"resources": {"count": 2, "share": 0.25, "memory": "8Gi", "models": ["T4"], "vendor": "nvidia"}},
            GPURequest(count=2, share_milli=250, memory_mib=8192, models=("T4",), vendor="nvidia"),
            "Fractional",
        ),
        ({"resources": {"device": "cuda:1"}}, GPURequest(device_index=1), "Exclusive"),
        ({"resources": {"device": "cpu"}}, None, "Exclusive"),
        ({"gpu": "0.5", "mode": "TimeShared"}, GPURequest(share_milli=500), "TimeShared"),
    ],
)
def test_a_job_asks_the_same_in_either_form(spec: dict[str, Any], request_: GPURequest | None, mode: str) -> None:
    ask = ask_of_job(make_job(**spec), default_policy="Balanced")
    assert (ask.gpu, ask.mode) == (request_, mode)


def test_a_quantity_that_is_none_is_named() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}}
    with pytest.raises(RequestError, match='resources of a container "two": is no quantity; write for example 500m'):
        ask_of_job(make_job(gpu=1, template=template), default_policy="Balanced")


def test_what_is_null_in_a_template_counts_as_absent() -> None:
    template = {
        "spec": {
            "initContainers": None,
            "containers": [{"name": "c", "env": None, "resources": {"requests": None, "limits": {"cpu": "2"}}}],
        }
    }
    job = make_job(gpu=1, template=template)
    assert ask_of_job(job, default_policy="Balanced").cpu_milli == 2000
    assert template_spec(job) == {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}


def test_a_template_that_is_no_pod_is_a_sentence() -> None:
    with pytest.raises(RequestError, match=r"spec\.template\.spec is no pod"):
        ask_of_job(make_job(gpu=1, template={"spec": {"containers": "none"}}), default_policy="Balanced")


@pytest.mark.parametrize(
    ("ask", "resources"),
    [
        (Ask(gpu=None), {}),
        (make_ask("2"), {names.GPU_MILLI: "2000"}),
        (make_ask("2x8G,0.5"), {names.GPU_MILLI: "1000", names.GPU_MEMORY_MIB: "16384"}),
        (make_ask("0.5", mode="TimeShared"), {names.GPU_TURN: "1"}),
    ],
)
def test_an_ask_becomes_the_resources_that_kube_scheduler_counts(ask: Ask, resources: dict[str, str]) -> None:
    assert resources_of(ask) == resources


@pytest.mark.parametrize("amounts", [{"cpu": "9223372036854775807"}, {"memory": "9223372036854775807Ei"}])
def test_a_pod_of_absurd_size_leaves_its_node_no_room_and_stops_nothing(amounts: dict[str, Any]) -> None:
    view = ClusterView(ledger=Ledger())
    view.node_changed(make_node("a"))
    view.gpunode_changed(make_gpunode("a"))
    for uid in ("1", "2"):
        view.pod_changed(make_pod(amounts, node="a", uid=uid))
    found = check(view.ledger, make_ask("1"), node="a", key="x")
    assert not isinstance(found, Fit)
    assert found.kind == "CPUOrMemoryShort"


def test_a_node_of_absurd_size_takes_pods() -> None:
    view = ClusterView(ledger=Ledger())
    node = make_node("a")
    absurd = msgspec.structs.replace(node.status, allocatable={"cpu": "9223372036854775807", "memory": "1000000Ei"})
    view.node_changed(msgspec.structs.replace(node, status=absurd))
    view.gpunode_changed(make_gpunode("a"))
    assert isinstance(check(view.ledger, make_ask("1"), node="a", key="x"), Fit)


def test_sidecars_stay_and_init_containers_run_one_by_one() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}} | more

    spec = msgspec.convert(
        {
            "initContainers": [container("1", restartPolicy="Always"), container("5")],
            "containers": [container("2"), container("1")],
        },
        PodSpec,
    )
    assert host_request(spec) == (6000, 0)


def test_only_nodes_that_the_template_may_go_to_are_eligible() -> None:
    view = make_view()
    view.node_changed(make_node("tainted", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}))
    view.node_changed(make_node("labelled", metadata={"name": "labelled", "labels": {"zone": "z1"}}))
    assert view.eligible_nodes({}) == ["a", "labelled"]
    assert view.eligible_nodes({"nodeSelector": {"zone": "z1"}}) == ["labelled"]
    assert view.eligible_nodes({"tolerations": [{"operator": "Exists"}]}) == ["a", "tainted", "labelled"]
