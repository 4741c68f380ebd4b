"""v2 over a real port: devices by their numbers over the cluster, and tasks as GPUJobs of the caller."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

from dovetail.answers.inventory import take
from dovetail.answers.questions import DryRun
from dovetail.api.builtin import Node
from dovetail.api.gpujob import GPUJob, Phase
from dovetail.api.gpunode import GPUNode
from dovetail.config.errors import ConfigError
from dovetail.decoding import decode
from dovetail.gpu.device_indexes import NodeDevice
from dovetail_gateway.access.callers import ANONYMOUS
from dovetail_gateway.access.legacy_account import Account
from dovetail_gateway.app import Options
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v2.devices import Devices, devices_of
from dovetail_gateway.v2.tasks import Tasks, task_of
from dovetail_gateway.v2.templates import TemplateFile, Templates
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import EDIT, GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.served import TASKS, Face, Reply, serving

ROOT = "/api/v2"
RED = Options(rates=None, allocation_namespace="red")
TRAINING = {"model": "yolo", "num_classes": 3, "train_path": "/data/t", "val_path": "/data/v", "save_path": "/out"}
INFERENCE = {"cfg_path": "/c", "weight_path": "/w", "source_path": "/s"}
TASK = {"dovetail.dev/task-type": "training"}


@pytest.fixture
async def two(api: GatewayApiServer) -> GatewayApiServer:
    """Two nodes with one V100 each; the younger node sorts first."""
    api.delete("pods", "red/train-0")
    api.delete("pods", "canaryns/canarypod")
    for name in ("a", "b"):
        api.put("gpunodes", make_gpunode(name, gpus=1, utilization=0.5, usedMiB=1024, computeCapability="7.0"))
    api.number("b/cuda:0", "a/cuda:0")
    return api


@pytest.fixture
async def red(two: GatewayApiServer) -> Any:
    """A gateway whose tasks are in the namespace `red`, and which does not wait for devices."""
    async with serving(two, options=RED, wait_seconds=0.05) as started:
        yield started


def task(name: str, *, namespace: str = "red", **status: Any) -> dict[str, Any]:
    job = make_job(name, namespace=namespace, status={"phase": "Running", **status}, workload="Training")
    job["metadata"]["labels"] |= TASK
    return job


def on(node: str, index: int = 0) -> dict[str, Any]:
    return {"worker": 0, "node": node, "index": index, "uuid": f"{node}-{index}", "shareMilli": 250, "memoryMiB": 4096}


def _tasks_in(api: GatewayApiServer) -> list[str]:
    return [key for key in api.objects["gpujobs"] if key.startswith("red/train-")]


async def train(face: Face, *, token: str = "red-token", **fields: Any) -> Reply:
    return await face.ask("POST", f"{ROOT}/training/start", token=token, json={**TRAINING, **fields})


async def until_seen(face: Face, path: str, *, holds: Any) -> Any:
    async with asyncio.timeout(10):
        while not holds(found := (await face.get(path, token="red-token")).json):  # noqa: ASYNC110 - as callers ask
            await asyncio.sleep(0.01)
    return found


async def test_a_training_task_is_a_job_of_the_caller_with_the_fields_as_arguments_and_variables(
    two: GatewayApiServer, red: Face
) -> None:
    found = await train(red, device="cuda:0", lr=0.1, note="$(HOME)")
    assert (found.status, found.json["status"], found.json["device"]) == (200, "pending", "cuda:0"), found.text
    job = two.objects["gpujobs"][f"red/{found.json['task_id']}"]
    assert job["metadata"]["annotations"]["dovetail.dev/user"] == "rita"
    assert job["spec"]["resources"] == {"share": 0.25, "memory": "4Gi", "device": "b/cuda:0"}
    assert (job["spec"]["workload"], job["spec"]["mode"]) == ("Training", "Fractional")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][:4] == ["--model", "yolo", "--num_classes", "3"]
    assert {"name": "TASK_TRAIN_PATH", "value": "/data/t"} in container["env"]
    assert {"name": "TASK_NOTE", "value": "$$(HOME)"} in container["env"]
    assert {"name": "TASK_LR", "value": "0.1"} in container["env"]
    assert {"name": "TASK_DEVICE", "value": "cuda:0"} in container["env"]


async def test_a_task_counts_the_one_gpu_of_its_container_from_0(two: GatewayApiServer, red: Face) -> None:
    found = await train(red, device="cuda:1")
    job = two.objects["gpujobs"][f"red/{found.json['task_id']}"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (found.json["device"], job["spec"]["resources"]["device"]) == ("cuda:1", "a/cuda:0")
    assert container["args"][-2:] == ["--device", "cuda:0"]


async def test_a_device_without_a_number_yet_is_no_refusal_for_good(two: GatewayApiServer) -> None:
    two.delete("configmaps", "dovetail-device-indexes")
    async with serving(two, options=RED) as face:
        found = await train(face, device="cuda:0")
    assert (found.status, found.json["reason"], found.headers["Retry-After"]) == (503, "NotNumbered", "2")
    assert found.json["detail"] == "device cuda:0 has no number yet: 2 GPUs of this cluster wait for the operator"


async def test_instances_of_a_partitioned_device_are_not_counted(two: GatewayApiServer) -> None:
    two.put("gpunodes", make_gpunode("a", gpus=1, migProfile="1g.10gb"))
    async with serving(two, options=RED) as face:
        found = await train(face, device="cuda:1")
    assert found.json["detail"] == "device cuda:1 does not exist: this cluster has 1 GPU (cuda:0)"


async def test_an_inference_task_starts_likewise(two: GatewayApiServer, red: Face) -> None:
    found = await red.ask("POST", f"{ROOT}/inference/start", token="red-token", json=INFERENCE)
    job = two.objects["gpujobs"][f"red/{found.json['task_id']}"]
    assert (found.json["device"], job["spec"]["workload"], job["spec"]["policy"]) == ("cuda", "Inference", "Spread")


async def test_a_task_that_starts_at_once_is_answered_with_its_device(two: GatewayApiServer) -> None:
    async with serving(two, options=RED, wait_seconds=30) as face:
        asking = asyncio.create_task(train(face))
        async with asyncio.timeout(10):
            while not (names := _tasks_in(two)):  # noqa: ASYNC110 - the tests' API server has no event
                await asyncio.sleep(0.01)
        two.run(names[0], devices=[on("a")])
        assert ((await asking).json["status"], (await asking).json["device"]) == ("running", "cuda:1")


@pytest.mark.parametrize("device", ["cuda:2", "cuda:999", "a/cuda:1", "c/cuda:0"])
async def test_a_device_that_does_not_exist_is_refused_with_those_that_do(
    two: GatewayApiServer, red: Face, device: str
) -> None:
    found = await train(red, device=device)
    assert found.status == 422
    assert found.json["detail"] == f"device {device} does not exist: this cluster has 2 GPUs (cuda:0, cuda:1)"
    assert not [request for request in two.requests if request[1] == "create"]


async def test_the_number_of_a_device_that_is_gone_does_not_exist(two: GatewayApiServer, red: Face) -> None:
    two.delete("gpunodes", "b")
    found = await until_seen(red, f"{ROOT}/resources/gpu", holds=lambda found: found["count"] == 1)
    assert [row["device_name"] for row in found["devices"]] == ["cuda:1"]
    refused = await train(red, device="cuda:0")
    assert refused.json["detail"] == "device cuda:0 does not exist: this cluster has 1 GPU (cuda:1)"


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:-1", "CUDA:0", "cuda:1000", "/cuda:0", "a/cuda"])
async def test_a_device_that_cannot_be_read_is_refused_with_what_is_allowed(red: Face, device: str) -> None:
    found = await train(red, device=device)
    assert (found.status, "allowed are cuda, cuda:N, NODE/cuda:N and cpu" in found.json["detail"]) == (422, True)


async def test_a_task_on_the_cpu_asks_for_no_gpu(two: GatewayApiServer, red: Face) -> None:
    found = await train(red, device="cpu")
    job = two.objects["gpujobs"][f"red/{found.json['task_id']}"]
    assert (found.json["device"], job["spec"]["resources"]) == ("cpu", {"device": "cpu"})
    assert not {"mode", "workload"} & job["spec"].keys()


async def test_without_any_gpu_cuda_runs_on_the_cpu_and_the_answer_says_so(two: GatewayApiServer, red: Face) -> None:
    two.delete("gpunodes", "a")
    two.delete("gpunodes", "b")
    await until_seen(red, f"{ROOT}/resources/gpu", holds=lambda found: not found["available"])
    found = await train(red)
    assert (found.json["device"], found.json["message"]) == (
        "cpu", "this cluster has no GPU: the task runs on the CPU",
    )  # fmt: skip
    id_ = found.json["task_id"]
    shown = await until_seen(red, f"{ROOT}/tasks/{id_}", holds=lambda found: "message" in found)
    assert (shown["device"], shown["message"]) == ("cpu", "this cluster has no GPU: the task runs on the CPU")
    assert (await train(red, device="cuda:0")).json[
        "detail"
    ] == "device cuda:0 does not exist: this cluster has no GPUs"


async def test_a_task_that_its_template_moves_to_the_cpu_says_so(two: GatewayApiServer, red: Face) -> None:
    id_ = (await train(red)).json["task_id"]
    message = "Runs on the CPU: Need 1 GPU, only 0 available"
    two.objects["gpujobs"][f"red/{id_}"]["status"] = {"phase": "Running", "device": "cpu", "message": message}
    two.put("gpujobs", two.objects["gpujobs"][f"red/{id_}"])
    shown = await until_seen(red, f"{ROOT}/tasks/{id_}", holds=lambda found: found.get("status") == "running")
    assert (shown["device"], shown["message"]) == ("cpu", message)


async def test_a_named_device_is_waited_for_whatever_the_namespace_s_default_is(
    two: GatewayApiServer, red: Face
) -> None:
    found = await train(red, device="cuda:0")
    assert two.objects["gpujobs"][f"red/{found.json['task_id']}"]["spec"]["onNoGPU"] == "Wait"


@pytest.mark.parametrize(
    ("fields", "memory"),
    [
        ({"parameter_count": 1_000_000}, {"strategy": "Dynamic", "parameters": 1_000_000, "batchSize": 1}),
        (
            {"parameter_count": 25_600_000, "batch_size": 16},
            {"strategy": "Dynamic", "parameters": 25_600_000, "batchSize": 16},
        ),
    ],
)
async def test_a_task_with_a_number_of_parameters_is_promised_what_its_model_needs(
    two: GatewayApiServer, red: Face, fields: dict[str, Any], memory: dict[str, Any]
) -> None:
    found = await train(red, **fields)
    spec = two.objects["gpujobs"][f"red/{found.json['task_id']}"]["spec"]
    assert (spec["memory"], spec["resources"]) == (memory, {"share": 0.25, "device": "cuda"})


@pytest.mark.parametrize("fields", [{"batch_size": 16}, {"parameter_count": 1_000_000, "batch_size": -1}])
async def test_without_parameters_or_a_batch_size_the_template_s_memory_counts(
    two: GatewayApiServer, red: Face, fields: dict[str, Any]
) -> None:
    found = await train(red, **fields)
    spec = two.objects["gpujobs"][f"red/{found.json['task_id']}"]["spec"]
    assert ("memory" in spec, spec["resources"]["memory"]) == (False, "4Gi")


async def test_a_model_that_fits_no_device_is_refused_before_it_starts(two: GatewayApiServer, red: Face) -> None:
    found = await train(red, parameter_count=7_000_000_000, batch_size=8)
    assert (found.status, found.json["reason"]) == (409, "ExceedsCapacity")
    assert "MiB on a GPU" in found.json["detail"]


async def test_a_task_with_more_memory_than_any_device_is_refused_before_it_starts(
    two: GatewayApiServer, tmp_path: Path
) -> None:
    assert TASKS.path is not None
    file = tmp_path / "templates.yaml"
    file.write_text(TASKS.path.read_text(encoding="utf-8").replace("4Gi", "60Gi"), encoding="utf-8")
    options = Options(rates=None, allocation_namespace="red", templates=TemplateFile(file))
    async with serving(two, options=options) as face:
        found = await train(face)
    assert (found.status, found.json["reason"]) == (409, "ExceedsCapacity")
    assert "need 61440 MiB on a GPU" in found.json["detail"]
    assert not [request for request in two.requests if request[1] == "create"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_classes": "many"}, "num_classes"),
        ({"num_classes": 0}, "num_classes"),
        ({"model": 5}, "model"),
        ({"bad name": 1}, "bad name"),
        ({"parameter_count": "7B"}, "parameter_count"),
        ({"parameter_count": 0}, "parameter_count"),
        ({"note": "x" * 5000}, "note"),
        ({"note": "a\0b"}, "note"),
    ],
)
async def test_a_wrong_field_is_named(red: Face, changes: dict[str, Any], named: str) -> None:
    found = await train(red, **changes)
    assert (found.status, named in found.json["detail"]) == (422, True), found.text


async def test_who_may_not_create_jobs_starts_no_task_and_learns_nothing(red: Face) -> None:
    found = await train(red, token="reader-token", device="cuda:9")
    assert (found.status, found.json["reason"]) == (403, "Forbidden")


async def test_resources_count_all_tasks_and_name_only_those_that_the_caller_may_list(
    two: GatewayApiServer, red: Face
) -> None:
    two.put("gpujobs", task("mine", devices=[on("b")]))
    two.put("gpujobs", task("theirs", namespace="canaryns", devices=[on("b")]))
    two.put("gpujobs", task("over", devices=[on("b")]) | {"status": {"phase": "Succeeded", "devices": [on("b")]}})
    found = await until_seen(
        red, f"{ROOT}/resources", holds=lambda found: found["device_usage"]["cuda:0"]["training"] == 2
    )
    assert found["active_tasks"] == {"cuda:0": [{"id": "mine", "type": "training"}], "cuda:1": []}
    assert found["limits"]["cuda:1"] == {"training": 1, "inference": 3}


async def test_a_task_with_several_workers_on_a_device_is_one_of_its_tasks(two: GatewayApiServer, red: Face) -> None:
    """Tasks are counted by device, not workers."""
    two.put("gpujobs", task("wide", devices=[on("b"), on("b") | {"worker": 1}, on("a") | {"worker": 2}]))
    two.put("gpujobs", task("infers", devices=[on("b")]) | {"spec": {"gpu": 1, "workload": "Inference"}})
    found = await until_seen(red, f"{ROOT}/resources", holds=lambda found: len(found["active_tasks"]["cuda:0"]) >= 2)
    assert found["device_usage"] == {
        "cuda:0": {"training": 1, "inference": 1}, "cuda:1": {"training": 1, "inference": 0},
    }  # fmt: skip
    ids = {device: sorted(each["id"] for each in tasks) for device, tasks in found["active_tasks"].items()}
    assert ids == {"cuda:0": ["infers", "wide"], "cuda:1": ["wide"]}
    gpus = (await red.get(f"{ROOT}/resources/gpu", token="red-token")).json["devices"]
    assert [row["current_tasks"] for row in gpus] == list(found["device_usage"].values())


async def test_each_device_is_shown_with_what_is_promised_and_null_for_what_is_not_known(red: Face) -> None:
    found = (await red.get(f"{ROOT}/resources/gpu", token="red-token")).json
    assert (found["available"], found["count"], found["cuda_version"], found["pytorch_version"]) == (
        True,
        2,
        None,
        None,
    )
    assert found["devices"][0] == {
        "id": 0, "device_name": "cuda:0", "node": "b", "index": 0, "name": "V100", "compute_capability": "7.0",
        "total_memory_gb": 32.0, "allocated_memory_gb": 0.0, "cached_memory_gb": None, "free_memory_gb": 31.0,
        "utilization": 50.0, "temperature": None, "power": None, "stale": False, "message": "",
        "current_tasks": {"training": 0, "inference": 0},
    }  # fmt: skip


async def test_limits_are_written_to_the_device_as_the_caller_and_count_for_a_new_gateway(
    two: GatewayApiServer, red: Face
) -> None:
    body = {"max_concurrent": {"cuda:0": {"training": 2}, "cuda:1": {"training": 0, "inference": 5}}}
    found = await red.ask("POST", f"{ROOT}/resources/config", token="admin-token", json=body)
    expected = {"cuda:0": {"training": 2, "inference": 3}, "cuda:1": {"training": 0, "inference": 5}}
    assert (found.status, found.json) == (200, {"success": True, "limits": expected})
    assert ("admin", "patch", "gpunodes/b") in two.requests
    assert (await red.get(f"{ROOT}/resources", token="red-token")).json["limits"] == expected
    async with serving(two, options=RED) as again:
        assert (await again.get(f"{ROOT}/resources", token="red-token")).json["limits"] == expected


async def test_limits_that_were_just_written_are_there_though_the_watch_is_late(
    two: GatewayApiServer, red: Face
) -> None:
    two.late_seconds = 0.2
    body = {"max_concurrent": {"cuda:0": {"training": 2}, "cuda:1": {"training": 0}}}
    written = await red.ask("POST", f"{ROOT}/resources/config", token="admin-token", json=body)
    found = (await red.get(f"{ROOT}/resources", token="red-token")).json["limits"]
    assert (written.json["limits"], [each["training"] for each in found.values()]) == (found, [2, 0])


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"cuda:5": {"training": 1}}, "device cuda:5 does not exist: this cluster has 2 GPUs (cuda:0, cuda:1)"),
        ({"cuda:0": {"inference": -1}}, "max_concurrent of cuda:0: inference is -1, allowed are 0 to 48"),
        ({"cuda": {"inference": 1}}, "device cuda does not exist: this cluster has 2 GPUs (cuda:0, cuda:1)"),
    ],
)
async def test_one_wrong_limit_is_named_and_none_is_written(
    two: GatewayApiServer, red: Face, limits: dict[str, Any], sentence: str
) -> None:
    body = {"max_concurrent": {"cuda:1": {"training": 4}, **limits}}
    found = await red.ask("POST", f"{ROOT}/resources/config", token="admin-token", json=body)
    assert (found.status, found.json["detail"]) == (422, sentence)
    assert not [request for request in two.requests if request[1] == "patch"]


async def test_who_may_not_change_nodes_changes_no_limit(red: Face) -> None:
    body = {"max_concurrent": {"cuda:0": {"training": 2}}}
    found = await red.ask("POST", f"{ROOT}/resources/config", token="red-token", json=body)
    assert (found.status, "gpunodes" in found.json["detail"]) == (403, True)


async def test_tasks_are_listed_in_pages_by_state_and_no_other_job_is(two: GatewayApiServer, red: Face) -> None:
    for name in ("t1", "t2", "t3"):
        two.put("gpujobs", task(name, devices=[on("a")]))
    two.put("gpujobs", task("t4") | {"status": {"phase": "Queued", "message": "Need 1 GPU, only 0 available"}})
    path = f"{ROOT}/tasks?status=running&limit=2"
    first = await until_seen(red, path, holds=lambda found: found["total"] == 3)
    assert [row["task_id"] for row in first["tasks"]] == ["t1", "t2"]
    second = (await red.get(f"{path}&cursor={first['next']}", token="red-token")).json
    assert ([row["task_id"] for row in second["tasks"]], second["next"]) == (["t3"], None)
    assert (second["tasks"][0]["device"], second["tasks"][0]["node"]) == ("cuda:1", None)
    waiting = (await red.get(f"{ROOT}/tasks/t4", token="red-token")).json
    assert (waiting["status"], waiting["message"]) == ("pending", "Need 1 GPU, only 0 available")
    assert (await red.get(f"{ROOT}/tasks/train", token="red-token")).status == 404


async def test_a_task_that_waits_for_its_device_names_the_idle_ones(two: GatewayApiServer, red: Face) -> None:
    waiting = task("t1") | {"status": {"phase": "Queued", "message": "Need 1 GPU, only 0 available"}}
    waiting["spec"] |= {"gpu": None, "resources": {"share": 0.5, "device": "b/cuda:0"}}
    two.put("gpujobs", waiting)
    path = f"{ROOT}/tasks/t1"
    found = await until_seen(red, path, holds=lambda found: "message" in found)
    assert found["message"] == "Need 1 GPU, only 0 available; cuda:0, cuda:1 are idle"
    two.put("pods", make_bound_pod("t0", namespace="red", job="t0", number=9, device="b-0", node="b"))
    found = await until_seen(red, path, holds=lambda found: "cuda:0" not in found["message"])
    assert found["message"] == "Need 1 GPU, only 0 available; cuda:1 is idle"
    waiting["spec"]["resources"] = {"share": 0.5, "device": "cuda"}
    two.put("gpujobs", waiting)
    found = await until_seen(red, path, holds=lambda found: found["device"] == "cuda")
    assert found["message"] == "Need 1 GPU, only 0 available"


async def test_a_cancelled_task_is_answered_as_cancelled_and_one_that_still_runs_as_running(
    two: GatewayApiServer, red: Face
) -> None:
    two.put("gpujobs", task("t1") | {"status": {"phase": "Queued"}})
    two.put("gpujobs", task("t2", devices=[on("a")]))
    found = [await red.ask("POST", f"{ROOT}/tasks/{name}/cancel", token="red-token") for name in ("t1", "t2")]
    assert [each.json["status"] for each in found] == ["cancelled", "running"]


async def test_a_cancel_waits_shortly_for_the_end(two: GatewayApiServer) -> None:
    two.put("gpujobs", task("t1", devices=[on("a")]))
    async with serving(two, options=RED) as face:
        asking = asyncio.create_task(face.ask("POST", f"{ROOT}/tasks/t1/cancel", token="red-token"))
        async with asyncio.timeout(10):
            while not two.objects["gpujobs"]["red/t1"]["spec"].get("cancel"):  # noqa: ASYNC110 - as callers ask
                await asyncio.sleep(0.005)
        job = two.objects["gpujobs"]["red/t1"]
        two.put("gpujobs", job | {"status": {"phase": "Cancelled"}})
        assert (await asking).json["status"] == "cancelled"


async def test_a_cancel_is_idempotent_and_stays_as_the_caller(two: GatewayApiServer, red: Face) -> None:
    two.put("gpujobs", task("t1", devices=[on("a")]))
    for _ in range(2):
        found = await red.ask("POST", f"{ROOT}/tasks/t1/cancel", token="red-token")
        assert found.status == 200
    assert two.objects["gpujobs"]["red/t1"]["spec"]["cancel"] is True
    assert [request for request in two.requests if request[1] == "patch"] == [("rita", "patch", "red/t1")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "{url}"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "{url}"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
    ids=[
        "a script",
        "own origin",
        "own page",
        "typed",
        "another site",
        "a sibling",
        "no origin",
        "an old browser",
        "a sandboxed frame",
    ],
)
async def test_a_form_of_another_site_cancels_nothing_as_the_legacy_account(
    two: GatewayApiServer, headers: dict[str, str], status: int
) -> None:
    two.put("gpujobs", task("t1", devices=[on("a")]))
    legacy = Account(namespace="dovetail-system", name="legacy")
    async with serving(two, options=replace(RED, legacy=legacy)) as face:
        sent = {name: value.format(url=face.url) for name, value in headers.items()}
        found = await face.ask("POST", f"{ROOT}/tasks/t1/cancel", headers=sent)
    assert (found.status, two.objects["gpujobs"]["red/t1"]["spec"].get("cancel", False)) == (status, status == 200)


@pytest.mark.parametrize("name", ["train", "none"])
async def test_what_is_no_task_is_not_cancelled(red: Face, name: str) -> None:
    found = await red.ask("POST", f"{ROOT}/tasks/{name}/cancel", token="red-token")
    assert (found.status, found.json["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("training: {}", "needs resources"),
        ("inference: {gpu: 1}", "needs resources"),
        ("training: {resources: {}, template: {spec: {containers: [{name: task, command: python}]}}}", "command"),
        ("training: [", "cannot be read"),
        ("training: {resources: {share: many}}\ninference: {}", "share"),
        ("training: {}\ninference: {}\nother: {}", "other"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        TemplateFile(file).read()


@pytest.mark.parametrize(
    ("kind", "body", "line"),
    [
        ("training", TRAINING, "gflowd up --train 'python train.py --data {train_path} --out {save_path}'"),
        ("inference", INFERENCE, "dovetail migrate v2 --infer 'python infer.py --weights {weight_path}"),
    ],
)
async def test_a_task_without_a_template_is_refused_with_the_line_to_type(
    two: GatewayApiServer, tmp_path: Path, kind: str, body: dict[str, Any], line: str
) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text("{}\n", encoding="utf-8")
    async with serving(two, options=replace(RED, templates=TemplateFile(file))) as face:
        found = await face.ask("POST", f"{ROOT}/{kind}/start", token="red-token", json=body)
    assert (found.status, found.json["reason"], line in found.json["detail"]) == (409, "NoTaskTemplate", True)
    assert not [request for request in two.requests if request[1] == "create"]


async def test_the_templates_are_those_of_the_file_when_the_task_starts(two: GatewayApiServer, tmp_path: Path) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text("{}\n", encoding="utf-8")
    async with serving(two, options=replace(RED, templates=TemplateFile(file)), wait_seconds=0.05) as face:
        before = await train(face)
        file.write_text(PLACED, encoding="utf-8")
        after = await train(face, lr=0.1)
        file.write_text("training: [", encoding="utf-8")
        broken = await train(face)
    assert [before.status, after.status, broken.status] == [409, 200, 503], after.text
    assert "cannot be read" in broken.json["detail"]


PLACED = """
training:
  resources: {share: 0.5}
  template:
    spec:
      containers:
        - {name: task, command: [python, train.py, --data, $(TASK_TRAIN_PATH), --lr=$(TASK_LR), $$(TASK_NONE)]}
"""


def placed(tmp_path: Path) -> Templates:
    file = tmp_path / "templates.yaml"
    file.write_text(PLACED, encoding="utf-8")
    return TemplateFile(file).read()


def test_a_command_that_places_fields_gets_no_others_as_arguments(tmp_path: Path) -> None:
    spec = placed(tmp_path).spec("training", device="cuda", fields={"train_path": "a $(b) $$", "lr": 0.1, "more": 1})
    container = spec["template"]["spec"]["containers"][0]
    assert "args" not in container
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "TASK_TRAIN_PATH": "a $$(b) $$$$",
        "TASK_LR": "0.1",
        "TASK_MORE": "1",
    }


def test_a_request_without_a_field_that_the_command_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="field lr is missing: the command of training tasks uses it"):
        placed(tmp_path).spec("training", device="cuda", fields={"train_path": "a"})


STATES = {
    "": "pending",
    "Queued": "pending",
    "Held": "pending",
    "Starting": "pending",
    "Suspended": "pending",
    "Preempted": "pending",
    "Running": "running",
    "Succeeded": "completed",
    "Failed": "failed",
    "TimedOut": "failed",
    "Cancelled": "cancelled",
}


def test_each_phase_has_its_state_and_a_task_that_is_cancelled_waits_no_more() -> None:
    assert STATES.keys() - {""} == set(get_args(Phase))
    nothing = devices_of([], indexes={})
    for phase, state in STATES.items():
        for cancel in (False, True):
            status = {"phase": phase} if phase else {"message": ""}
            made = task("t1") | {"status": status}
            made["spec"] = made["spec"] | {"cancel": cancel}
            found = task_of(decode(json.dumps(made), as_type=GPUJob), devices=nothing)
            assert found is not None
            assert found.status == ("cancelled" if cancel and state == "pending" else state), (phase, cancel)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled", "TimedOut"])
async def test_a_cancel_of_what_has_ended_writes_nothing(two: GatewayApiServer, red: Face, phase: str) -> None:
    two.put("gpujobs", task("t1") | {"status": {"phase": phase}})
    found = await red.ask("POST", f"{ROOT}/tasks/t1/cancel", token="red-token")
    assert (found.status, found.json["status"]) == (200, STATES[phase])
    assert [request for request in two.requests if request[1] == "patch"] == []


@pytest.mark.parametrize(
    ("versions", "newest"),
    [(["12.9", "12.10"], "12.10"), (["9.2", "12.4.1"], "12.4.1"), (["", "12.4"], "12.4"), (["", ""], None)],
)
async def test_the_newest_cuda_of_the_cluster_is_compared_by_its_numbers(
    two: GatewayApiServer, versions: list[str], newest: str | None
) -> None:
    for name, version in zip(("a", "b"), versions, strict=True):
        node = make_gpunode(name, gpus=1)
        node["status"]["runtimeVersion"] = version
        two.put("gpunodes", node)
    async with serving(two, options=RED) as face:
        found = (await face.get(f"{ROOT}/resources/gpu", token="red-token")).json
    assert found["cuda_version"] == newest


GPU_SPEC = """
training:
  resources: {share: 0.5, memory: 4Gi}
  mode: Fractional
  workload: Training
  onNoGPU: RunOnCPU
  onNoGPUAfterSeconds: 5
  policy: Pack
  priority: 7
  template:
    spec:
      containers:
        - {name: task, args: [train.py], env: [{name: TASK_MODEL, value: mine}]}
"""


def templates(tmp_path: Path, text: str) -> Templates:
    (tmp_path / "templates.yaml").write_text(text, encoding="utf-8")
    return TemplateFile(tmp_path / "templates.yaml").read()


def test_a_template_says_what_a_task_does_and_the_request_adds_to_it(tmp_path: Path) -> None:
    made = templates(tmp_path, GPU_SPEC)
    fields = {"model": "yolo", "flag": True, "layers": [1, 2], "more.of-it": 0.5}
    for _ in range(2):
        spec = made.spec("training", device="a/cuda:0", fields=fields)
        container = spec["template"]["spec"]["containers"][0]
        assert spec["resources"] == {"share": 0.5, "memory": "4Gi", "device": "a/cuda:0"}
        assert [spec[each] for each in ("onNoGPU", "policy", "mode", "workload", "priority")] == [
            "RunOnCPU", "Pack", "Fractional", "Training", 7,
        ]  # fmt: skip
        assert container["args"] == [
            "train.py", "--model", "yolo", "--flag", "true", "--layers", "[1,2]", "--more.of-it", "0.5",
        ]  # fmt: skip
        # The last value of a name counts for kubelet.
        assert [(each["name"], each["value"]) for each in container["env"]] == [
            ("TASK_MODEL", "mine"),
            ("TASK_MODEL", "yolo"),
            ("TASK_FLAG", "true"),
            ("TASK_LAYERS", "[1,2]"),
            ("TASK_MORE_OF_IT", "0.5"),
        ]


def test_on_the_cpu_nothing_of_a_template_is_left_that_means_a_gpu(tmp_path: Path) -> None:
    fields = {"parameter_count": 1_000_000}
    spec = templates(tmp_path, GPU_SPEC).spec("training", device="cpu", fields=fields)
    assert spec.keys() == {"resources", "policy", "priority", "template"}
    assert spec["resources"] == {"device": "cpu"}


@pytest.mark.parametrize("name", ["x" * 64, "1a", "-a", "a b", ""])
def test_a_field_whose_name_no_variable_could_have_is_refused(tmp_path: Path, name: str) -> None:
    made = templates(tmp_path, GPU_SPEC)
    with pytest.raises(RequestFailedError, match=f'field "{name[:63]}": a name has letters'):
        made.spec("training", device="cuda", fields={name: 1})
    assert made.spec("training", device="cuda", fields={"x" * 63: 1})


@pytest.mark.parametrize(
    ("text", "taken"), [("x" * 4096, True), ("x" * 4097, False), ([1] * 2047, True), ([1] * 2048, False)]
)
def test_the_text_of_a_field_has_4096_characters_at_most(tmp_path: Path, text: Any, taken: bool) -> None:
    made = templates(tmp_path, GPU_SPEC)
    if taken:
        made.spec("training", device="cuda", fields={"note": text})
        return
    with pytest.raises(RequestFailedError, match=r"note: 409[78] characters, allowed are 4096 without NUL"):
        made.spec("training", device="cuda", fields={"note": text})


def many(number: int, *, node: str = "a") -> Devices:
    """So many idle devices of one node, numbered from 0."""
    made = decode(json.dumps(make_gpunode(node, gpus=number)), as_type=GPUNode)
    nodes = [decode(json.dumps(make_node(node)), as_type=Node)]
    uses = take([made], pods=[], scheduler="", namespace="", nodes=nodes).nodes
    return devices_of(uses.values(), indexes={at: NodeDevice(node, at) for at in range(number)})


@pytest.mark.parametrize(
    ("number", "named"),
    [
        (0, "this cluster has no GPUs"),
        (1, "this cluster has 1 GPU (cuda:0)"),
        (8, f"this cluster has 8 GPUs ({', '.join(f'cuda:{at}' for at in range(8))})"),
        (12, f"this cluster has 12 GPUs ({', '.join(f'cuda:{at}' for at in range(8))}, …, cuda:11)"),
    ],
)
def test_of_many_devices_the_first_and_the_last_are_named(number: int, named: str) -> None:
    with pytest.raises(RequestFailedError) as refused:
        many(number).named("cuda:77")
    assert str(refused.value) == f"device cuda:77 does not exist: {named}"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (1, "it waits; cuda:0 is idle"),
        (3, "it waits; cuda:0, cuda:1, cuda:2 are idle"),
        (5, "it waits; cuda:0, cuda:1, cuda:2 and 2 more are idle"),
    ],
)
def test_a_task_that_waits_for_one_device_hears_of_three_others_at_most(number: int, sentence: str) -> None:
    waiting = task("t1") | {"status": {"phase": "Queued", "message": "it waits"}}
    waiting["spec"] |= {"gpu": None, "resources": {"share": 0.5, "device": "b/cuda:0"}}
    found = task_of(decode(json.dumps(waiting), as_type=GPUJob), devices=many(number))
    assert found is not None
    assert (found.message, found.device) == (sentence, "b/cuda:0")
    for status in ({"phase": "Running", "message": "m"}, {"phase": "Failed", "message": "m"}):
        found = task_of(decode(json.dumps(waiting | {"status": status}), as_type=GPUJob), devices=many(number))
        assert found is not None
        assert found.message == "m"


async def test_limits_of_several_devices_of_one_node_are_written_together(
    two: GatewayApiServer,
) -> None:
    two.put("gpunodes", make_gpunode("a", gpus=3))
    two.number("a/cuda:0", "a/cuda:1", "a/cuda:2", "b/cuda:0")
    two.users["admin-token"].verbs["*"] = EDIT
    async with serving(two, options=RED) as face:
        wanted = {"cuda:0": {"training": 0}, "cuda:1": {"training": 2, "inference": 5}, "cuda:3": {"inference": 0}}
        found = await face.ask("POST", f"{ROOT}/resources/config", token="admin-token", json={"max_concurrent": wanted})
        shown = (await face.get(f"{ROOT}/resources", token="admin-token")).json["limits"]
    now = {
        "cuda:0": {"training": 0, "inference": 3},
        "cuda:1": {"training": 2, "inference": 5},
        "cuda:3": {"training": 1, "inference": 0},
    }
    assert found.json == {"success": True, "limits": now}, found.text
    assert shown == now | {"cuda:2": {"training": 1, "inference": 3}}
    written = two.objects["gpunodes"]["a"]["spec"]["tenantLimits"]
    assert {uuid: written[uuid] for uuid in ("a-0", "a-1")} == {"a-0": wanted["cuda:0"], "a-1": wanted["cuda:1"]}
    assert [each[1:] for each in two.requests if each[1] == "patch"] == [
        ("patch", "gpunodes/a"),
        ("patch", "gpunodes/b"),
    ]


async def test_a_device_may_be_named_by_its_node(two: GatewayApiServer, red: Face) -> None:
    """Both nodes have a first device; over the cluster that of the younger node is the first."""
    for device, place, number in (("a/cuda:0", "a/cuda:0", "cuda:1"), ("b/cuda:0", "b/cuda:0", "cuda:0")):
        found = await train(red, device=device)
        job = two.objects["gpujobs"][f"red/{found.json['task_id']}"]
        assert (job["spec"]["resources"]["device"], found.json["device"]) == (place, number)


@pytest.mark.parametrize("outcome", get_args(get_type_hints(DryRun)["outcome"]))
async def test_a_task_is_refused_before_it_starts_only_where_no_wait_would_help(outcome: Any) -> None:
    said = DryRun(
        outcome=outcome,
        reason="",
        message="as the queue says",
        details=[],
        nodes=None,
        position=None,
        start=None,
        preemption=None,
        cpu_in_seconds=None,
        array=False,
        limits_counted=True,
        text="It would start now.",
    )

    async def answered(value: Any) -> Any:
        return value

    tasks = Tasks(
        cache=SimpleNamespace(seen_by=lambda *_, **__: answered(None)),  # type: ignore[arg-type]
        clients=None,  # type: ignore[arg-type]
        reviews=SimpleNamespace(who=lambda _: answered(None)),  # type: ignore[arg-type]
        answers=SimpleNamespace(dry_run=lambda *_, **__: answered(said)),  # type: ignore[arg-type]
        templates=TemplateFile(),
        namespace="red",
        wait_seconds=1.0,
    )
    checking = tasks._check({"gpu": 1}, caller=ANONYMOUS)
    if outcome not in {"Never", "Invalid"}:
        await checking
        return
    with pytest.raises(RequestFailedError, match="as the queue says") as refused:
        await checking
    assert (refused.value.status, refused.value.reason) == (409, "Invalid")
