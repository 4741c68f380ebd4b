"""The meaning of NVIDIA's error codes."""

from typing import Any, Final

import pynvml

from dovetail_agent.devices.library_calls import Caller, Meaning

_MEANINGS: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST: Meaning.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Meaning.LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Meaning.LOST,
    pynvml.NVML_ERROR_UNINITIALIZED: Meaning.GONE,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Meaning.GONE,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Meaning.GONE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Meaning.UNLOADED,
}


def nvml_caller() -> Caller:
    """Return a caller for NVIDIA's binding."""
    return Caller(pynvml.NVMLError, meaning=_meaning)


def _meaning(error: Any) -> Meaning:
    return _MEANINGS.get(error.value, Meaning.ABSENT)
