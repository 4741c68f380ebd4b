"""What a card or MIG device does and how it is, as NVIDIA's library says. All calls may raise `CardLost` and
`LibraryGone`, and may take for ever."""

from dataclasses import replace
from typing import Any, Final

import pynvml

from dovetail_agent.calls import Caller
from dovetail_agent.health import Signs
from dovetail_agent.nvml_fields import signs_by_fields
from dovetail_agent.nvml_find import Part, memory_of
from dovetail_agent.provider import DeviceSample

_MIB: Final = 1 << 20
_CLOCKS: Final = {"sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
_ECC: Final = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
# What holds a card's clocks down against its will; idleness and clocks that somebody set are no such thing.
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
    """The figures that move all the time."""
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
        return sample  # power and clocks are the card's: each of its devices would tell them once more
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
    """What tells of the health of the card, in one call where the driver has it."""
    if told := signs_by_fields(part.card, ask=ask):
        return told
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
    """Memory in MiB by process; None where the driver does not give it. One may be named as of several kinds."""
    told = [ask(*calls, args=(part.handle,)) for calls in _PROCESSES]
    if told[0] is None:
        return None  # every driver that names processes at all names those that compute
    return {
        process.pid: None if process.usedGpuMemory is None else process.usedGpuMemory // _MIB
        for processes in told
        for process in processes or ()
    }


def _throttles(card: Any, *, ask: Caller) -> tuple[str, ...] | None:
    bits = ask(
        pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, args=(card,)
    )
    return None if bits is None else tuple(name for bit, name in THROTTLES.items() if bits & bit)
