"""TensorFlow, set up by the gateway's settings: visible devices, memory, precision policy, strategy."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dovetail.answers.v1 import Setup
from dovetail.sdk.errors import DovetailError, MissingExtraError
from dovetail.sdk.training import environment
from dovetail.sdk.training.models import model_of

_NO_GPU: Final = "TensorFlow sees no GPU on this machine: it computes on the CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowSetup:
    """TensorFlow as it is set up in this process.

    - `settings`: what the gateway answered
    - `strategy`: the `tf.distribute.Strategy` in whose scope models are made
    - `gpus`: number of GPUs that this process sees
    - `message`: what differs from the settings; empty if nothing does
    """

    settings: Setup
    strategy: Any
    gpus: int
    message: str


def setup(settings: Setup, *, allocated: bool) -> TensorFlowSetup:
    """Set TensorFlow up in this process. Raises `MissingExtraError`, and `DovetailError` if it uses its GPUs already.

    `allocated` says whether the settings name the devices of an allocation.
    """
    environment.apply(settings.environment, allocated=allocated)
    tf = _tensorflow()
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        _limit(tf, gpu=gpu, settings=settings)
    tf.keras.mixed_precision.set_global_policy(settings.precision)
    return TensorFlowSetup(
        settings=settings,
        strategy=_strategy(tf, settings=settings, gpus=len(gpus)),
        gpus=len(gpus),
        message="" if gpus else _NO_GPU,
    )


def model(model_config: Mapping[str, Any], *, setup: TensorFlowSetup) -> Any:
    """The `keras.Sequential` of a configuration, made in the strategy's scope."""
    wanted, keras = model_of(model_config), _tensorflow().keras
    *hidden, last = wanted.widths[1:]
    with setup.strategy.scope():
        layers = [keras.layers.Dense(width, activation="relu") for width in hidden]
        # The output stays in 32 bits under a mixed policy, for the loss.
        output = keras.layers.Dense(last, dtype="float32")
        return keras.Sequential([keras.Input(shape=(wanted.input_dim,)), *layers, output])


def _limit(tf: Any, *, gpu: Any, settings: Setup) -> None:
    """Take at most the configured part of the GPU's memory, otherwise only as much as is used."""
    try:
        if settings.memory_fraction is not None and settings.memory_limit_mib is not None:
            part = tf.config.LogicalDeviceConfiguration(memory_limit=settings.memory_limit_mib)
            tf.config.set_logical_device_configuration(gpu, [part])
        else:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        message = f"TensorFlow uses its GPUs already, so their memory cannot be limited: set it up first ({error})"
        raise DovetailError(message) from error


def _strategy(tf: Any, *, settings: Setup, gpus: int) -> Any:
    """The strategy of the settings where this process can have it."""
    if settings.distribution.enabled and "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if settings.distribution.enabled and gpus > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def _tensorflow() -> Any:
    try:
        import tensorflow as tf
    except ImportError as error:
        raise MissingExtraError("TensorFlow", extra="tensorflow") from error
    return tf
