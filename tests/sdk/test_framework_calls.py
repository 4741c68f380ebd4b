"""What PyTorch and TensorFlow are asked for, by stand-ins that note it; `test_frameworks.py` has them themselves."""

import os
import sys
import threading
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from dovetail.answers.v1 import Allocated, AllocatedDevice, Distribution, GPUConfig, Setup
from dovetail.sdk import errors
from dovetail.sdk.engine import AlgorithmTrainingEngine, TrainingConfig
from dovetail.sdk.training import device, environment, mlp, pytorch, tensorflow
from dovetail.sdk.training.models import model_of

ALONE = Distribution(
    enabled=False, strategy="none", world_size=1, nodes=[], processes_per_node=1, master_address="", master_port=0,
    backend="",
)  # fmt: skip
TOGETHER = msgspec.structs.replace(ALONE, enabled=True, strategy="ddp", world_size=2, backend="nccl")
SETTINGS = Setup(
    success=True, framework="pytorch", visible_devices="0,1", memory_limit_mib=None, memory_fraction=None,
    mixed_precision=False,
    precision="float32", distribution=ALONE, environment={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
)  # fmt: skip
SHAPE = {"type": "mlp", "input_dim": 2, "hidden_units": [8, 4], "output_dim": 3}


def settings(**changes: Any) -> Setup:
    return msgspec.structs.replace(SETTINGS, **changes)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with environment.restored():
        yield


class Module(SimpleNamespace):
    """A module of PyTorch: what it is made of, and where it is."""

    def to(self, where: Any) -> "Module":
        self.where = where
        return self


class Torch(ModuleType):
    """PyTorch on a machine with so many GPUs; `asked` notes what it is asked for."""

    float16, bfloat16 = "float16", "bfloat16"

    def __init__(self, *, gpus: int, scaler: bool = True) -> None:
        super().__init__("torch")
        self.asked: list[Any] = []
        self.visible: list[str | None] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=self._counted(gpus),
            set_per_process_memory_fraction=lambda part, index: self.asked.append(("fraction", part, index)),
            amp=SimpleNamespace(GradScaler=lambda **options: ("old", options)),
        )
        self.amp = SimpleNamespace(GradScaler=lambda kind, **options: (kind, options)) if scaler else SimpleNamespace()
        self.distributed = SimpleNamespace(is_initialized=self._initialized, init_process_group=self._init)
        self.grouped = False
        layers = {"Linear": lambda *shape: shape, "ReLU": lambda: "relu"}
        parallel = {"DataParallel": lambda made: ("data parallel", made)}
        ddp = SimpleNamespace(DistributedDataParallel=lambda made, device_ids: ("distributed", made, device_ids))
        self.nn = SimpleNamespace(**layers, **parallel, parallel=ddp, Sequential=lambda *made: Module(layers=made))

    def device(self, text: str) -> Any:
        kind, _, index = text.partition(":")
        return SimpleNamespace(type=kind, index=int(index) if index else None)

    def autocast(self, **options: Any) -> Any:
        self.asked.append(options)
        return nullcontext()

    def _counted(self, gpus: int) -> Any:
        def count() -> int:
            self.visible.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
            return gpus

        return count

    def _initialized(self) -> bool:
        return self.grouped

    def _init(self, *, backend: str) -> None:
        assert not self.grouped
        self.grouped = True
        self.asked.append(("group", backend))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Torch:
    made = Torch(gpus=getattr(request, "param", 2))
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


with_gpus = pytest.mark.parametrize("torch", [0, 1, 2], indirect=True)


@with_gpus
def test_pytorch_computes_on_its_first_gpu_or_says_why_not(torch: Torch) -> None:
    found = pytorch.setup(SETTINGS, allocated=True)
    gpus = torch.cuda.device_count()
    assert (found.gpus, found.device.type, found.device.index) == (gpus, *(("cuda", 0) if gpus else ("cpu", None)))
    assert (found.message == "") == (gpus > 0)
    assert torch.visible[0] in ({"GPU-a,GPU-b"} if gpus else {None, "GPU-a,GPU-b"}), "set before PyTorch looks"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


@with_gpus
def test_each_gpu_that_the_process_sees_is_limited(torch: Torch) -> None:
    pytorch.setup(settings(memory_fraction=0.4), allocated=True)
    assert torch.asked == [("fraction", 0.4, index) for index in range(torch.cuda.device_count())]
    torch.asked.clear()
    pytorch.setup(SETTINGS, allocated=True)
    assert torch.asked == []


@with_gpus
@pytest.mark.parametrize("mixed", [True, False])
def test_mixed_precision_is_16_bits_that_the_device_has(torch: Torch, mixed: bool) -> None:
    made = pytorch.setup(settings(mixed_precision=mixed), allocated=True)
    kind = "cuda" if torch.cuda.device_count() else "cpu"
    with made.autocast():
        pass
    assert torch.asked == [
        {"device_type": kind, "dtype": "float16" if kind == "cuda" else "bfloat16", "enabled": mixed}
    ]
    assert made.scaler() == (kind, {"enabled": mixed and kind == "cuda"})


def test_a_pytorch_from_before_has_its_scaler_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch(gpus=1, scaler=False))
    made = pytorch.setup(settings(mixed_precision=True), allocated=True)
    assert made.scaler() == ("old", {"enabled": True})


@with_gpus
@pytest.mark.parametrize(("rank", "enabled"), [("1", True), (None, True), ("1", False)])
def test_processes_join_once_if_a_launcher_started_several(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, rank: str | None, enabled: bool
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    wanted = settings(distribution=TOGETHER if enabled else ALONE)
    joins = rank is not None and enabled
    for _ in range(2):
        assert pytorch.setup(wanted, allocated=True).process_group is joins
    assert torch.asked == ([("group", "nccl" if torch.cuda.device_count() else "gloo")] if joins else [])


@with_gpus
@pytest.mark.parametrize("rank", ["0", None])
@pytest.mark.parametrize("distribution", [ALONE, TOGETHER])
def test_a_model_is_on_the_device_and_over_all_gpus_if_that_is_wanted(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, rank: str | None, distribution: Distribution
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    setup = pytorch.setup(settings(distribution=distribution), allocated=True)
    made, gpus = pytorch.model(SHAPE, setup=setup), torch.cuda.device_count()
    plain = made if isinstance(made, Module) else made[1]
    assert plain.layers == ((2, 8), "relu", (8, 4), "relu", (4, 3))
    assert plain.where is setup.device
    if distribution.enabled and rank is not None:
        assert made == ("distributed", plain, [0] if gpus else None)
    elif distribution.enabled and gpus > 1:
        assert made == ("data parallel", plain)
    else:
        assert made is plain


class TensorFlow(ModuleType):
    """TensorFlow with so many GPUs."""

    def __init__(self, *, gpus: int, in_use: bool = False) -> None:
        super().__init__("tensorflow")
        self.asked: list[Any] = []

        def limited(*what: Any) -> None:
            if in_use:
                raise RuntimeError("GPUs are initialized")
            self.asked.append(what)

        experimental = SimpleNamespace(set_memory_growth=lambda gpu, on: limited("growth", gpu, on))
        self.config = SimpleNamespace(
            list_physical_devices=lambda kind: [f"{kind}:{index}" for index in range(gpus)],
            LogicalDeviceConfiguration=lambda memory_limit: ("part", memory_limit),
            set_logical_device_configuration=lambda gpu, parts: limited("limit", gpu, parts),
            experimental=experimental,
        )
        policy = SimpleNamespace(set_global_policy=lambda name: self.asked.append(("policy", name)))
        layers = SimpleNamespace(Dense=lambda width, **options: (width, options))
        self.keras = SimpleNamespace(
            mixed_precision=policy, layers=layers, Input=lambda shape: ("input", shape), Sequential=tuple
        )
        self.distribute = SimpleNamespace(
            MultiWorkerMirroredStrategy=lambda: Strategy("workers"),
            MirroredStrategy=lambda: Strategy("mirrored"),
            get_strategy=lambda: Strategy("default"),
        )


class Strategy(SimpleNamespace):
    def __init__(self, name: str) -> None:
        super().__init__(name=name, scope=nullcontext)


def tensorflow_with(monkeypatch: pytest.MonkeyPatch, **options: Any) -> TensorFlow:
    made = TensorFlow(**options)
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    return made


@pytest.mark.parametrize(
    ("fraction", "limit_mib", "asked"),
    [
        (None, None, [("growth", f"GPU:{index}", True) for index in range(2)]),
        (0.5, 16384, [("limit", f"GPU:{index}", [("part", 16384)]) for index in range(2)]),
        (None, 16384, [("growth", f"GPU:{index}", True) for index in range(2)]),
    ],
)
def test_tensorflow_takes_of_each_gpu_what_it_may(
    monkeypatch: pytest.MonkeyPatch, fraction: float | None, limit_mib: int | None, asked: list[Any]
) -> None:
    made = tensorflow_with(monkeypatch, gpus=2)
    wanted = settings(memory_fraction=fraction, memory_limit_mib=limit_mib, precision="mixed_float16")
    found = tensorflow.setup(wanted, allocated=True)
    assert made.asked == [*asked, ("policy", "mixed_float16")]
    assert (found.gpus, found.message, os.environ["CUDA_VISIBLE_DEVICES"]) == (2, "", "GPU-a,GPU-b")


def test_tensorflow_that_uses_its_gpus_already_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow_with(monkeypatch, gpus=1, in_use=True)
    with pytest.raises(errors.DovetailError, match=r"cannot be limited: set it up first \(GPUs are initialized\)"):
        tensorflow.setup(SETTINGS, allocated=True)


@pytest.mark.parametrize(
    ("distribution", "gpus", "config", "strategy"),
    [
        (ALONE, 2, "{}", "default"),
        (TOGETHER, 2, "{}", "workers"),
        (TOGETHER, 2, None, "mirrored"),
        (TOGETHER, 1, None, "default"),
        (TOGETHER, 0, None, "default"),
    ],
)
def test_the_strategy_is_one_that_this_process_can_have(
    monkeypatch: pytest.MonkeyPatch, distribution: Distribution, gpus: int, config: str | None, strategy: str
) -> None:
    tensorflow_with(monkeypatch, gpus=gpus)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    found = tensorflow.setup(settings(distribution=distribution), allocated=True)
    assert found.strategy.name == strategy
    assert (found.message == "") == (gpus > 0)


def test_the_output_of_a_keras_model_stays_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow_with(monkeypatch, gpus=1)
    made = tensorflow.model(SHAPE, setup=tensorflow.setup(SETTINGS, allocated=True))
    relu = {"activation": "relu"}
    assert made == (("input", (2,)), (8, relu), (4, relu), (3, {"dtype": "float32"}))


@pytest.mark.parametrize(("units", "widths"), [(16, [4, 16, 3]), ([16, 8], [4, 16, 8, 3]), ([], [4, 3])])
def test_hidden_units_are_one_layer_or_a_list(units: Any, widths: list[int]) -> None:
    assert model_of({"type": "mlp", "input_dim": 4, "hidden_units": units, "output_dim": 3}).widths == widths


@pytest.mark.parametrize(
    "changes",
    [{"type": "cnn"}, {"input_dim": 0}, {"hidden_units": [0]}, {"output_dim": "3"}, {"hidden_units": [1] * 65}],
)
def test_a_model_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidError, match=r"cannot be used: .*; type mlp is known$"):
        model_of({**SHAPE, **changes})


def allocation(*devices: tuple[str, str], node: str = "b") -> Allocated:
    held = [
        AllocatedDevice(node=where, index=index, uuid=uuid, gpu_type="V100", memory_mib=32768)
        for index, (where, uuid) in enumerate(devices)
    ]
    config = GPUConfig(
        gpu_count=len(held), gpu_type="V100", memory_gb=32, nodes=[node], devices=held, visible_devices="",
        mixed_precision=False, distributed_training=False, gpu_memory_fraction=None, namespace="red", expires_at=None,
    )  # fmt: skip
    return Allocated(success=True, node_name=node, gpu_config=config, allocation_id="alloc-1")


def test_without_a_framework_the_devices_of_the_allocations_node_are_visible() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "of the shell"
    found = device.prepared(allocation(("a", "GPU-1"), ("b", "GPU-2"), ("b", "GPU-3")), settings=None)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-3"
    assert (found.node, found.on_gpu, found.setup, found.why_cpu) == ("b", True, None, "")


@with_gpus
def test_a_framework_that_sees_no_gpu_says_where_the_allocated_ones_are(torch: Torch) -> None:
    found = device.prepared(allocation(("b", "GPU-2")), settings=SETTINGS)
    assert found.setup is not None
    assert found.on_gpu is (torch.cuda.device_count() > 0)
    why = "PyTorch sees no GPU on this machine: it computes on the CPU; the allocated GPUs are on b"
    assert found.why_cpu == ("" if found.on_gpu else why)


@pytest.mark.parametrize("torch", [0], indirect=True)
def test_on_the_cpu_the_framework_is_set_up_without_gpus(torch: Torch) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    found = device.on_cpu("no room", framework="pytorch")
    assert (found.why_cpu, found.on_gpu, found.node) == ("no room", False, None)
    assert isinstance(found.setup, pytorch.PyTorchSetup)
    assert not found.setup.settings.mixed_precision
    assert isinstance(found.setup, pytorch.PyTorchSetup)
    assert found.setup.settings.framework == "pytorch"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert device.on_cpu("no room", framework="none").setup is None


def test_the_framework_is_the_named_one_or_that_which_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "tensorflow"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert device.framework_in_use(None) == "none"
    tensorflow_with(monkeypatch, gpus=0)
    assert device.framework_in_use(None) == "tensorflow"
    assert device.framework_in_use("pytorch") == "pytorch"
    assert device.framework_in_use("none") == "none"
    monkeypatch.setitem(sys.modules, "torch", Torch(gpus=0))
    assert device.framework_in_use(None) == "pytorch"


@pytest.mark.parametrize(
    "data",
    [
        None, 7, ([[1.0]],), ([], []), ([[1.0]], []), ([[1.0], [1.0, 2.0]], [0, 1]), ([[1.0]], [-1]), ([["x"]], [0]),
    ],
)  # fmt: skip
def test_data_that_cannot_be_learned_is_refused(data: Any) -> None:
    with pytest.raises(errors.InvalidError, match=r"^data: rows of") as refused:
        mlp.train({}, data, device.TrainingDevice(allocation=None, setup=None))
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


@pytest.mark.parametrize("params", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0}, {"hidden_units": "32"}])
def test_parameters_that_cannot_be_used_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidError, match=rf"^algorithm_params cannot be used: .*{next(iter(params))}"):
        mlp.train(params, ([[1.0]], [0]), device.TrainingDevice(allocation=None, setup=None))


def test_the_model_of_a_training_has_the_shape_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = list[Any]()

    def model(shape: Any, *, setup: Any) -> Any:
        shapes.append(shape)
        raise ZeroDivisionError

    monkeypatch.setitem(sys.modules, "torch", Torch(gpus=0))
    monkeypatch.setattr(pytorch, "model", model)
    setup = pytorch.setup(SETTINGS, allocated=True)
    with pytest.raises(ZeroDivisionError):
        mlp.train({"hidden_units": [5]}, ([[0, 1, 2]] * 2, [0, 4]), device.TrainingDevice(allocation=None, setup=setup))
    assert shapes == [{"type": "mlp", "input_dim": 3, "hidden_units": [5], "output_dim": 5}]


class Steps:
    """What a training calls, in its order, and rows whose loss is their class."""

    def __init__(self, torch: Any) -> None:
        self.asked = list[str]()
        batches = [[4, 0], [2, 1], [3]]
        torch.tensor = lambda rows, device: Rows(rows)
        torch.randperm = lambda count, device: SimpleNamespace(
            split=lambda size: batches if (count, size) == (5, 2) else []
        )
        torch.optim = SimpleNamespace(Adam=lambda _, lr: SimpleNamespace(zero_grad=self._noting(f"zero_grad, lr {lr}")))
        torch.nn.functional = SimpleNamespace(cross_entropy=lambda _, classes: sum(classes) / len(classes))
        self.scaler = SimpleNamespace(
            scale=lambda _: SimpleNamespace(backward=self._noting("backward")),
            step=self._noting("step"),
            update=self._noting("update"),
        )

    def _noting(self, word: str) -> Any:
        return lambda *_: self.asked.append(word)


class Rows(list[Any]):
    """A tensor of rows, indexed by those of a batch."""

    def __getitem__(self, batch: Any) -> Any:
        return [list.__getitem__(self, at) for at in batch]


def test_the_loss_of_an_epoch_is_the_mean_of_its_rows_also_with_a_smaller_last_batch(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(torch)
    made = type("Model", (), {"parameters": list, "__call__": lambda _, rows: rows})()
    monkeypatch.setattr(pytorch, "model", lambda *_, **__: made)
    monkeypatch.setattr(pytorch.PyTorchSetup, "scaler", lambda _: steps.scaler)
    setup = pytorch.setup(SETTINGS, allocated=True)
    data = ([[each, each] for each in range(5)], [0, 1, 2, 3, 9])
    params = {"epochs": 2, "batch_size": 2, "learning_rate": 0.5}
    trained = mlp.train(params, data, device.TrainingDevice(allocation=None, setup=setup))
    assert (trained.model, trained.losses) == (made, [3.0, 3.0])
    assert steps.asked == ["zero_grad, lr 0.5", "backward", "step", "update"] * 6


async def test_a_function_without_asyncio_trains_in_a_thread_of_its_own() -> None:
    """The loop stays free to renew the lease."""
    threads = list[threading.Thread]()

    def blocks(_params: Any, _data: Any, _device: Any) -> str:
        threads.append(threading.current_thread())
        return "trained"

    async def awaits(_params: Any, _data: Any, _device: Any) -> str:
        threads.append(threading.current_thread())
        return "trained"

    engine = AlgorithmTrainingEngine()
    for name, algorithm in (("blocks", blocks), ("awaits", awaits)):
        engine.register(name, algorithm=algorithm)
        assert await engine.train_algorithm(name, TrainingConfig("a"), None) == "trained"
    assert [thread is threading.main_thread() for thread in threads] == [False, True]
