"""Devices by NVIDIA's NRI plugin: which annotation names the devices of which container, and what has no class."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import Allocation, ContainerAllocation
from dovetail.pods.delivery import annotations_for_plugin, of_job, of_pod, refuse_long_names


def make_pod(*containers: str, init: tuple[str, ...] = (), **requests: str) -> Pod:
    annotations = {
        (names.REQUEST if name == "gpu" else f"{names.REQUEST}.{name}"): text for name, text in requests.items()
    }
    spec = {
        "containers": [{"name": each, "image": "x"} for each in containers],
        "initContainers": [{"name": each, "image": "x"} for each in init],
    }
    return msgspec.convert({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}, Pod)


def allocation(**devices: list[str]) -> Allocation:
    containers = [
        ContainerAllocation(
            index=int(index.removeprefix("c")),
            devices=[AllocatedDevice(uuid=each, index=0, share_milli=1000, memory_mib=1) for each in uuids],
        )
        for index, uuids in devices.items()
    ]
    return Allocation(node="n", mode="Exclusive", containers=containers)


def test_each_container_with_devices_has_an_annotation_and_no_other_has() -> None:
    pod = make_pod("main", "log", "second", main="2", second="1")
    found = annotations_for_plugin(allocation(c0=["GPU-a", "GPU-b"], c2=["GPU-c"]), pod=pod, delivery="NRI")
    assert found == {
        "nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=GPU-a,nvidia.com/gpu=GPU-b",
        "nvidia.cdi.k8s.io/container.second": "nvidia.com/gpu=GPU-c",
    }


def test_an_init_container_has_those_of_the_container_that_it_prepares() -> None:
    pod = make_pod("main", init=("warm",), gpu="1", warm="1")
    found = annotations_for_plugin(allocation(c0=["GPU-a"]), pod=pod, delivery="NRI")
    assert found["nvidia.cdi.k8s.io/container.warm"] == "nvidia.com/gpu=GPU-a"


def test_with_a_runtime_class_no_annotation_is_written() -> None:
    assert (
        annotations_for_plugin(allocation(c0=["GPU-a"]), pod=make_pod("main", gpu="1"), delivery="RuntimeClass") == {}
    )


@pytest.mark.parametrize(
    ("delivery", "before", "after"),
    [("NRI", "nvidia", None), ("NRI", "kata", "kata"), ("RuntimeClass", "nvidia", "nvidia"), ("NRI", None, None)],
)
def test_only_dovetails_class_is_left_out(delivery: Any, before: str | None, after: str | None) -> None:
    spec = {"containers": []} | ({"runtimeClassName": before} if before else {})
    assert of_pod(spec, delivery=delivery).get("runtimeClassName") == after
    job = {"spec": {"completions": 2, "template": {"metadata": {}, "spec": spec}}}
    template = of_job(job, delivery=delivery)["spec"]["template"]
    assert template["spec"].get("runtimeClassName") == after


def test_a_name_that_no_annotation_can_hold_is_refused() -> None:
    longest = "c" * 53
    refuse_long_names(make_pod(longest, gpu="1"), delivery="NRI")
    assert len(f"container.{longest}") == 63
    refuse_long_names(make_pod("c" * 63, gpu="1"), delivery="RuntimeClass")
    refuse_long_names(make_pod("main", "c" * 63, main="1"), delivery="NRI")
    with pytest.raises(RequestError, match="has more than 53 characters"):
        refuse_long_names(make_pod("c" * 54, gpu="1"), delivery="NRI")
