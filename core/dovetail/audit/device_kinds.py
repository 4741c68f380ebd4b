"""The audit of what kind of devices a pod has: model, vendor and nominal size, against its request's text. Pure."""

from collections.abc import Iterable, Mapping

from dovetail.api.gpunode import Device
from dovetail.gpu import mig
from dovetail.gpu.models import model_of, nominal_gb, normalise
from dovetail.gpu.request import GPURequest


def unwanted(
    request: GPURequest, *, devices: Iterable[Device], memory_specs: Mapping[str, float]
) -> tuple[Device, str] | None:
    """The first device that the request is not for, and what that is in words; None if all will do.

    `memory_specs` are the configured sizes of models in GB by family.
    """
    wanted = [normalise(name) for name in request.models]
    for device in devices:
        if (mig.normalised(device.mig_profile) or device.mig_profile) != request.mig:
            return device, f"a MIG instance of {device.mig_profile}" if device.mig_profile else "a whole GPU"
        actual = model_of(mig.model_of(device.model), memory_mib=device.memory_mib, specs=memory_specs)
        of_model = not wanted or any(model.admits(actual) for model in wanted)
        if not of_model or request.vendor not in {None, device.vendor}:
            return device, f"a {device.vendor} {device.model}"
        size = nominal_gb(device.model, memory_mib=device.memory_mib, specs=memory_specs)
        if request.min_nominal_gb is not None and size < request.min_nominal_gb:
            return device, f"a {device.model} of {size} GB"
    return None
