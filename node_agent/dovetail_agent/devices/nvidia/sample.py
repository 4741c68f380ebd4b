"""Figures of a device or MIG device from NVML.

All calls can raise `CardLost` and `LibraryGone`, and can block for ever.
"""

from dataclasses import replace
from typing import Any, Final

import pynvml

from dovetail_agent.devices.driver import CardLost
from dovetail_agent.devices.health import Signs
from dovetail_agent.devices.library_calls import Caller
from dovetail_agent.devices.model import DeviceSample
from dovetail_agent.devices.nvidia.inventory import Part, memory_of

_CORRECTED, _UNCORRECTED = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
_REMAPPED: Final = (pynvml.NVML_FI_DEV_REMAPPED_COR, pynvml.NVML_FI_DEV_REMAPPED_UNC)
_REMAP_FAILED: Final = pynvml.NVML_FI_DEV_REMAPPED_FAILURE
_FIELDS: Final = (_CORRECTED, _UNCORRECTED, *_REMAPPED, _REMAP_FAILED)
_VALUES: Final = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


def signs_by_fields(card: Any, *, ask: Caller) -> Signs | None:
    """Return the health signs in one call; None if the driver lacks the call. Raises `CardLost`."""
    answer = ask(pynvml.nvmlDeviceGetFieldValues, args=(card, list(_FIELDS)))
    if answer is None:
        return None
    values = {each.fieldId: _value(each) for each in answer}
    remapped = [values[field] for field in _REMAPPED]
    failed = values[_REMAP_FAILED]
    return Signs(
        ecc_corrected=values[_CORRECTED],
        ecc_uncorrected=values[_UNCORRECTED],
        remapped_rows=None if None in remapped else sum(count or 0 for count in remapped),
        remap_failed=None if failed is None else bool(failed),
    )


def _value(answer: Any) -> int | None:
    """Return one field's value. Each field has a result code of its own. Raises `CardLost`."""
    if answer.nvmlReturn == pynvml.NVML_ERROR_GPU_IS_LOST:
        raise CardLost("nvmlDeviceGetFieldValues", said="GPU is lost")
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or answer.valueType not in _VALUES:
        return None
    return int(getattr(answer.value, _VALUES[answer.valueType]))


_MIB: Final = 1 << 20
_CLOCKS: Final = {"sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
_ECC: Final = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
# What lowers a device's clocks involuntarily. Idleness and clocks that an administrator has set do not count.
THROTTLES: Final = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power_cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "temperature",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware_temperature",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power_brake",
}
_PROCESSES: Final = (
    (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    (pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2),
    (pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2),
)


def load_of(part: Part, *, ask: Caller) -> DeviceSample:
    """Return the figures that change all the time."""
    memory = memory_of(part.handle, ask=ask)
    utilization = ask(pynvml.nvmlDeviceGetUtilizationRates, args=(part.handle,))
    celsius = ask(
        pynvml.nvmlDeviceGetTemperatureV1,
        pynvml.nvmlDeviceGetTemperature,
        args=(part.card, pynvml.NVML_TEMPERATURE_GPU),
    )
    sample = DeviceSample(
        used_mib=memory.used_mib if memory else None,
        utilization=None if utilization is None else utilization.gpu / 100,
        temperature_celsius=celsius,
    )
    if part.info.mig_profile:
        return sample  # power and clocks belong to the physical device: each MIG device would report them again
    mode = ask(pynvml.nvmlDeviceGetComputeMode, args=(part.card,))
    milliwatts = ask(pynvml.nvmlDeviceGetPowerUsage, args=(part.card,))
    clocks = {name: ask(pynvml.nvmlDeviceGetClockInfo, args=(part.card, kind)) for name, kind in _CLOCKS.items()}
    return replace(
        sample,
        power_watts=None if milliwatts is None else round(milliwatts / 1000),
        clocks_mhz={name: mhz for name, mhz in clocks.items() if mhz is not None},
        throttled_by=_throttles(part.card, ask=ask),
        shareable=None if mode is None else mode == pynvml.NVML_COMPUTEMODE_DEFAULT,
    )


def signs_of(part: Part, *, ask: Caller) -> Signs:
    """Return the device's health signs, in one call where the driver supports it."""
    if answer := signs_by_fields(part.card, ask=ask):
        return answer
    ecc = {
        kind: ask(pynvml.nvmlDeviceGetTotalEccErrors, args=(part.card, number, pynvml.NVML_VOLATILE_ECC))
        for kind, number in _ECC.items()
    }
    signs = Signs(ecc_corrected=ecc["corrected"], ecc_uncorrected=ecc["uncorrected"])
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, args=(part.card,))
    if rows is None:
        return signs
    corrected, uncorrected, _pending, failed = rows
    return replace(signs, remapped_rows=corrected + uncorrected, remap_failed=bool(failed))


def processes_of(part: Part, *, ask: Caller) -> dict[int, int | None] | None:
    """Return memory in MiB by PID; None if the driver does not report it.

    A process can appear in several of NVML's lists, and counts once.
    """
    answer = [ask(*calls, args=(part.handle,)) for calls in _PROCESSES]
    if answer[0] is None:
        return None  # every driver that lists processes lists compute processes
    return {
        process.pid: None if process.usedGpuMemory is None else process.usedGpuMemory // _MIB
        for processes in answer
        for process in processes or ()
    }


def _throttles(card: Any, *, ask: Caller) -> tuple[str, ...] | None:
    bits = ask(
        pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, args=(card,)
    )
    return None if bits is None else tuple(name for bit, name in THROTTLES.items() if bits & bit)
