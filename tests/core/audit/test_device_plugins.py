"""What the audit says of pods to which kubelet gave devices of a vendor's plugin."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.questions import Audit
from dovetail.api.builtin import Container, Node, NodeStatus, Pod, Resources, ResourceSlice
from dovetail.api.gpunode import Assignment, GPUNode
from dovetail.api.meta import ObjectMeta
from dovetail.audit.allocations import Rules, audit
from tests.cli.builders import make_gpunode, make_job, make_pod

GPU = "nvidia.com/gpu"


def asking(name: str, count: int = 1, **more: Any) -> Pod:
    return make_pod(name, asks={GPU: str(count)}, **more)


def reporting(**given: list[int]) -> GPUNode:
    gpunode = make_gpunode("a")
    assignments = [
        Assignment(uid=f"uid-{name}", namespace="default", name=name, devices=[f"GPU-a-{index}" for index in indexes])
        for name, indexes in given.items()
    ]
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, assignments=assignments))


def look(*pods: Pod, report: GPUNode | None = None, labels: dict[str, str] | None = None, **more: Any) -> Audit:
    node = Node(metadata=ObjectMeta(name="a", labels=labels or {}), status=NodeStatus(capacity={GPU: "2"}))
    return audit(nodes=[node], gpunodes=[report or make_gpunode("a")], pods=pods, **more)


@pytest.mark.parametrize(
    ("pods", "report"),
    [
        ((asking("x"), asking("y")), None),
        ((asking("x"), asking("y")), reporting(x=[0], y=[1])),
        ((asking("x", 2), asking("y", 2, phase="Succeeded")), reporting(x=[0, 1], y=[0, 1])),
        ((asking("x", 2), asking("y", node="", phase="Pending")), reporting(x=[0, 1])),
        ((asking("x", request="1(V100)"),), reporting(x=[1])),
    ],
    ids=["without names", "with names", "after one that has ended", "beside one that waits", "of its model"],
)
def test_what_kubelet_gave_needs_no_allocation(pods: tuple[Pod, ...], report: GPUNode | None) -> None:
    found = look(*pods, report=report)
    assert found.items == []
    assert found.pods == len([pod for pod in pods if pod.status.phase != "Succeeded"])


FOUND = {
    "more is asked than there is": ((asking("x", 2), asking("y")), None, "CountOverpromised", "a"),
    "one device is given to two": ((asking("x"), asking("y")), reporting(x=[0], y=[0]), "GivenTwice", "a/0"),
    "fewer devices than asked": ((asking("x", 2),), reporting(x=[0]), "Mismatch", "default/x"),
    "a device that is not there": ((asking("x"),), reporting(x=[7]), "Mismatch", "default/x"),
    "another model": ((asking("x", request="1(T4)"),), reporting(x=[0]), "Mismatch", "default/x"),
}


@pytest.mark.parametrize(("pods", "report", "kind", "subject"), FOUND.values(), ids=FOUND.keys())
def test_what_must_not_be_is_found(pods: tuple[Pod, ...], report: GPUNode | None, kind: str, subject: str) -> None:
    (finding,) = look(*pods, report=report).items
    assert (finding.kind, finding.subject) == (kind, subject)


def test_the_finding_names_numbers_and_pods() -> None:
    (finding,) = look(asking("x", 2), asking("y")).items
    assert finding.message == "its pods ask nvidia.com/gpu: 3, it has 2: default/x, default/y"


def test_a_node_that_is_managed_and_served_by_kubelet_too_is_found() -> None:
    (finding,) = look(asking("x"), labels={names.LABEL_MANAGED: "true"}).items
    assert (finding.kind, finding.subject) == ("BothKinds", "a")


def test_a_running_job_tells_the_devices_that_kubelet_gave_its_pods() -> None:
    pod = asking("x", labels={names.LABEL_JOB: "train"})
    job = make_job(phase="Running", devices=[("a", 1)])
    assert look(pod, report=reporting(x=[1]), jobs=[job]).items == []
    (finding,) = look(pod, report=reporting(x=[0]), jobs=[job]).items
    assert finding.kind == "AllocationWithoutPod"


def test_only_the_configured_resources_are_a_vendor_s() -> None:
    assert look(asking("x", 3), rules=Rules(vendor_resources=["amd.com/gpu"])).items == []


@pytest.mark.parametrize(
    ("labels", "where", "kinds"),
    [
        ({names.LABEL_MANAGED: "true"}, {"nodeName": "a"}, ["BothKinds"]),
        ({names.LABEL_MANAGED: "true"}, {"allNodes": True}, ["BothKinds"]),
        ({names.LABEL_MANAGED: "true"}, {"nodeName": "b"}, []),
        ({}, {"nodeName": "a"}, []),
    ],
)
def test_a_managed_node_that_a_dra_driver_serves_too(
    labels: dict[str, str], where: dict[str, Any], kinds: list[str]
) -> None:
    spec = {"driver": "gpu.nvidia.com", **where}
    found = look(labels=labels, slices=[msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)])
    assert [each.kind for each in found.items] == kinds


def with_inits(name: str, count: int, *inits: tuple[int, str]) -> Pod:
    """A pod whose main container asks `count` devices, with init containers of a count and a restart policy each."""
    pod = asking(name, count)
    beside = [
        Container(name=f"i{at}", restart_policy=policy, resources=Resources(limits={GPU: str(amount)}))
        for at, (amount, policy) in enumerate(inits)
    ]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=beside))


@pytest.mark.parametrize(
    ("inits", "asked"),
    [
        pytest.param([], 1, id="the container alone"),
        pytest.param([(2, "")], 2, id="an init container that asks more"),
        pytest.param([(1, "")], 1, id="an init container that is gone by then"),
        pytest.param([(1, "Always")], 2, id="a sidecar stays"),
        pytest.param([(1, "Always"), (2, "")], 3, id="an init container beside a sidecar"),
        pytest.param([(2, ""), (1, "Always")], 2, id="an init container before a sidecar"),
        pytest.param([(3, ""), (1, "")], 3, id="the largest init container"),
        pytest.param([(1, "Always"), (1, "Always")], 3, id="two sidecars"),
    ],
)
def test_a_pod_asks_the_most_that_its_containers_ask_at_one_time(inits: list[tuple[int, str]], asked: int) -> None:
    pod = with_inits("x", 1, *inits)
    found = [each.message for each in look(pod, report=reporting(x=[0])).items if each.kind == "Mismatch"]
    assert found == ([] if asked == 1 else [f"it asks {asked} devices, but a reports that it got 1"])


def test_as_many_as_the_node_has_may_be_asked() -> None:
    assert look(asking("x", 2)).items == []
    assert [each.kind for each in look(asking("x", 3)).items] == ["CountOverpromised"]


@pytest.mark.parametrize(
    ("pods", "report", "message"),
    [
        (
            (asking("y"), asking("x")),
            reporting(x=[0], y=[0]),
            "it is reported as given to 2 pods: default/x, default/y",
        ),
        ((asking("x"),), reporting(x=[7]), "a reports that it got device GPU-a-7, which is none of the node's"),
        (
            (asking("x", request="1(T4)"),),
            reporting(x=[0]),
            "its request 1(T4) is not for a nvidia V100, but it got GPU-a-0",
        ),
    ],
)
def test_a_finding_about_a_report_names_what_it_says(pods: tuple[Pod, ...], report: GPUNode, message: str) -> None:
    (finding,) = look(*pods, report=report).items
    assert finding.message == message


@pytest.mark.parametrize(
    ("request_", "findings"),
    [
        ("1(T4|V100)", 0),
        ("1(V100M32)", 0),
        ("1(V100M16)", 1),
        ("1(T4)", 1),
        ("1(>=32G)", 0),
        ("1(>=33G)", 1),
        ("1", 0),
        ("many", 0),
    ],
)
def test_a_device_is_of_a_model_that_the_request_names_with_its_memory(request_: str, findings: int) -> None:
    assert len(look(asking("x", request=request_), report=reporting(x=[0])).items) == findings


def test_both_reports_count_where_two_nodes_report() -> None:
    first, second = reporting(x=[0]), make_gpunode("b")
    pod = asking("x")
    found = audit(
        nodes=[Node(metadata=ObjectMeta(name="a"), status=NodeStatus(capacity={GPU: "2"}))],
        gpunodes=[first, second],
        pods=[pod],
    )
    assert found.items == []


def test_both_pods_of_a_job_hold_what_its_status_names() -> None:
    pods = [asking(name, labels={names.LABEL_JOB: "train"}) for name in "xy"]
    job = make_job(workers=2, phase="Running", devices=[("a", 0), ("a", 1)])
    assert look(*pods, report=reporting(x=[0], y=[1]), jobs=[job]).items == []
