"""REST v2 by the task client of both faces."""

import pytest

from dovetail.sdk import errors
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import Side, until

PATHS = {"train_path": "/data/train", "val_path": "/data/val", "save_path": "/out"}
INFERENCE = {"cfg_path": "/cfg.yaml", "weight_path": "/w.pt", "source_path": "/in"}


@pytest.fixture(autouse=True)
async def numbered(api: GatewayApiServer, gateway: Face) -> None:
    """Devices that count over the cluster."""
    api.number(*(f"{node}/cuda:{index}" for node in "ab" for index in range(8)))
    await until(lambda: gateway.made.cache.device_indexes)


async def test_tasks_are_started_listed_and_cancelled(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.tasks()) as client:
        trained = await side.call(client.start_training, model="m", num_classes=3, device="cuda:2", lr=0.1, **PATHS)
        inferred = await side.call(client.start_inference, device="cuda:1", **INFERENCE)
        ids = {task.task_id for task in await side.call(client.tasks)}
        only = await side.call(client.tasks, kind="training")
        await side.call(client.cancel, trained.task_id)
        again = await side.call(client.cancel, trained.task_id)
        assert api.objects["gpujobs"][f"red/{trained.task_id}"]["spec"]["cancel"] is True
    assert (trained.status, trained.device, inferred.device) == ("pending", "cuda:2", "cuda:1")
    assert ids == {trained.task_id, inferred.task_id}
    assert ([task.task_id for task in only], again.task_id) == ([trained.task_id], trained.task_id)


async def test_a_task_is_waited_for(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.tasks()) as client:
        task = await side.call(client.start_inference, device="cpu", **INFERENCE)
        with pytest.raises(errors.WaitTimeoutError, match="is not finished within 0 s: it is pending"):
            await side.call(client.wait, task.task_id, timeout_seconds=0)
        job = api.objects["gpujobs"][f"red/{task.task_id}"]
        job["status"] = {"phase": "Succeeded", "number": 3}
        api.put("gpujobs", job)
        assert (await side.call(client.wait, task.task_id, timeout_seconds=20)).status == "completed"


async def test_resources_and_devices_are_read_and_limits_changed(side: Side) -> None:
    async with side.inside(side.tasks(token="admin-token")) as client:
        before = await side.call(client.resources)
        assert before.limits["cuda:0"].training == 1
        changed = await side.call(client.set_limits, {"cuda:0": {"training": 2}})
        assert (changed.success, changed.limits["cuda:0"].training) == (True, 2)
        gpus = await side.call(client.gpus)
        assert (gpus.count, gpus.devices[0].device_name, gpus.devices[0]["name"]) == (16, "cuda:0", "V100")


async def test_a_device_that_does_not_exist_is_the_documented_error(side: Side) -> None:
    async with side.inside(side.tasks()) as client:
        with pytest.raises(errors.InvalidError, match=r"device cuda:99 does not exist: this cluster has 16 GPUs"):
            await side.call(client.start_inference, device="cuda:99", **INFERENCE)


async def test_a_task_of_no_one_is_not_found(side: Side) -> None:
    async with side.inside(side.tasks()) as client:
        with pytest.raises(errors.NotFoundError, match="there is no task train-x that you may list"):
            await side.call(client.task, "train-x")
