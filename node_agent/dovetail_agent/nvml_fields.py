"""Figures that NVIDIA's driver gives several at a time: each call waits for the driver's lock, so one for many pays."""

from typing import Any, Final

import pynvml

from dovetail_agent.calls import Caller
from dovetail_agent.health import Signs
from dovetail_agent.library import CardLost

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
    """What tells of a card's health, in one call; None where the driver has no such call. Raises `CardLost`."""
    told = ask(pynvml.nvmlDeviceGetFieldValues, args=(card, list(_FIELDS)))
    if told is None:
        return None
    values = {each.fieldId: _value(each) for each in told}
    remapped = [values[field] for field in _REMAPPED]
    failed = values[_REMAP_FAILED]
    return Signs(
        ecc_corrected=values[_CORRECTED],
        ecc_uncorrected=values[_UNCORRECTED],
        remapped_rows=None if None in remapped else sum(count or 0 for count in remapped),
        remap_failed=None if failed is None else bool(failed),
    )


def _value(told: Any) -> int | None:
    """One of the answers; each has a code of its own."""
    if told.nvmlReturn == pynvml.NVML_ERROR_GPU_IS_LOST:
        raise CardLost("nvmlDeviceGetFieldValues", said="GPU is lost")
    if told.nvmlReturn != pynvml.NVML_SUCCESS or told.valueType not in _VALUES:
        return None
    return int(getattr(told.value, _VALUES[told.valueType]))
