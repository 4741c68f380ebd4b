"""v1 over a real port: each call field for field, and what becomes of an allocation that gets no place."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from dovetail.answers.inventory import NodeUse, take
from dovetail.answers.v1 import AllocatedDevice
from dovetail.api.builtin import Node
from dovetail.api.gpunode import LOST, GPUNode
from dovetail.config.settings import Settings
from dovetail.decoding import convert
from dovetail.gpu.models import nominal_gb
from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.access.visibility import EVERYTHING
from dovetail_gateway.app import Options
from dovetail_gateway.v1.allocations import suggestion
from dovetail_gateway.v1.request import NoSuchGPU, reservation
from dovetail_gateway.v1.setup import pytorch, tensorflow
from dovetail_gateway.v1.status import StatusCalls, node_data, node_row
from dovetail_gateway.v1.types import Wanted
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import NOW, Face, serving
from tests.gateway.test_cluster_machine import make_cache, tell

ROOT = "/api/v1/gpu"
RED = Options(rates=None, allocation_namespace="red")


@pytest.fixture
async def red(api: GatewayApiServer) -> Any:
    """A gateway whose allocations are in the namespace `red`."""
    async with serving(api, options=RED) as started:
        yield started


def use_of(node: str = "a", **gpunode: Any) -> NodeUse:
    made = convert(make_gpunode(node, **gpunode), as_type=GPUNode)
    nodes = [convert(make_node(node), as_type=Node)]
    return take([made], pods=[], scheduler="", namespace="", nodes=nodes).nodes[node]


async def test_more_workers_than_a_job_may_have_are_refused_by_the_requests_own_words(red: Face) -> None:
    wanted = {"gpu_count": 9999, "distributed_training": True}
    for call in ("validate", "allocate"):
        found = await red.ask("POST", f"{ROOT}/{call}", token="red-token", json=wanted)
        assert (found.status, found.json["message"]) == (
            422,
            "gpu_count 9999: 3333 nodes with 3 GPUs each, allowed are 1024",
        )


def test_mig_instances_are_no_available_gpus() -> None:
    split = use_of(migProfile="3g.40gb")
    assert split.takes_work
    assert [use.available for use in split.uses] == [True] * len(split.uses)
    assert split.available == []
    assert len(use_of().available) == len(split.uses)


async def test_status_has_each_field(face: Face) -> None:
    found = (await face.get(f"{ROOT}/status", token="red-token")).json
    assert found["utilization"] == {"gpu_utilization": 0.0, "gpu_memory_usage": 0.0}
    assert found["total_nodes"] == 2
    assert found["timestamp"] == "2026-11-01T12:00:00Z"
    # A number with a fraction, also where it has none.
    assert isinstance(found["available_nodes"][0]["memory_per_gpu"], float)
    row = {"gpu_type": "V100", "memory_per_gpu": 32, "utilization": 0.0}
    assert found["available_nodes"] == [
        {"node_name": "a", "available_gpus": 6, **row},
        {"node_name": "b", "available_gpus": 8, **row},
    ]


async def test_status_follows_the_cluster(api: GatewayApiServer, face: Face) -> None:
    await face.get(f"{ROOT}/status", token="red-token")
    api.delete("pods", "red/train-0")
    for _ in range(1000):
        found = (await face.get(f"{ROOT}/status", token="red-token")).json
        if found["available_nodes"][0]["available_gpus"] == 7:
            return
    raise AssertionError("the pod that is gone holds its device for ever")


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", ["a", "b"]), ("gpu_type=V100&min_memory_gb=16", ["a", "b"]), ("min_memory_gb=33", []), ("gpu_type=T4", [])],
)
async def test_nodes_are_chosen_by_type_and_nominal_size(face: Face, query: str, expected: list[str]) -> None:
    found = (await face.get(f"{ROOT}/nodes?{query}", token="red-token")).json
    assert [row["node_name"] for row in found] == expected


async def test_unknown_fields_and_parameters_are_ignored(red: Face) -> None:
    assert (await red.get(f"{ROOT}/nodes?colour=red", token="red-token")).status == 200
    asked = await red.ask("POST", f"{ROOT}/validate", token="red-token", json={"gpu_count": 1, "colour": "red"})
    assert asked.json["valid"] is True


def test_the_type_of_a_device_is_its_model_and_monitoring_has_the_drivers_name_too() -> None:
    node = use_of(model="NVIDIA GeForce RTX 3090", memoryMiB=24576)
    assert (node_row(node).gpu_type, node_row(node).memory_per_gpu) == ("RTX3090", 24.0)
    shown = node_data(node, sees=EVERYTHING).devices[0]
    assert (shown.gpu_type, shown.name) == ("RTX3090", "NVIDIA GeForce RTX 3090")


async def test_monitoring_has_the_means_of_the_status(api: GatewayApiServer, face: Face) -> None:
    api.put("gpunodes", make_gpunode("a", utilization=0.5, usedMiB=8192))
    found: dict[str, Any] = {}
    async with asyncio.timeout(20):
        while not found.get("utilization", {}).get("gpu_utilization"):
            found = (await face.get(f"{ROOT}/monitoring", token="red-token")).json
    status = (await face.get(f"{ROOT}/status", token="red-token")).json
    assert found["utilization"] == status["utilization"] == {"gpu_utilization": 0.25, "gpu_memory_usage": 0.125}


async def test_monitoring_names_no_other_tenant(face: Face) -> None:
    found = (await face.get(f"{ROOT}/monitoring", token="red-token")).json
    first, second = found["nodes"][0]["devices"][:2]
    assert first["allocations"] == [{"namespace": "red", "pod": "train-0", "share": 1.0, "memory_mib": 32768}]
    assert second["allocations"] == [{"namespace": None, "pod": None, "share": 1.0, "memory_mib": 32768}]
    assert first["memory_total_mib"] == 32768


async def test_health_needs_no_token_and_is_503_until_the_cluster_is_listed(api: GatewayApiServer) -> None:
    api.listing.clear()
    async with serving(api, synced=False) as face:
        before = await face.get(f"{ROOT}/health")
        api.listing.set()
        await face.until_synced()
        after = await face.get(f"{ROOT}/health")
    assert (before.status, before.json["checks"]["cache_age_seconds"]) == (503, None)
    assert (after.status, after.json["status"], after.json["checks"]["nodes_reporting"]) == (200, "healthy", 2)


async def test_what_fits_is_valid_and_what_does_not_gets_a_suggestion(red: Face) -> None:
    fits = await red.ask("POST", f"{ROOT}/validate", token="red-token", json={"gpu_count": 8})
    assert fits.json == {"valid": True, "reason": "", "message": "", "suggestion": ""}
    none = await red.ask("POST", f"{ROOT}/validate", token="red-token", json={"gpu_count": 9, "gpu_type": "V100"})
    assert none.json["valid"] is False
    assert "8" in none.json["message"]
    assert none.json["suggestion"] == "ask for at most 8 V100: as many are free on one node"
    large = await red.ask("POST", f"{ROOT}/validate", token="red-token", json={"memory_gb": 80})
    assert (large.json["reason"], large.json["suggestion"]) == ("ExceedsCapacity", "ask for at most 32 GB")


async def test_a_request_that_cannot_be_read_is_refused_with_the_place(red: Face) -> None:
    found = await red.ask("POST", f"{ROOT}/validate", token="red-token", json={"gpu_requirement": "2(V100"})
    assert (found.status, found.json["success"]) == (422, False)
    assert "2(V100" in found.json["message"]


async def test_an_allocation_is_a_reservation_of_the_caller_that_holds_its_devices(
    api: GatewayApiServer, red: Face
) -> None:
    asked = {"gpu_count": 2, "gpu_type": "V100", "memory_gb": 16, "mixed_precision": True, "gpu_memory_fraction": 0.5}
    asking = asyncio.create_task(red.ask("POST", f"{ROOT}/allocate", token="red-token", json=asked))
    name = await _reserved(api)
    job = api.objects["gpujobs"][f"red/{name}"]
    assert job["spec"]["reservation"] == {"durationSeconds": 86400}
    assert job["spec"]["resources"] == {"count": 2, "models": ["V100"], "minNominalMemoryGB": 16}
    assert job["metadata"]["annotations"]["dovetail.dev/user"] == "rita"
    devices = [
        {"worker": 0, "node": "b", "index": at, "uuid": f"b-{at}", "shareMilli": 1000, "memoryMiB": 32217}
        for at in range(2)
    ]
    api.run(f"red/{name}", devices=devices)
    found = await asking
    assert found.status == 200
    assert found.json["success"] is True
    assert (found.json["node_name"], found.json["allocation_id"]) == ("b", name)
    config = found.json["gpu_config"]
    # As sold, though the driver keeps some of it.
    assert (config["gpu_count"], config["visible_devices"], config["gpu_type"]) == (2, "0,1", "V100")
    assert '"memory_gb":32.0,' in found.text
    assert config["expires_at"] == "2100-01-01T00:00:00Z"
    setup = await red.ask("POST", f"{ROOT}/setup-pytorch", token="red-token", json={**asked, "allocation_id": name})
    assert (setup.json["visible_devices"], setup.json["memory_limit_mib"]) == ("b-0,b-1", 16108)
    released = await red.ask("DELETE", f"{ROOT}/allocations/{name}", token="red-token")
    again = await red.ask("DELETE", f"{ROOT}/allocations/{name}", token="red-token")
    assert (released.json["released"], again.json["released"], again.status) == (True, False, 200)


def held(node: str, index: int, **share: int) -> dict[str, Any]:
    whole = {"shareMilli": 1000, "memoryMiB": 32217}
    return {"worker": 0, "node": node, "index": index, "uuid": f"{node}-{index}"} | whole | share


async def test_an_allocation_over_two_nodes_is_described_by_its_first_node_and_its_smallest_device(
    api: GatewayApiServer, red: Face
) -> None:
    asked = {"gpu_count": 4, "distributed_training": True}
    asking = asyncio.create_task(red.ask("POST", f"{ROOT}/allocate", token="red-token", json=asked))
    name = await _reserved(api)
    api.run(
        f"red/{name}", devices=[held("b", 3), held("b", 2), held("a", 4, shareMilli=250, memoryMiB=8192), held("a", 5)]
    )
    found = (await asking).json
    config = found["gpu_config"]
    assert (found["node_name"], config["nodes"], config["visible_devices"]) == ("b", ["b", "a"], "3,2")
    assert (config["gpu_count"], config["memory_gb"]) == (4, 8.0)
    body = {**asked, "gpu_count": 1, "allocation_id": name}
    for framework, strategy in (("pytorch", "ddp"), ("tensorflow", "MultiWorkerMirroredStrategy")):
        setup = (await red.ask("POST", f"{ROOT}/setup-{framework}", token="red-token", json=body)).json
        spread = setup["distribution"]
        assert (setup["visible_devices"], setup["memory_limit_mib"]) == ("b-3,b-2", 8192)
        assert (spread["strategy"], spread["world_size"], spread["processes_per_node"]) == (strategy, 4, 2)
        assert (spread["nodes"], spread["master_address"]) == (["b", "a"], "b")
        assert setup["environment"]["CUDA_VISIBLE_DEVICES"] == "b-3,b-2"


def test_a_device_that_is_lost_counts_as_neither_idle_nor_busy() -> None:
    made = make_gpunode("a", gpus=3, utilization=0.6)
    made["status"]["devices"][1] |= {"health": "Unhealthy", "healthReason": LOST}
    gpunode, node = convert(made, as_type=GPUNode), convert(make_node("a"), as_type=Node)
    row = node_row(take([gpunode], pods=[], scheduler="", namespace="", nodes=[node]).nodes["a"])
    assert (row.utilization, row.available_gpus) == (0.6, 2)


T4: dict[str, Any] = {"model": "T4", "memoryMiB": 15360}


@pytest.mark.parametrize(
    ("wanted", "nodes", "sentence"),
    [
        (
            {"gpu_count": 9},
            [use_of("a", gpus=4), use_of("b", gpus=3)],
            "ask for at most 4 GPUs: as many are free on one node",
        ),
        (
            {"gpu_count": 9, "distributed_training": True},
            [use_of("a", gpus=4), use_of("b", gpus=3)],
            "ask for at most 7 GPUs: as many are free in all",
        ),
        (
            {"gpu_count": 9, "gpu_type": "T4"},
            [use_of("a"), use_of("b", gpus=2, **T4)],
            "ask for at most 2 T4: as many are free on one node",
        ),
        (
            {"gpu_type": "V100", "memory_gb": 16},
            [use_of("b", gpus=2, **T4)],
            "ask for another gpu_type or at most 16 GB: no V100 of that size is free",
        ),
        ({}, [], "no GPU is free: wait until a job ends, or allocate with a higher priority"),
    ],
)
def test_what_would_fit_is_suggested(wanted: dict[str, Any], nodes: list[NodeUse], sentence: str) -> None:
    assert suggestion(Wanted(**wanted), nodes=nodes, specs={}) == sentence


def test_where_no_device_takes_work_its_reason_is_suggested() -> None:
    sick = use_of("a", gpus=1, health="Unhealthy", healthReason="XID 79")
    assert "no GPU takes work: " in suggestion(Wanted(), nodes=[sick], specs={})


async def _reserved(api: GatewayApiServer) -> str:
    async with asyncio.timeout(10):
        while True:
            names = [key for key in api.objects["gpujobs"] if key.startswith("red/alloc-")]
            if names:
                return names[0].removeprefix("red/")
            await asyncio.sleep(0)


async def test_an_allocation_without_a_place_is_withdrawn_and_refused_with_the_queues_sentence(
    api: GatewayApiServer,
) -> None:
    async with serving(api, options=RED, wait_seconds=0.3) as face:
        asking = asyncio.create_task(face.ask("POST", f"{ROOT}/allocate", token="red-token", json={"gpu_count": 8}))
        name = await _reserved(api)
        job = api.objects["gpujobs"][f"red/{name}"]
        job["status"] = {"phase": "Queued", "reason": "Resources", "message": "Need 8 GPUs, only 6 available"}
        api.put("gpujobs", job)
        found = await asking
    assert found.status == 409
    assert found.json == {"success": False, "reason": "Resources", "message": "Need 8 GPUs, only 6 available"}
    assert f"red/{name}" not in api.objects["gpujobs"]


async def test_a_request_that_could_never_fit_is_refused_without_a_wait(api: GatewayApiServer) -> None:
    async with serving(api, options=RED, wait_seconds=3600) as face:
        asking = asyncio.create_task(face.ask("POST", f"{ROOT}/allocate", token="red-token", json={"gpu_count": 9}))
        job = api.objects["gpujobs"][f"red/{await _reserved(api)}"]
        job["status"] = {"phase": "Queued", "reason": "ExceedsCapacity", "message": "Need 9 GPUs, only 8 available"}
        api.put("gpujobs", job)
        assert ((await asking).status, (await asking).json["reason"]) == (409, "ExceedsCapacity")


async def test_an_allocation_whose_client_hangs_up_is_withdrawn(api: GatewayApiServer, red: Face) -> None:
    asking = asyncio.create_task(red.ask("POST", f"{ROOT}/allocate", token="red-token", json={"gpu_count": 1}))
    name = await _reserved(api)
    asking.cancel()
    async with asyncio.timeout(10):
        while f"red/{name}" in api.objects["gpujobs"]:  # noqa: ASYNC110 - the tests' API server has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A"])
async def test_what_is_no_name_of_an_allocation_never_reaches_the_api_server(
    api: GatewayApiServer, red: Face, name: str
) -> None:
    found = await red.ask("POST", f"{ROOT}/setup-pytorch", token="red-token", json={"allocation_id": name})
    assert (found.status, "allocation_id" in found.json["message"]) == (422, True)
    assert not api.requests


async def test_who_may_not_create_jobs_learns_nothing_from_allocate(red: Face) -> None:
    for asked in ({"gpu_count": 1}, {"memory_gb": 4000}):
        found = await red.ask("POST", f"{ROOT}/allocate", token="reader-token", json=asked)
        assert (found.status, found.json["reason"]) == (403, "Forbidden")


async def test_a_job_that_is_no_allocation_is_not_released(api: GatewayApiServer, red: Face) -> None:
    found = await red.ask("DELETE", f"{ROOT}/allocations/train", token="red-token")
    assert (found.status, found.json["reason"]) == (409, "NoAllocation")
    assert "red/train" in api.objects["gpujobs"]


async def test_scripts_without_a_token_act_as_the_configured_account(api: GatewayApiServer) -> None:
    options = Options(
        rates=None, allocation_namespace="red", legacy=Account(namespace="dovetail-system", name="legacy")
    )
    async with serving(api, options=options) as face:
        for _ in range(2):
            assert (await face.get(f"{ROOT}/status")).status == 200
        await face.ask("DELETE", f"{ROOT}/allocations/none")
    assert api.token_requests == 1
    assert api.requests[-1] == ("rita", "get", "red/none")


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        ({"gpu_count": 2}, {"resources": {"count": 2}, "workers": 1}),
        ({"gpu_type": "v100"}, {"resources": {"count": 1, "models": ["v100"]}, "workers": 1}),
        ({"memory_gb": 32}, {"resources": {"count": 1, "minNominalMemoryGB": 32}, "workers": 1}),
        ({"memory_gb": 15.5}, {"resources": {"count": 1, "minNominalMemoryGB": 16}, "workers": 1}),
        ({"memory_gb": 0}, {"resources": {"count": 1}, "workers": 1}),
        ({"gpu_count": 12, "distributed_training": True}, {"resources": {"count": 6}, "workers": 2}),
        ({"gpu_count": 16, "distributed_training": True}, {"resources": {"count": 8}, "workers": 2}),
        ({"gpu_count": 4, "distributed_training": True}, {"resources": {"count": 4}, "workers": 1}),
        ({"gpu_requirement": "8G,0.5", "gpu_count": 3}, {"gpu": "8G,0.5"}),
        ({"gpu_requirement": "16(V100)", "distributed_training": True}, {"gpu": "8(V100)", "workers": 2}),
        ({"gpu_requirement": "4(>=32G)", "distributed_training": True}, {"gpu": "4(>=32G)", "workers": 1}),
        ({"priority": 200}, {"priority": 200}),
    ],
)
def test_a_request_becomes_a_spec(wanted: dict[str, Any], spec: dict[str, Any]) -> None:
    found = reservation(Wanted(**wanted), nodes=[use_of("a"), use_of("b")])
    assert not isinstance(found, NoSuchGPU)
    assert spec.items() <= found.spec.items()


def test_a_model_of_several_sizes_has_its_larger_devices() -> None:
    mixed = [use_of("a"), use_of("b", memoryMiB=16384)]
    found = reservation(Wanted(gpu_type="V100", memory_gb=32), nodes=mixed)
    assert not isinstance(found, NoSuchGPU)
    assert found.spec["resources"] == {"count": 1, "models": ["V100"], "minNominalMemoryGB": 32}
    assert isinstance(reservation(Wanted(memory_gb=33), nodes=mixed), NoSuchGPU)


def test_workers_of_a_distributed_request_count_devices_of_its_size_only() -> None:
    mixed = [use_of("a"), use_of("b", memoryMiB=16384)]
    found = reservation(Wanted(gpu_count=8, memory_gb=32, distributed_training=True), nodes=mixed)
    assert not isinstance(found, NoSuchGPU)
    assert (found.spec["resources"]["count"], found.workers) == (8, 1)


def test_a_distributed_request_is_split_so_that_nodes_of_different_sizes_have_room_for_it() -> None:
    found = reservation(
        Wanted(gpu_count=12, distributed_training=True), nodes=[use_of("a", gpus=8), use_of("b", gpus=4)]
    )
    assert not isinstance(found, NoSuchGPU)
    assert (found.spec["resources"]["count"], found.workers) == (4, 3)


def test_a_configured_size_of_a_model_counts() -> None:
    odd = [use_of("a", memoryMiB=20000)]
    assert isinstance(reservation(Wanted(memory_gb=24), nodes=odd), NoSuchGPU)
    assert not isinstance(reservation(Wanted(memory_gb=24), nodes=odd, specs={"V100": 24}), NoSuchGPU)


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, 80),
        ("NVIDIA A100-SXM4-40GB", 40960, 40),
        ("A100", 81920, 80),
        ("A100", 40536, 40),
        ("Tesla T4", 15360, 16),
        ("V100", 16160, 16),
        ("Unknown 9", 12000, 12),
    ],
)
def test_the_nominal_size_is_that_on_the_box(name: str, mib: int, expected: int) -> None:
    assert nominal_gb(name, memory_mib=mib) == expected


def test_pytorch_of_several_gpus_uses_ddp_over_nccl_and_autocast() -> None:
    wanted = Wanted(gpu_count=4, distributed_training=True, mixed_precision=True, memory_gb=16, gpu_memory_fraction=0.5)
    found = pytorch(wanted)
    spread = found.distribution
    assert (found.visible_devices, found.precision, found.memory_limit_mib) == ("0,1,2,3", "float16", 8192)
    assert (spread.strategy, spread.world_size, spread.backend, spread.master_address) == (
        "ddp",
        4,
        "nccl",
        "127.0.0.1",
    )
    assert found.environment["WORLD_SIZE"] == "4"


def test_tensorflow_of_one_gpu_has_no_strategy_and_a_precision_policy() -> None:
    found = tensorflow(Wanted(mixed_precision=True))
    assert (found.precision, found.distribution.enabled, found.memory_limit_mib) == ("mixed_float16", False, None)
    assert tensorflow(Wanted(gpu_count=2, distributed_training=True)).distribution.strategy == "MirroredStrategy"


async def test_the_rows_of_nodes_that_are_gone_are_kept_no_more() -> None:
    """An autoscaler gives each node a name of its own."""
    cache = make_cache(Settings())
    calls = StatusCalls(cache, now=lambda: NOW)
    for at in range(3):
        gpunode = make_gpunode(f"n-{at}", gpus=1)
        gpunode["metadata"]["resourceVersion"] = str(2 * at + 1)
        tell(cache, "gpunodes", "ADDED", gpunode)
        answer = await calls.get_status(None)  # type: ignore[arg-type]
        assert json.loads(answer.encoded or b"")["total_nodes"] == 1
        assert list(calls._rows) == [f"n-{at}"]
        gpunode["metadata"]["resourceVersion"] = str(2 * at + 2)
        tell(cache, "gpunodes", "DELETED", gpunode)


def device(node: str, index: int, *, mib: int = 32768) -> AllocatedDevice:
    return AllocatedDevice(node=node, index=index, uuid=f"{node}-{index}", gpu_type="V100", memory_mib=mib)


def spread(**fields: Any) -> dict[str, Any]:
    one = {"enabled": False, "strategy": "none", "world_size": 1, "nodes": [], "processes_per_node": 1}
    return one | {"master_address": "127.0.0.1", "master_port": 29500, "backend": ""} | fields


SETUPS: list[tuple[Any, dict[str, Any], list[AllocatedDevice], dict[str, Any]]] = [
    (
        pytorch,
        {},
        [],
        {"framework": "pytorch", "visible_devices": "0", "precision": "float32", "distribution": spread()}
        | {"environment": {"CUDA_VISIBLE_DEVICES": "0"}, "memory_limit_mib": None},
    ),
    (
        pytorch,
        {"distributed_training": True, "gpu_memory_fraction": 0.5},
        [device("b", 1), device("b", 0, mib=16384), device("a", 3), device("a", 2)],
        {"framework": "pytorch", "visible_devices": "b-1,b-0", "precision": "float32", "memory_limit_mib": 8192}
        | {
            "distribution": spread(
                enabled=True,
                strategy="ddp",
                world_size=4,
                nodes=["b", "a"],
                processes_per_node=2,
                master_address="b",
                backend="nccl",
            ),
            "environment": {
                "CUDA_VISIBLE_DEVICES": "b-1,b-0",
                "MASTER_ADDR": "b",
                "MASTER_PORT": "29500",
                "WORLD_SIZE": "4",
            },
        },
    ),
    (
        tensorflow,
        {"gpu_count": 2, "gpu_type": "V100", "gpu_memory_fraction": 0.25, "mixed_precision": True},
        [],
        {"framework": "tensorflow", "visible_devices": "0,1", "precision": "mixed_float16", "memory_limit_mib": 8192}
        | {
            "distribution": spread(world_size=2, processes_per_node=2),
            "environment": {"CUDA_VISIBLE_DEVICES": "0,1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        },
    ),
    (
        tensorflow,
        {"distributed_training": True, "memory_gb": 1.5},
        [device("a", 0), device("a", 1)],
        {"framework": "tensorflow", "visible_devices": "a-0,a-1", "precision": "float32", "memory_limit_mib": 32768}
        | {
            "distribution": spread(
                enabled=True,
                strategy="MirroredStrategy",
                world_size=2,
                nodes=["a"],
                processes_per_node=2,
                master_address="a",
                backend="nccl",
            ),
            "environment": {"CUDA_VISIBLE_DEVICES": "a-0,a-1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        },
    ),
    (
        tensorflow,
        {"distributed_training": True, "memory_gb": 1.5},
        [],
        {"framework": "tensorflow", "visible_devices": "0", "precision": "float32", "memory_limit_mib": 1536}
        | {
            "distribution": spread(),
            "environment": {"CUDA_VISIBLE_DEVICES": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        },
    ),
]


@pytest.mark.parametrize(("of", "wanted", "devices", "setup"), SETUPS)
def test_the_settings_of_a_framework_field_for_field(
    of: Any, wanted: dict[str, Any], devices: list[AllocatedDevice], setup: dict[str, Any]
) -> None:
    found = of(Wanted(**wanted), devices=devices)
    asked = {"memory_fraction": wanted.get("gpu_memory_fraction"), "mixed_precision": "mixed_precision" in wanted}
    assert msgspec.to_builtins(found) == {"success": True} | asked | setup


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "message": "it failed"}, "Resources"),
        ({"phase": "Cancelled", "message": "it failed"}, "Resources"),
        ({"phase": "TimedOut", "message": "it failed"}, "Resources"),
        ({"phase": "Queued", "reason": "Invalid", "message": "it failed"}, "Invalid"),
    ],
)
async def test_an_allocation_that_ends_otherwise_is_refused_without_a_wait(
    api: GatewayApiServer, status: dict[str, str], reason: str
) -> None:
    async with serving(api, options=RED, wait_seconds=3600) as face:
        asking = asyncio.create_task(face.ask("POST", f"{ROOT}/allocate", token="red-token", json={"gpu_count": 1}))
        name = await _reserved(api)
        job = api.objects["gpujobs"][f"red/{name}"]
        # A worker runs before the operator has written which devices it has.
        placed = {"phase": "Starting", "devices": [held("a", 0)]}
        for each in ({"phase": "Queued", "reason": "Resources"}, {"phase": "Running"}, placed, status):
            job["status"] = each
            api.put("gpujobs", job)
        found = await asking
    assert (found.status, found.json["reason"], found.json["message"]) == (409, reason, "it failed")
    assert f"red/{name}" not in api.objects["gpujobs"]


async def test_an_allocation_field_for_field(api: GatewayApiServer, red: Face) -> None:
    asked = {"gpu_count": 2, "mixed_precision": True, "gpu_memory_fraction": 0.5}
    asking = asyncio.create_task(red.ask("POST", f"{ROOT}/allocate", token="red-token", json=asked))
    name = await _reserved(api)
    # A device that its agent does not report any more.
    devices = [held("b", 3), held("gone", 0, memoryMiB=16384)]
    api.objects["gpujobs"][f"red/{name}"]["status"] = {
        "phase": "Running",
        "nodes": ["gone", "b"],
        "devices": devices,
        "lease": {"expirationTime": "2100-01-01T00:00:00Z"},
    }
    api.put("gpujobs", api.objects["gpujobs"][f"red/{name}"])
    found = await asking
    assert found.json == {
        "success": True,
        "node_name": "b",
        "allocation_id": name,
        "gpu_config": {
            "gpu_count": 2,
            "gpu_type": "V100",
            "memory_gb": 16.0,
            "nodes": ["b", "gone"],
            "devices": [
                {"node": "b", "index": 3, "uuid": "b-3", "gpu_type": "V100", "memory_mib": 32217},
                {"node": "gone", "index": 0, "uuid": "gone-0", "gpu_type": "", "memory_mib": 16384},
            ],
            "visible_devices": "3",
            "distributed_training": False,
            "mixed_precision": True,
            "gpu_memory_fraction": 0.5,
            "namespace": "red",
            "expires_at": "2100-01-01T00:00:00Z",
        },
    }
