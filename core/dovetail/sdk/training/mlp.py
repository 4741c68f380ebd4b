"""The algorithm `mlp`: a small classifier, trained by PyTorch or TensorFlow, whichever the device is set up for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dovetail.decoding import UnreadableError, convert
from dovetail.sdk.errors import InvalidError
from dovetail.sdk.training import pytorch, tensorflow
from dovetail.sdk.training.device import TrainingDevice
from dovetail.sdk.training.pytorch import PyTorchSetup
from dovetail.sdk.training.tensorflow import TensorFlowSetup

Positive = Annotated[int, Meta(ge=1)]


class _Parameters(msgspec.Struct, frozen=True, kw_only=True):
    hidden_units: Positive | list[Positive] = 32
    epochs: Positive = 10
    batch_size: Positive = 32
    learning_rate: Annotated[float, Meta(gt=0)] = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model, and its mean loss after each epoch."""

    model: Any
    losses: list[float]


def train(params: Mapping[str, Any], data: Any, device: TrainingDevice) -> Trained:
    """Train on `data`, rows of numbers and the class of each: `([[0.1, 2.0], …], [0, …])`. Raises `InvalidError`.

    `params` has `hidden_units` (32), `epochs` (10), `batch_size` (32) and `learning_rate` (0.01).
    """
    try:
        wanted = convert(dict(params), as_type=_Parameters)
    except UnreadableError as error:
        raise _invalid(f"algorithm_params cannot be used: {error.problem}") from error
    rows, classes = _checked(data)
    shape = {
        "type": "mlp",
        "input_dim": len(rows[0]),
        "hidden_units": wanted.hidden_units,
        "output_dim": max(classes) + 1,
    }
    if isinstance(device.setup, PyTorchSetup):
        return _pytorch(wanted, rows=rows, classes=classes, shape=shape, setup=device.setup)
    if isinstance(device.setup, TensorFlowSetup):
        return _tensorflow(wanted, rows=rows, classes=classes, shape=shape, setup=device.setup)
    raise _invalid("mlp needs a framework: write gpu_config with framework pytorch or tensorflow")


def _checked(data: Any) -> tuple[list[list[float]], list[int]]:
    """Rows of the same length, and a class for each. Raises `InvalidError`."""
    try:
        features, labels = data
        rows = [[float(value) for value in row] for row in features]
        classes = [int(label) for label in labels]
    except (TypeError, ValueError) as error:
        raise _invalid("data: rows of numbers and the class of each are needed, such as ([[0.1, 2.0]], [0])") from error
    if not rows or len(rows) != len(classes) or len({len(row) for row in rows}) != 1 or min(classes) < 0:
        raise _invalid("data: rows of one length, and for each a class from 0 on, are needed")
    return rows, classes


def _pytorch(
    wanted: _Parameters, *, rows: list[list[float]], classes: list[int], shape: dict[str, Any], setup: PyTorchSetup
) -> Trained:
    import torch

    model, scaler = pytorch.model(shape, setup=setup), setup.scaler()
    features = torch.tensor(rows, device=setup.device)
    targets = torch.tensor(classes, device=setup.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=wanted.learning_rate)
    losses = list[float]()
    for _ in range(wanted.epochs):
        total = 0.0
        for part in torch.randperm(len(rows), device=setup.device).split(wanted.batch_size):
            optimizer.zero_grad()
            with setup.autocast():
                loss = torch.nn.functional.cross_entropy(model(features[part]), targets[part])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += float(loss) * len(part)
        losses.append(total / len(rows))
    return Trained(model=model, losses=losses)


def _tensorflow(
    wanted: _Parameters, *, rows: list[list[float]], classes: list[int], shape: dict[str, Any], setup: TensorFlowSetup
) -> Trained:
    import tensorflow as tf

    model = tensorflow.model(shape, setup=setup)
    with setup.strategy.scope():
        model.compile(
            optimizer=tf.keras.optimizers.Adam(wanted.learning_rate),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    fitted = model.fit(
        tf.constant(rows), tf.constant(classes), epochs=wanted.epochs, batch_size=wanted.batch_size, verbose=0
    )
    return Trained(model=model, losses=[float(loss) for loss in fitted.history["loss"]])


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
