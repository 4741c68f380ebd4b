"""The audit of what kind of devices a pod has: model, vendor and nominal size, against its request's text. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dovetail.api.gpunode import Device
from dovetail.gpu import mig
from dovetail.gpu.models import model_of
from dovetail.gpu.request import GPURequest


def unwanted(
    request: GPURequest, *, devices: Iterable[Device], memory_specs: Mapping[str, float]
) -> tuple[Device, str] | None:
    """The first device that the request is not for, and what that is in words; None if all will do.

    `memory_specs` are the configured sizes of models in GB by family.
    """
    for device in devices:
        if (mig.normalised(device.mig_profile) or device.mig_profile) != request.mig:
            return device, f"a MIG instance of {device.mig_profile}" if device.mig_profile else "a whole GPU"
        actual = model_of(mig.model_of(device.model), memory_mib=device.memory_mib, specs=memory_specs)
        if not replace(request, min_nominal_gb=None).admits(actual) or request.vendor not in {None, device.vendor}:
            return device, f"a {device.vendor} {device.model}"
        if not request.admits(actual):
            return device, f"a {device.model} of {actual.memory_gb} GB"
    return None
