"""Pods that ask a vendor's resource, over HTTP: placed by count, bound without devices, and never beyond the count."""

import asyncio
from typing import Any

import pytest

from dovetail import names
from dovetail.config.settings import Settings
from dovetail_extender.main import options_of
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod
from tests.extender.harness import Face, watching

GPU = "nvidia.com/gpu"


def make_vendor_node(name: str = "v", *, gpus: int = 4) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", GPU: str(gpus)}
    node = make_node(name, capacity=amounts, allocatable=amounts)
    node["metadata"]["labels"] = {}
    return node


def make_report(name: str = "v", *, gpus: int = 4, **given: list[int]) -> dict[str, Any]:
    gpunode = make_gpunode(name, gpus=gpus)
    gpunode["status"]["assignments"] = [
        {"uid": f"uid-{pod}", "namespace": "default", "name": pod, "devices": [f"{name}-{at}" for at in indexes]}
        for pod, indexes in given.items()
    ]
    return gpunode


def asking(name: str = "p", count: int = 1, *, gpu: str = "") -> dict[str, Any]:
    return make_pod(name, gpu or str(count), limits={GPU: str(count)})


@pytest.fixture
async def mixed(api: ApiServer) -> Any:
    """The extender over nodes a and b, which are managed, and v, which NVIDIA's plugin serves."""
    api.put("nodes", make_vendor_node())
    api.put("gpunodes", make_report())
    async with watching(api) as face:
        await face.ready()
        yield face


async def test_each_kind_of_pod_is_led_to_its_kind_of_node(mixed: Face) -> None:
    assert (await mixed.filter(asking(count=2), "a", "v"))["NodeNames"] == ["v"]
    assert (await mixed.filter(make_pod(), "a", "v"))["NodeNames"] == ["a"]


async def test_a_wrong_model_and_a_wrong_kind_are_reasons_that_no_departure_mends(mixed: Face) -> None:
    answer = await mixed.filter(asking(gpu="1(A100)"), "a", "v")
    assert answer["FailedAndUnresolvableNodes"] == {"a": "no nvidia.com/gpu here", "v": "no GPU of model A100"}


async def test_a_text_that_says_another_number_is_refused_everywhere(mixed: Face) -> None:
    answer = await mixed.filter(asking(count=2, gpu="1"), "v")
    assert "the pod's containers ask nvidia.com/gpu: 2" in answer["FailedAndUnresolvableNodes"]["v"]


async def test_a_bind_writes_no_devices_and_a_hold_counts_until_then(api: ApiServer, mixed: Face) -> None:
    first, second = asking("first", 3), asking("second", 2)
    api.put("pods", first)
    assert list(await mixed.prioritize(first, "v")) == ["v"]
    assert (await mixed.filter(second, "v"))["FailedNodes"] == {"v": "GPUs are held for other pods"}
    assert await mixed.bind(first, "v") == ""
    bound = api.objects["pods"]["default/first"]
    assert bound["spec"]["nodeName"] == "v"
    assert bound["metadata"]["annotations"].keys() == {names.REQUEST, names.TERM}
    assert (await mixed.filter(second, "v"))["FailedNodes"] == {"v": "need 2 GPUs free, too many are busy"}


async def test_of_fifty_binds_at_a_time_no_more_succeed_than_there_are_devices(api: ApiServer, mixed: Face) -> None:
    pods = [asking(f"p{at}") for at in range(50)]
    for pod in pods:
        api.put("pods", pod)
    errors = await asyncio.gather(*(mixed.bind(pod, "v") for pod in pods))
    assert sum(not error for error in errors) == 4
    assert all("Need 1 GPU, only 0 available" in error for error in errors if error)


async def test_a_bind_repeated_after_the_report_named_the_devices_succeeds_and_writes_none(
    api: ApiServer, mixed: Face
) -> None:
    pod = asking("p", 2)
    api.put("pods", pod)
    assert await mixed.bind(pod, "v") == ""
    api.put("gpunodes", make_report(p=[0, 3]))
    await eventually(lambda: _named(mixed) == ["v-0", "v-3"])
    assert await mixed.bind(pod, "v") == ""
    assert names.ALLOCATION not in api.objects["pods"]["default/p"]["metadata"]["annotations"]


async def test_a_restart_counts_what_is_bound_with_and_without_names(api: ApiServer) -> None:
    api.put("nodes", make_vendor_node())
    api.put("gpunodes", make_report(named=[1]))
    for name in ("named", "unnamed"):
        pod = asking(name)
        pod["spec"]["nodeName"] = "v"
        api.put("pods", pod)
    async with watching(api) as face:
        await face.ready()
        assert (await face.filter(asking("p", 2), "v"))["NodeNames"] == ["v"]
        assert (await face.filter(asking("p", 3), "v"))["NodeNames"] is None


def test_the_configured_resources_reach_the_extender() -> None:
    options = options_of(Settings(gpu_resource={"xe": "gpu.intel.com/xe"}), environ={})
    assert "gpu.intel.com/xe" in options.vendors.resources


def _named(face: Face) -> list[str]:
    claim = face.ledger.claim("uid-p")
    return [] if claim is None else [device.uuid for device in claim.devices]
