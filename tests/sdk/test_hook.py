"""The hook of a training engine, by a manager of a script: what it asks, and what each error ends."""

import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.answers.v1 import Allocated, Validity
from dovetail.sdk import errors
from dovetail.sdk.aio import hook
from dovetail.sdk.aio.manager import LOGGER, log_to
from dovetail.sdk.integrations import PyTorchGPUIntegration, TensorFlowGPUIntegration
from dovetail.sdk.training import device as device_module
from dovetail.sdk.training.config import TrainingGPUConfig, settings_of
from dovetail.sdk.training.device import TrainingDevice
from dovetail.sdk.training_hook import _with_device
from tests.sdk.test_framework_calls import SETTINGS, allocation

BUSY = errors.BusyError("the view is not complete", status=503)
AWAY = errors.UnreachableError("http://gw", call="c", problem="p", attempts=3)
NO_ROOM = errors.ConflictError("Need 2 GPUs", status=409)
HELD = allocation(("b", "GPU-2"))
FITS = Validity(valid=True, reason="", message="", suggestion="")
TOO_LARGE = Validity(valid=False, reason="Insufficient", message="Need 9 GPUs", suggestion="ask for 8")


class Manager:
    """A manager that notes what it is asked, and fails where the script says so."""

    def __init__(self, *, valid: Validity = FITS, **problems: Exception) -> None:
        self.valid = valid
        self.problems = problems
        self.asked: list[str] = []
        self.settings_of: list[Any] = []

    def _note(self, name: str) -> None:
        self.asked.append(name)
        if name in self.problems:
            raise self.problems[name]

    async def validate_gpu_requirements(self, _config: TrainingGPUConfig) -> Validity:
        self._note("validate")
        return self.valid

    async def allocate(self, _config: TrainingGPUConfig) -> Allocated:
        self._note("allocate")
        return HELD

    async def release(self, found: Allocated) -> bool:
        assert found is HELD
        self._note("release")
        return True

    async def settings(self, framework: str, *, config: Any, allocation: Any) -> Any:
        self._note("settings")
        self.settings_of.append((framework, config, allocation))
        return SETTINGS

    @asynccontextmanager
    async def renewed(self, _found: Allocated) -> AsyncIterator[None]:
        self._note("renewed")
        try:
            yield
        finally:
            self.asked.append("not renewed")


def wanted(**fields: Any) -> dict[str, Any]:
    return {"gpu_config": {"enabled": True, "framework": "none", **fields}}


async def trained(manager: Manager, *, fails: Exception | None = None, **fields: Any) -> TrainingDevice:
    async def train(found: TrainingDevice) -> TrainingDevice:
        manager.asked.append("train")
        if fails:
            raise fails
        return found

    return await hook.run_training(wanted(**fields), train=train, manager=manager)  # type: ignore[arg-type]


WHOLE = ["validate", "allocate", "renewed", "train", "not renewed", "release"]


async def test_gpus_are_validated_allocated_renewed_and_released_in_this_order() -> None:
    manager = Manager()
    assert (await trained(manager)).on_gpu
    assert manager.asked == WHOLE


async def test_a_release_that_fails_loses_no_result_and_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    manager = Manager(release=BUSY)
    assert (await trained(manager)).allocation is HELD
    with pytest.raises(ZeroDivisionError):
        await trained(manager, fails=ZeroDivisionError())
    assert manager.asked == WHOLE * 2
    assert caplog.text.count("alloc-1 is not released and ends with its lease") == 2


@pytest.mark.parametrize("error", [NO_ROOM, AWAY])
@pytest.mark.parametrize("step", ["validate", "allocate"])
async def test_only_without_room_or_a_gateway_the_cpu_trains_if_it_may(step: str, error: Exception) -> None:
    manager = Manager(**{step: error})
    found = await trained(manager, cpu_fallback=True)
    assert (found.on_gpu, found.why_cpu, manager.asked[-1]) == (False, str(error), "train")
    manager = Manager(**{step: error})
    with pytest.raises(type(error)):
        await trained(manager)
    assert "train" not in manager.asked


@pytest.mark.parametrize(
    "error", [BUSY, errors.ForbiddenError("no", status=403), errors.InvalidError("gpu_count 0", status=422)]
)
@pytest.mark.parametrize("step", ["validate", "allocate"])
async def test_any_other_refusal_is_no_reason_to_train_on_the_cpu(step: str, error: Exception) -> None:
    manager = Manager(**{step: error})
    with pytest.raises(type(error)):
        await trained(manager, cpu_fallback=True)
    assert "train" not in manager.asked


async def test_what_does_not_fit_is_not_allocated() -> None:
    manager = Manager(valid=TOO_LARGE)
    with pytest.raises(errors.ConflictError, match=r"^Need 9 GPUs; ask for 8$") as caught:
        await trained(manager)
    assert (manager.asked, caught.value.reason) == (["validate"], "Insufficient")


async def test_a_conflict_of_the_training_itself_is_no_missing_room() -> None:
    """The function may use the SDK too."""
    manager = Manager()
    with pytest.raises(errors.ConflictError):
        await trained(manager, fails=NO_ROOM, cpu_fallback=True)
    assert manager.asked == WHOLE


async def test_a_framework_gets_the_settings_of_the_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = list[Any]()

    def prepare(found: Allocated, *, settings: Any) -> TrainingDevice:
        prepared.append((found, settings))
        return TrainingDevice(allocation=found, setup=None)

    monkeypatch.setattr(device_module, "prepared", prepare)
    manager = Manager()
    await trained(manager, framework="pytorch", gpu_count=3)
    ((framework, config, found),) = manager.settings_of
    assert (framework, config.gpu_count, found, prepared) == ("pytorch", 3, HELD, [(HELD, SETTINGS)])
    assert manager.asked == [*WHOLE[:3], "settings", *WHOLE[3:]]


async def test_gpus_whose_settings_cannot_be_read_are_released() -> None:
    manager = Manager(settings=BUSY)
    with pytest.raises(errors.BusyError):
        await trained(manager, framework="pytorch")
    assert manager.asked[-2:] == ["not renewed", "release"]


async def test_the_variables_of_a_training_are_gone_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    before = dict(os.environ)
    await trained(Manager())
    await trained(Manager(allocate=NO_ROOM), cpu_fallback=True)
    with pytest.raises(ZeroDivisionError):
        await trained(Manager(), fails=ZeroDivisionError())
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (lambda: "none", False),
        (lambda device: device, True),
        (lambda *devices: devices[0], True),
        (lambda device, /: device, True),
        (lambda *, option="none": option, False),
        (lambda **options: options.get("device", "none"), False),
    ],
)
def test_a_function_gets_the_device_if_it_takes_a_value(function: Any, takes: bool) -> None:
    found = TrainingDevice(allocation=None, setup=None)
    assert _with_device(function)(found) == (found if takes else "none")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER)
    before, level = list(found.handlers), found.level
    yield found
    for handler in set(found.handlers) - set(before):
        found.removeHandler(handler)
        handler.close()
    found.setLevel(level)


@pytest.mark.parametrize(
    ("level", "after"),
    [
        (logging.NOTSET, logging.INFO),
        (logging.WARNING, logging.INFO),
        (logging.DEBUG, logging.DEBUG),
        (logging.INFO, logging.INFO),
    ],
)
def test_the_log_goes_into_each_file_once_and_hears_at_least_what_is_said(
    logger: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, after: int
) -> None:
    monkeypatch.chdir(tmp_path)
    logger.setLevel(level)
    for path in ("a.log", "a.log", tmp_path / "a.log", "b.log"):
        log_to(path)
    logger.info("allocated é")
    assert logger.level == after
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("a.log", "b.log")]
    assert [text.count("gpu_resource_manager INFO allocated é") for text in texts] == [1, 1]


class Last:
    """A manager that holds these allocations, for the integrations."""

    def __init__(self, *held: Allocated) -> None:
        self.allocations = list(held)
        self.asked: list[Any] = []

    def settings(self, framework: str, *, config: Any, allocation: Any) -> Any:
        self.asked.append((framework, config, allocation))
        return SETTINGS


@pytest.mark.parametrize("name", ["pytorch", "tensorflow"])
@pytest.mark.parametrize("count", [0, 2])
def test_an_integration_takes_the_newest_allocation_or_the_gpus_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    made = list[Any]()
    monkeypatch.setattr(f"dovetail.sdk.training.{name}.setup", lambda found, *, allocated: made.append(allocated))
    held = [allocation(("b", "GPU-1")), HELD][:count]
    manager, config = Last(*held), TrainingGPUConfig()
    if name == "pytorch":
        PyTorchGPUIntegration(manager).setup_pytorch_gpu(config)  # type: ignore[arg-type]
    else:
        TensorFlowGPUIntegration(manager).setup_tensorflow_gpu(config)  # type: ignore[arg-type]
    assert manager.asked == [(name, config, HELD if count else None)]
    assert made == [count > 0]


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("gpu_count", 1, True), ("gpu_count", 9999, True), ("gpu_count", 10_000, False),
        ("memory_gb", 0, True), ("memory_gb", 4096, True), ("memory_gb", 4096.5, False),
        ("gpu_memory_fraction", 0, False), ("gpu_memory_fraction", 1, True), ("gpu_memory_fraction", 0.01, True),
    ],
)  # fmt: skip
def test_each_number_of_a_request_has_its_bounds(name: str, value: float, fits: bool) -> None:
    if fits:
        assert TrainingGPUConfig(**{name: value}).as_request()[name] == value  # type: ignore[arg-type]
        assert getattr(settings_of({"gpu_config": {name: value}}).request, name) == value
    else:
        with pytest.raises(errors.InvalidError, match=rf"^{name} {value:g}: "):
            TrainingGPUConfig(**{name: value})  # type: ignore[arg-type]


def test_a_request_without_choices_sends_none() -> None:
    assert TrainingGPUConfig().as_request() == {
        "gpu_count": 1, "distributed_training": False, "mixed_precision": False
    }  # fmt: skip
