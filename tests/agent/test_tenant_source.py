"""Who is on a node, by the operator's object and by the pods themselves: both say the same."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpunodetenants import GPUNodeTenants, GPUNodeTenantsSpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUNODETENANTS, PODS
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.tenant_source import TenantSource
from tests.agent.builders import allocated, make_pod
from tests.agent.test_tenants import bound_with

PODS_OF_ALL_KINDS = [
    pytest.param(make_pod(allocated(0, share_milli=500, memory_mib=8192)), id="with a share"),
    pytest.param(make_pod(), id="without devices"),
    pytest.param(make_pod(allocated(0), phase="Pending"), id="that starts"),
    pytest.param(make_pod(resources={"nvidia.com/gpu": "2"}), id="of a vendor's plugin"),
    pytest.param(bound_with(priority=40, job="train", workload="Training", guard_fraction=0.8), id="of a job"),
    pytest.param(bound_with(priority=0, reservation=True, movable=True), id="that reserves"),
]


class Scene:
    """A source and whom it told that something changed."""

    def __init__(self, *, reads_pods: bool = False) -> None:
        self.changed: list[str] = []
        client: Any = None  # it asks nothing before its reflector runs
        self.source = TenantSource(
            client, node=None, reads_pods=reads_pods, vendors=DEFAULT_VENDORS, changed=self.changed.append
        )

    def told(self, *pods: Pod, answers: int = 0, event: Any = "MODIFIED") -> None:
        tenants = [tenant for pod in pods if (tenant := tenant_of_pod(pod))]
        spec = GPUNodeTenantsSpec(tenants=tenants, answers=answers)
        # As it comes from the API server.
        wire = msgspec.json.encode(GPUNodeTenants(metadata=ObjectMeta(name="v100-0"), spec=spec))
        self.source._on_object(event, msgspec.json.decode(wire, type=GPUNodeTenants))


@pytest.mark.parametrize("pod", PODS_OF_ALL_KINDS)
def test_the_operators_object_says_what_the_pod_itself_says(pod: Pod) -> None:
    by_object, by_pod = Scene(), Scene(reads_pods=True)
    by_object.told(pod)
    by_pod.source._on_pod("ADDED", pod)
    assert by_object.source.tenants("v100-0") == by_pod.source.tenants("v100-0")
    assert by_object.source.tenants("v100-0") != ()


def test_the_object_of_a_node_that_nobody_spoke_of_is_not_an_empty_node() -> None:
    scene = Scene()
    assert not scene.source.knows("v100-0")
    scene.told()
    assert scene.source.knows("v100-0")
    assert scene.source.tenants("v100-0") == ()


def test_only_what_differs_is_told() -> None:
    scene = Scene()
    scene.told(make_pod(allocated(0)))
    scene.told(make_pod(allocated(0)))
    assert scene.changed == ["v100-0"]
    scene.told(make_pod(allocated(0)), answers=1)
    assert (scene.changed, scene.source.answers("v100-0")) == (["v100-0"] * 2, 1)


def test_an_object_that_somebody_deletes_leaves_what_it_said() -> None:
    scene = Scene()
    scene.told(make_pod(allocated(0)), answers=3)
    scene.told(event="DELETED")
    assert [each.uid for each in scene.source.tenants("v100-0")] == ["pod-uid"]
    assert scene.source.answers("v100-0") == 3


def test_a_node_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.told(make_pod(allocated(0)))
    scene.source.forget("v100-0")
    assert (scene.source.tenants("v100-0"), scene.source.knows("v100-0")) == ((), False)


def test_pods_are_asked_only_where_the_agent_reads_them() -> None:
    assert Scene().source.reflector.resource == GPUNODETENANTS
    reading = Scene(reads_pods=True).source
    assert (reading.reflector.resource, reading.answers("v100-0"), reading.knows("v100-0")) == (PODS, None, True)
