"""PyTorch, set up by the gateway's settings: visible devices, memory, autocast, process group."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from dovetail.answers.v1 import Setup
from dovetail.sdk.errors import MissingExtraError
from dovetail.sdk.training import environment
from dovetail.sdk.training.models import model_of

_NO_GPU: Final = "PyTorch sees no GPU on this machine: it computes on the CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorchSetup:
    """PyTorch as it is set up in this process.

    - `settings`: what the gateway answered
    - `device`: the `torch.device` to use
    - `gpus`: number of GPUs that this process sees
    - `process_group`: whether this process is one of several that train together
    - `message`: what differs from the settings; empty if nothing does
    """

    settings: Setup
    device: Any
    gpus: int
    process_group: bool
    message: str

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which to compute: 16 bits with mixed precision, otherwise as always."""
        torch = _torch()
        # The CPU has no float16 in autocast.
        dtype = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        found: AbstractContextManager[None] = torch.autocast(
            device_type=self.device.type, dtype=dtype, enabled=self.settings.mixed_precision
        )
        return found

    def scaler(self) -> Any:
        """The scaler of gradients, which passes them through without mixed precision or without a GPU."""
        enabled = self.settings.mixed_precision and self.device.type == "cuda"
        torch = _torch()
        # torch.amp has it from 2.3 on; torch.cuda.amp then warns.
        if hasattr(torch.amp, "GradScaler"):
            return torch.amp.GradScaler(self.device.type, enabled=enabled)
        return torch.cuda.amp.GradScaler(enabled=enabled)


def setup(settings: Setup, *, allocated: bool) -> PyTorchSetup:
    """Set PyTorch up in this process. Raises `MissingExtraError`.

    `allocated` says whether the settings name the devices of an allocation.
    """
    environment.apply(settings.environment, allocated=allocated)
    torch = _torch()
    gpus: int = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if settings.memory_fraction is not None:
        for index in range(gpus):
            torch.cuda.set_per_process_memory_fraction(settings.memory_fraction, index)
    return PyTorchSetup(
        settings=settings,
        device=torch.device("cuda:0" if gpus else "cpu"),
        gpus=gpus,
        process_group=_join(settings, gpus=gpus),
        message="" if gpus else _NO_GPU,
    )


def model(model_config: Mapping[str, Any], *, setup: PyTorchSetup) -> Any:
    """The `torch.nn.Module` of a configuration on the set-up's device, over all GPUs if it is distributed."""
    wanted, nn = model_of(model_config), _torch().nn
    layers: list[Any] = []
    for width, following in zip(wanted.widths, wanted.widths[1:], strict=False):
        layers += [nn.Linear(width, following), nn.ReLU()]
    made = nn.Sequential(*layers[:-1]).to(setup.device)
    if setup.process_group:
        return nn.parallel.DistributedDataParallel(made, device_ids=[setup.device.index] if setup.gpus else None)
    if setup.settings.distribution.enabled and setup.gpus > 1:
        return nn.DataParallel(made)
    return made


def _join(settings: Setup, *, gpus: int) -> bool:
    """Join the other processes, if a launcher has started this one as one of several."""
    distributed = _torch().distributed
    if not settings.distribution.enabled or "RANK" not in os.environ:
        return False
    if not distributed.is_initialized():
        distributed.init_process_group(backend=settings.distribution.backend if gpus else "gloo")
    return True


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("PyTorch", extra="pytorch") from error
    return torch
