"""GPUs that come by a resource claim, and replicas of a card: what the ledger makes of what kubelet and status say."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Node, Pod
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.refusals import Refusal
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.pods.resource_claims import BY_CLAIM, claimed_devices
from tests.core.cluster.test_dra_nodes import GPU, free, make_node, make_pod, make_report, make_view
from tests.core.engine.builders import make_ask

BY_CLASS = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def make_claiming(resource: str = BY_CLASS, *, container: str = "c", count: int = 2, mapped: bool = True) -> Pod:
    mappings = [{"containerName": container, "resourceName": resource, "requestName": "container-0-request-0"}]
    status: dict[str, Any] = {"phase": "Running"}
    if mapped:
        status["extendedResourceClaimStatus"] = {"resourceClaimName": "x-gpu", "requestMappings": mappings}
    asks = {"name": "c", "resources": {"limits": {resource: str(count)}}}
    metadata = {"name": "x", "namespace": "ml", "uid": "x"}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": "a", "containers": [asks]}, "status": status}, Pod
    )


def make_claims_node() -> Node:
    """A node whose devices are given by resource claims alone: no plugin's resource is in its capacity."""
    ready = [{"type": "Ready", "status": "True"}]
    there = {"cpu": "8", "memory": "64Gi"}
    labels = {"dovetail.dev/managed": "true"}
    status = {"capacity": there, "allocatable": there, "conditions": ready}
    return msgspec.convert({"metadata": {"name": "a", "labels": labels}, "status": status}, Node)


def held(view: ClusterView, *, uid: str = "x") -> list[str]:
    claim = view.ledger.claim(uid)
    assert claim is not None
    return [device.uuid for device in claim.devices]


def test_gpus_that_were_asked_by_their_device_class_are_counted() -> None:
    assert claimed_devices(make_claiming(), vendors=DEFAULT_VENDORS) == {BY_CLASS: 2}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_claiming(mapped=False), id="a pod without a claim of the scheduler's"),
        pytest.param(make_claiming(GPU), id="what is counted by the vendor's resource already"),
        pytest.param(make_claiming("deviceclass.resource.kubernetes.io/nic.example.com"), id="another kind of device"),
        pytest.param(make_claiming("deviceclass.resource.kubernetes.io/mig.nvidia.com"), id="a part of a card"),
        pytest.param(make_claiming(container="other"), id="a container that is not there"),
    ],
)
def test_nothing_else_is_counted(pod: Pod) -> None:
    assert claimed_devices(pod, vendors=DEFAULT_VENDORS) == {}


def test_a_managed_node_has_so_many_fewer_devices_when_a_pod_has_some_by_a_claim() -> None:
    view = make_view(node=make_claims_node(), report=make_report())
    view.pod_changed(make_claiming())
    claim = view.ledger.claim("x")
    assert claim is not None
    assert (claim.unnamed, claim.resource) == (2, BY_CLASS)
    assert isinstance(check(view.ledger, ask=make_ask("2"), node="a", key="new"), Fit)
    assert isinstance(check(view.ledger, ask=make_ask("3"), node="a", key="new"), Refusal)


def test_a_pod_that_asked_nothing_holds_what_its_own_claim_gave_it() -> None:
    view = make_view(node=make_claims_node(), report=make_report())
    view.pod_changed(make_pod(resource="example.com/other"))
    assert held(view) == []
    assert view.gpunode_changed(make_report({"x": [1]})) == ["x"]
    assert held(view) == ["GPU-1"]
    claim = view.ledger.claim("x")
    assert claim is not None
    assert claim.resource == BY_CLAIM


def test_what_a_claim_gave_is_free_again_when_the_report_no_longer_names_it() -> None:
    view = make_view(node=make_claims_node(), report=make_report({"x": [1]}))
    view.pod_changed(make_pod(resource="example.com/other"))
    assert held(view) == ["GPU-1"]
    view.gpunode_changed(make_report())
    view.pod_changed(make_pod(resource="example.com/other"))
    assert held(view) == []


def replicas(**given: str) -> Any:
    report = msgspec.to_builtins(make_report())
    report["status"]["assignments"] = [
        {"uid": uid, "namespace": "ml", "name": uid, "devices": [device]} for uid, device in given.items()
    ]
    return msgspec.convert(report, type(make_report()))


def test_two_pods_with_replicas_of_one_card_hold_that_card_and_nothing_twice() -> None:
    view = make_view(node=make_node(gpus=4), report=replicas(x="GPU-2::0", y="GPU-2::1"))
    for uid in ("x", "y"):
        view.pod_changed(make_pod(uid))
    assert (held(view, uid="x"), held(view, uid="y")) == (["GPU-2"], ["GPU-2"])
    claims = [view.ledger.claim(uid) for uid in ("x", "y")]
    assert [claim.mode for claim in claims if claim] == ["TimeShared", "TimeShared"]
    assert free(view) == 2  # kubelet's count: two of four are given away, whatever they are replicas of


def test_a_view_without_reports_is_not_disturbed() -> None:
    view = ClusterView(ledger=Ledger())
    view.pod_changed(make_claiming())
    assert held(view) == []
