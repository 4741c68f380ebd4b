"""Which reports of memory overuse end a pod: only what the operator itself knows of that pod confirms one."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode
from dovetail.api.gpunode import Overuse
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail.process.rate_limit import Allowance, Spending
from dovetail_operator.devices.overuse_check import EndingRules, refusal

RULES = EndingRules(ends=True, exempt_namespaces=frozenset({"kube-system", "dovetail-system", "gpu-operator"}))
OVERUSE = Overuse(
    uid="uid-web", namespace="team", name="web", device="GPU-a", index=0, promised_mib=1, used_mib=2, since="then",
    ends=True, evict=True,
)  # fmt: skip


def a_pod(
    *, node: str = "n1", mode: Mode | None = "Fractional", namespace: str = "team", phase: str = "Running", **meta: Any
) -> Pod:
    """A pod that shares the device GPU-a of its node; without `mode` it has no allocation."""
    annotations = {}
    if mode is not None:
        device = AllocatedDevice(uuid="GPU-a", index=0, share_milli=500, memory_mib=100)
        containers = [ContainerAllocation(index=0, devices=[device])]
        annotations = annotations_of(Allocation(node="n1", mode=mode, containers=containers))
    metadata = {"name": "web", "namespace": namespace, "uid": "uid-web", "annotations": annotations, **meta}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}, Pod)


def test_a_tenant_of_the_device_on_that_node_is_ended() -> None:
    for mode in ("Fractional", "TimeShared"):
        assert refusal(OVERUSE, node="n1", pod=a_pod(mode=mode), rules=RULES) is None


@pytest.mark.parametrize(("pod", "why"), [
    pytest.param(None, "UnknownPod", id="no such pod"),
    pytest.param(a_pod(uid="uid-of-its-successor"), "UnknownPod", id="another pod of that name"),
    pytest.param(a_pod(phase="Succeeded"), "Ended", id="a pod that has ended"),
    pytest.param(a_pod(node="n2"), "OtherNode", id="a pod of another node"),
    pytest.param(a_pod(node=""), "OtherNode", id="a pod of no node yet"),
    pytest.param(a_pod(namespace="kube-system"), "ExemptNamespace", id="a pod of the cluster's own"),
    pytest.param(a_pod(namespace="gpu-operator"), "ExemptNamespace", id="a pod of an exempt namespace"),
    pytest.param(a_pod(mode=None), "NoAllocation", id="a pod without devices"),
    pytest.param(a_pod(annotations={names.ALLOCATION: "{"}), "NoAllocation", id="a broken allocation"),
    pytest.param(a_pod(mode="Exclusive"), "WholeDevices", id="a pod that has the device alone"),
])  # fmt: skip
def test_no_report_ends(pod: Pod | None, why: str) -> None:
    assert refusal(OVERUSE, node="n1", pod=pod, rules=RULES) == why


def test_a_report_about_a_device_that_the_pod_has_no_part_of_ends_nothing() -> None:
    other = msgspec.structs.replace(OVERUSE, device="GPU-b")
    assert refusal(other, node="n1", pod=a_pod(), rules=RULES) == "OtherDevice"


def test_an_allocation_for_another_node_than_the_pods_counts_for_nothing() -> None:
    assert refusal(OVERUSE, node="n2", pod=a_pod(node="n2"), rules=RULES) == "NoAllocation"


def test_under_warn_nothing_is_ended_whatever_is_reported() -> None:
    assert refusal(OVERUSE, node="n1", pod=a_pod(), rules=replace(RULES, ends=False)) == "Policy"


def test_a_burst_is_allowed_and_then_one_at_a_time() -> None:
    spending = Spending(Allowance(burst=3, every_seconds=10.0))
    sent, now = [], 100.0
    while now < 160.0:
        if spending.wait_seconds(now=now) == 0:
            spending.spend(now=now)
            sent.append(now)
        now += 1.0
    assert sent == [100.0, 101.0, 102.0, 110.0, 120.0, 130.0, 140.0, 150.0]


def test_what_was_not_spent_for_long_is_a_burst_again_and_no_more() -> None:
    spending = Spending(Allowance(burst=2, every_seconds=10.0))
    spending.spend(now=0.0)
    spending.spend(now=0.0)
    assert spending.wait_seconds(now=0.0) == 10.0
    assert not spending.is_full(now=19.0)
    assert spending.is_full(now=20.0)
    for _ in range(2):
        assert spending.wait_seconds(now=1000.0) == 0
        spending.spend(now=1000.0)
    assert spending.wait_seconds(now=1000.0) == 10.0
