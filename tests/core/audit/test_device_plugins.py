"""What the audit says of pods to which kubelet gave devices of a vendor's plugin."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, NodeStatus, Pod, ResourceSlice
from dovetail.api.gpunode import Assignment, GPUNode
from dovetail.api.meta import ObjectMeta
from dovetail.audit.allocations import Report, Rules, audit
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


def look(*pods: Pod, report: GPUNode | None = None, labels: dict[str, str] | None = None, **more: Any) -> Report:
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
    assert found.findings == ()
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
    (finding,) = look(*pods, report=report).findings
    assert (finding.kind, finding.subject) == (kind, subject)


def test_the_finding_names_numbers_and_pods() -> None:
    (finding,) = look(asking("x", 2), asking("y")).findings
    assert finding.message == "its pods ask nvidia.com/gpu: 3, it has 2: default/x, default/y"


def test_a_node_that_is_managed_and_served_by_kubelet_too_is_found() -> None:
    (finding,) = look(asking("x"), labels={names.LABEL_MANAGED: "true"}).findings
    assert (finding.kind, finding.subject) == ("BothKinds", "a")


def test_a_running_job_tells_the_devices_that_kubelet_gave_its_pods() -> None:
    pod = asking("x", labels={names.LABEL_JOB: "train"})
    job = make_job(phase="Running", devices=[("a", 1)])
    assert look(pod, report=reporting(x=[1]), jobs=[job]).findings == ()
    (finding,) = look(pod, report=reporting(x=[0]), jobs=[job]).findings
    assert finding.kind == "AllocationWithoutPod"


def test_only_the_configured_resources_are_a_vendor_s() -> None:
    assert look(asking("x", 3), rules=Rules(vendor_resources=["amd.com/gpu"])).findings == ()


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
    assert [each.kind for each in found.findings] == kinds
