"""The operator numbers the devices that agents report, and no other client's write takes a number back."""

import pytest

from dovetail.api.gpunode import GPUNode
from dovetail.decoding import convert
from dovetail.kube.client import Client
from dovetail_operator.writes.device_indexes import DeviceIndexes, devices_of
from tests.clock import Clock
from tests.core.kube.api import Answer, Api, make_object, refusal
from tests.extender.builders import make_gpunode

PATH = "/api/v1/namespaces/home/configmaps"
ONE = f"{PATH}/dovetail-device-indexes"


def node(name: str, *, gpus: int = 1, **device: str) -> GPUNode:
    return convert(make_gpunode(name, gpus=gpus, **device), as_type=GPUNode)


def configmap(version: int = 5, **data: str) -> Answer:
    body = make_object("dovetail-device-indexes", version=version, namespace="home")
    return Answer(body={**body, "data": {key.removeprefix("n"): value for key, value in data.items()}})


@pytest.fixture
def nodes() -> list[GPUNode]:
    return [node("b"), node("a", gpus=2)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def indexes(client: Client, nodes: list[GPUNode], clock: Clock) -> DeviceIndexes:
    return DeviceIndexes(client, gpunodes=lambda: nodes, namespace="home", clock=clock)


async def twice(indexes: DeviceIndexes) -> None:
    await indexes.update()
    await indexes.update()


async def test_the_first_numbers_are_written_when_two_rounds_see_the_same_devices(
    api: Api, indexes: DeviceIndexes
) -> None:
    api.answer(f"GET {ONE}", refusal(404))
    api.answer(f"POST {PATH}", configmap())
    await indexes.update()
    assert not api.seen
    await indexes.update()
    (seen,) = api.of(f"POST {PATH}")
    assert seen.body["data"] == {"0": "a/cuda:0", "1": "a/cuda:1", "2": "b/cuda:0"}


async def test_a_node_that_reports_meanwhile_delays_the_numbers(
    api: Api, indexes: DeviceIndexes, nodes: list[GPUNode]
) -> None:
    await indexes.update()
    nodes.append(node("0"))
    await indexes.update()
    assert not api.seen


async def test_a_new_operator_continues_with_the_numbers_that_are_there(api: Api, indexes: DeviceIndexes) -> None:
    api.answer(f"GET {ONE}", configmap(n0="b/cuda:0", n1="gone/cuda:0"))
    api.answer(f"PATCH {ONE}", configmap())
    await twice(indexes)
    (seen,) = api.of(f"PATCH {ONE}")
    assert seen.body["metadata"] == {"resourceVersion": "5"}
    assert seen.body["data"] == {"0": "b/cuda:0", "1": "gone/cuda:0", "2": "a/cuda:0", "3": "a/cuda:1"}


async def test_nothing_is_written_while_all_devices_have_numbers(api: Api, indexes: DeviceIndexes) -> None:
    api.answer(f"GET {ONE}", configmap(n0="a/cuda:0", n1="a/cuda:1", n2="b/cuda:0"))
    await twice(indexes)
    await twice(indexes)
    assert [seen.method for seen in api.seen] == ["GET"]


async def test_a_deleted_configmap_comes_back_within_a_minute_as_it_was(
    api: Api, indexes: DeviceIndexes, clock: Clock
) -> None:
    api.answer(f"GET {ONE}", configmap(n0="b/cuda:0", n1="a/cuda:0", n2="a/cuda:1"), refusal(404))
    api.answer(f"POST {PATH}", configmap())
    await twice(indexes)
    clock.now += 60
    await indexes.update()
    (seen,) = api.of(f"POST {PATH}")
    assert seen.body["data"] == {"0": "b/cuda:0", "1": "a/cuda:0", "2": "a/cuda:1"}


async def test_a_write_that_meets_another_reads_again(api: Api, indexes: DeviceIndexes) -> None:
    api.answer(f"GET {ONE}", configmap(5), configmap(6, n0="b/cuda:0"))
    api.answer(f"PATCH {ONE}", refusal(409), configmap())
    await twice(indexes)
    assert api.of(f"PATCH {ONE}")[1].body["data"] == {"0": "b/cuda:0", "1": "a/cuda:0", "2": "a/cuda:1"}


def test_the_instances_of_a_partitioned_device_have_no_number() -> None:
    assert list(devices_of([node("a", migProfile="1g.10gb")])) == []
