"""GPUs for trainings: the manager of v1, and the hook that always releases."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk import errors, run_with_gpu
from dovetail.sdk.aio.manager import AsyncGPUResourceManager
from dovetail.sdk.blocking.manager import GPUResourceManager
from dovetail.sdk.engine import AlgorithmTrainingEngine, AlgorithmType, TrainingConfig
from dovetail.sdk.integrations import PyTorchGPUIntegration, get_gpu_resource_manager
from dovetail.sdk.training.batch_size import suggest_batch_size
from dovetail.sdk.training.config import TrainingGPUConfig, settings_of
from dovetail.sdk.training.device import TrainingDevice
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import DEVICES, Side, reservations, until

WANTED = {"gpu_config": {"enabled": True, "gpu_count": 2, "gpu_type": "V100", "framework": "none"}}


def manager_of(side: Side) -> Any:
    of = AsyncGPUResourceManager if hasattr(side.client_class, "aclose") else GPUResourceManager
    return of(side.url, token="red-token")


@pytest.fixture
def manager(gateway: Face) -> Iterator[GPUResourceManager]:
    with GPUResourceManager(gateway.url, token="red-token") as made:
        yield made


@pytest.mark.usefixtures("scheduling")
async def test_gpus_are_validated_allocated_and_released(
    api: GatewayApiServer, side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    config = TrainingGPUConfig(gpu_count=2, gpu_type="V100", memory_gb=16)
    async with side.inside(manager_of(side)) as manager:
        assert await side.call(manager.validate_gpu_requirements, config)
        assert await side.call(manager.allocate_gpu_resources, config) == "b"
        assert len(reservations(api)) == 1
        for count, released, warnings in ((1, False, 1), (2, True, 1), (None, False, 2)):
            assert await side.call(manager.cleanup_gpu_resources, "b", count) is released
            assert caplog.text.count("nothing to release: this manager holds no") == warnings
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
async def test_of_several_allocations_on_a_node_each_is_released_once(api: GatewayApiServer, side: Side) -> None:
    config = TrainingGPUConfig(gpu_count=2, gpu_type="V100")
    async with side.inside(manager_of(side)) as manager:
        one, two, three, four = [await side.call(manager.allocate, config) for _ in range(4)]
        assert [each.node_name for each in manager.allocations] == ["b"] * 4
        assert await side.call(manager.release, one) is True
        assert await side.call(manager.release, one) is False
        assert manager.allocations == [two, three, four]
        # With a number of GPUs, the newest of so many alone.
        assert await side.call(manager.cleanup_gpu_resources, "b", 2) is True
        assert manager.allocations == [two, three]
        assert set(reservations(api)) == {f"red/{each.allocation_id}" for each in (two, three)}
        assert await side.call(manager.cleanup_gpu_resources, "a") is False
        assert await side.call(manager.cleanup_gpu_resources, "b") is True
        assert manager.allocations == []
    assert reservations(api) == []


async def test_without_room_there_is_no_node_and_the_log_says_why(side: Side, tmp_path: Path) -> None:
    config, path = TrainingGPUConfig(gpu_type="V100", memory_gb=80), tmp_path / "gpu.log"
    manager = type(manager_of(side))(side.url, token="red-token", log_file=path)
    async with side.inside(manager):
        found = await side.call(manager.validate_gpu_requirements, config)
        assert (bool(found), found.suggestion) == (False, "ask for at most 32 GB")
        assert await side.call(manager.allocate_gpu_resources, config) is None
    assert "gpu_resource_manager WARNING no GPUs: Need GPUs V100 of 80 GB, this cluster has none" in path.read_text()
    for handler in list(logging.getLogger("gpu_resource_manager").handlers):
        logging.getLogger("gpu_resource_manager").removeHandler(handler)
        handler.close()


async def test_nodes_and_measurements_are_read(side: Side) -> None:
    async with side.inside(manager_of(side)) as manager:
        assert [node.node_name for node in await side.call(manager.get_available_gpu_nodes)] == ["a", "b"]
        monitored = await side.call(manager.get_gpu_monitoring_data)
    assert monitored["nodes"][0]["devices"][0]["gpu_type"] == "V100"


@pytest.mark.usefixtures("scheduling")
async def test_the_hook_runs_a_function_on_its_gpus_and_releases_them(
    api: GatewayApiServer, manager: GPUResourceManager
) -> None:
    before = dict(os.environ)
    seen: list[TrainingDevice] = []

    def train(device: TrainingDevice) -> str:
        assert len(reservations(api)) == 1
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "b-0,b-1"
        seen.append(device)
        return "trained"

    assert await asyncio.to_thread(run_with_gpu, WANTED, train, manager=manager) == "trained"
    assert (seen[0].node, seen[0].on_gpu) == ("b", True)
    assert (reservations(api), dict(os.environ)) == ([], before)


@pytest.mark.usefixtures("scheduling")
async def test_the_hook_awaits_an_async_function(api: GatewayApiServer, gateway: Face) -> None:
    async def train() -> str:
        assert len(reservations(api)) == 1
        return "trained"

    async with AsyncGPUResourceManager(gateway.url, token="red-token") as manager:
        assert await run_with_gpu(WANTED, train, manager=manager) == "trained"
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
async def test_the_hook_releases_after_any_error(
    api: GatewayApiServer, manager: GPUResourceManager, error: type[BaseException]
) -> None:

    def train() -> None:
        raise error

    def run() -> None:
        with pytest.raises(error):
            run_with_gpu(WANTED, train, manager=manager)

    await asyncio.to_thread(run)
    assert reservations(api) == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.usefixtures("scheduling")
async def test_a_forked_child_that_leaves_the_training_releases_nothing(
    api: GatewayApiServer, manager: GPUResourceManager
) -> None:
    parent = os.getpid()

    def train() -> int:
        child = os.fork()
        if child == 0:
            return 0
        os.waitpid(child, 0)
        return len(reservations(api))

    def run() -> int:
        held = run_with_gpu(WANTED, train, manager=manager)
        if os.getpid() != parent:
            os._exit(0)
        return held

    assert await asyncio.to_thread(run) == 1
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
async def test_the_hook_releases_when_it_is_cancelled(api: GatewayApiServer, gateway: Face) -> None:
    async def train() -> None:
        await asyncio.Event().wait()

    async with AsyncGPUResourceManager(gateway.url, token="red-token") as manager:
        task = asyncio.ensure_future(run_with_gpu(WANTED, train, manager=manager))
        await until(lambda: manager.allocations)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert reservations(api) == []


async def test_what_is_allocated_during_a_cancellation_is_released(api: GatewayApiServer, gateway: Face) -> None:
    async def train() -> None:
        raise AssertionError

    async with AsyncGPUResourceManager(gateway.url, token="red-token") as manager:
        task = asyncio.ensure_future(run_with_gpu(WANTED, train, manager=manager))
        await until(lambda: reservations(api))
        task.cancel()
        await asyncio.sleep(0)
        api.run(reservations(api)[0], devices=DEVICES)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert manager.allocations == []
    assert reservations(api) == []


TOO_MANY = {"gpu_config": {**WANTED["gpu_config"], "gpu_count": 9}}


async def test_without_room_the_hook_raises_with_what_would_fit(manager: GPUResourceManager) -> None:
    with pytest.raises(errors.ConflictError, match="ask for at most 8 V100: as many are free on one node") as caught:
        await asyncio.to_thread(run_with_gpu, TOO_MANY, lambda: None, manager=manager)
    assert caught.value.suggestion


@pytest.mark.parametrize("away", [False, True])
async def test_the_hook_falls_back_to_the_cpu_only_if_it_may(gateway: Face, *, away: bool) -> None:
    params = {"gpu_config": {**TOO_MANY["gpu_config"], "cpu_fallback": True}}

    def train(device: TrainingDevice) -> str:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        return device.why_cpu

    with GPUResourceManager("http://127.0.0.1:1" if away else gateway.url, token="red-token") as manager:
        why = await asyncio.to_thread(run_with_gpu, params, train, manager=manager)
    assert ("does not answer" if away else "8 V100") in why


@pytest.mark.parametrize("params", [{}, {"gpu_config": None}, {"gpu_config": {"gpu_count": 2}}])
def test_without_enabled_no_gateway_is_asked(params: dict[str, Any]) -> None:
    assert run_with_gpu(params, lambda device: device.on_gpu) is False


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gpu_count": 0}, "gpu_count 0: whole numbers from 1 to 9999 are allowed"),
        ({"gpu_count": "two"}, "Expected `int`, got `str` - at `$.gpu_count`"),
        ({"memory_gb": -1}, "memory_gb -1: 0 to 4096 GB are allowed"),
        ({"gpu_memory_fraction": 1.5}, "gpu_memory_fraction 1.5: above 0 to 1 is allowed"),
        ({"framework": "jax"}, "Invalid enum value 'jax' - at `$.framework`"),
        ([], "cannot be read"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(config: Any, message: str) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        settings_of({"gpu_config": config or [1]})
    assert message in str(caught.value) or message == "cannot be read"


def test_a_request_is_changed_by_assignment_and_each_value_is_checked() -> None:
    config = TrainingGPUConfig(gpu_count=1, gpu_type="V100", memory_gb=40.0)
    config.gpu_count, config.memory_gb, config.gpu_memory_fraction = 4, 32.0, 0.7
    config.distributed_training = config.mixed_precision = True
    assert config.as_request() == {
        "gpu_count": 4, "gpu_type": "V100", "memory_gb": 32.0, "distributed_training": True, "mixed_precision": True,
        "gpu_memory_fraction": 0.7,
    }  # fmt: skip
    with pytest.raises(errors.InvalidError, match=r"gpu_memory_fraction 1\.5: above 0 to 1"):
        config.gpu_memory_fraction = 1.5


def test_a_configuration_of_before_may_have_more_fields() -> None:
    found = settings_of({"gpu_config": {"enabled": True, "gpu_count": 2, "colour": "red"}})
    assert (found.enabled, found.request.gpu_count) == (True, 2)


def test_the_engine_names_the_algorithms_that_it_knows() -> None:
    engine = AlgorithmTrainingEngine()
    with pytest.raises(errors.InvalidError, match='"svm" is not known: known are mlp, vibration_analysis; register'):
        asyncio.run(engine.train_algorithm("svm", TrainingConfig("a"), None))


async def test_the_engine_has_the_algorithms_of_its_type_and_takes_others_under_their_names() -> None:
    engine = AlgorithmTrainingEngine()
    with pytest.raises(errors.InvalidError, match="mlp needs a framework"):
        await engine.train_algorithm(AlgorithmType.VIBRATION_ANALYSIS, TrainingConfig("a"), ([[0.1]], [0]))
    engine.register(AlgorithmType.VIBRATION_ANALYSIS, algorithm=lambda _, data, __: sum(data))
    assert await engine.train_algorithm(AlgorithmType.VIBRATION_ANALYSIS, TrainingConfig("a"), [1, 2]) == 3


def test_the_engine_runs_an_algorithm_of_ones_own() -> None:
    engine = AlgorithmTrainingEngine()
    engine.register("sum", algorithm=lambda params, data, device: (sum(data) * params["times"], device.on_gpu))
    config = TrainingConfig("a", {"times": 2})
    assert asyncio.run(engine.train_algorithm("sum", config, [1, 2])) == (6, False)


@pytest.mark.parametrize(
    ("memory_gb", "per_sample_mib", "expected"), [(16, 100, 128), (32, 100, 256), (0.1, 50, 1), (24, 1.5, 8192)]
)
def test_a_batch_size_is_the_largest_power_of_two_that_fits(
    memory_gb: float, per_sample_mib: float, expected: int
) -> None:
    assert suggest_batch_size(memory_gb, per_sample_mib) == expected
    assert expected * per_sample_mib <= memory_gb * 1024 * 0.8 < 2 * expected * per_sample_mib


@pytest.mark.parametrize(("model_mib", "expected"), [(0, 128), (6500, 64), (13000, 1), (13007.2, 1)])
def test_the_model_takes_its_memory_with_any_batch(model_mib: float, expected: int) -> None:
    assert suggest_batch_size(16, 100, model_mib=model_mib) == expected
    assert expected * 100 + model_mib <= 16 * 1024 * 0.8 < 2 * expected * 100 + model_mib


def test_a_model_that_leaves_no_room_for_a_sample_is_refused() -> None:
    with pytest.raises(errors.InvalidError, match="not one sample fits into the 0 MiB that 16 GB leave"):
        suggest_batch_size(16, 100, model_mib=20000)


@pytest.mark.parametrize(("memory_gb", "per_sample_mib"), [(0, 1), (1, 0), (-1, 1), (1, 1000), (float("nan"), 1)])
def test_a_batch_size_that_cannot_be_is_refused(memory_gb: float, per_sample_mib: float) -> None:
    with pytest.raises(errors.InvalidError, match=r"a number above 0 is needed|not one sample fits"):
        suggest_batch_size(memory_gb, per_sample_mib)


async def test_without_the_framework_the_error_names_the_extra(manager: GPUResourceManager) -> None:
    integration = PyTorchGPUIntegration(manager)
    with pytest.raises(errors.MissingExtraError, match=r"pip install 'dovetail-gpu\[pytorch\]'"):
        await asyncio.to_thread(integration.setup_pytorch_gpu, TrainingGPUConfig())


def test_without_a_gateway_the_manager_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_GATEWAY", raising=False)
    with pytest.raises(errors.SettingsError, match="set DOVETAIL_GATEWAY"):
        get_gpu_resource_manager()


def test_a_value_that_is_refused_changes_nothing() -> None:
    config = TrainingGPUConfig(gpu_count=2)
    with pytest.raises(errors.InvalidError, match="gpu_count 0"):
        config.gpu_count = 0
    assert config.gpu_count == 2
