"""The numbers by which CUDA names this machine's NVIDIA devices. Reads NVML, in a thread that may hang.

A module of its own: only it loads NVML, whose calls may hang; a pod's life uses just the numbers.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail.logs import get_logger

log = get_logger("dovetail.local_node.devices")

# NVML answers within milliseconds while an agent keeps the driver loaded.
_PATIENCE_SECONDS: Final = 5.0


async def read(
    *, ask: Callable[[], Mapping[str, int]] | None = None, seconds: float = _PATIENCE_SECONDS
) -> Mapping[str, int]:
    """The number of each device now, by UUID; empty where a number could name another device.

    A driver that does not answer within `seconds` counts as one without numbers. Its thread ends with the process.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Mapping[str, int]] = loop.create_future()

    def keep(found: Mapping[str, int]) -> None:
        if not answer.done():
            answer.set_result(found)

    def call() -> None:
        found = (ask or ask_nvml)()
        # The loop is closed if the local node ended while the driver hung.
        if not loop.is_closed():
            loop.call_soon_threadsafe(keep, found)

    threading.Thread(target=call, name="NVML", daemon=True).start()
    try:
        return await asyncio.wait_for(answer, seconds)
    except TimeoutError:
        log.warning("the driver does not answer: jobs get their devices by UUID", waited_seconds=seconds)
        return {}


def ask_nvml() -> dict[str, int]:
    """The number of each device by UUID, as CUDA counts with CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Empty where CUDA may count differently from NVML, whose indexes people see: if a device cannot be read, if one is in
    MIG mode, of which CUDA shows one instance alone, and if NVML does not count by PCI address. NVML promises no order,
    although each driver has had this one.
    """
    import pynvml  # noqa: PLC0415 - memory that a machine without GPU jobs need not spend

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.warning("jobs get their devices by UUID", problem=f"nvmlInit: {error}")
        return {}
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
        places = [_place(pynvml.nvmlDeviceGetPciInfo(handle)) for handle in handles]
        is_split = any(_in_mig_mode(handle, nvml=pynvml) for handle in handles)
    except pynvml.NVMLError as error:
        log.warning("jobs get their devices by UUID", problem=str(error))
        return {}
    finally:
        pynvml.nvmlShutdown()
    return {} if is_split or places != sorted(places) else {uuid: index for index, uuid in enumerate(uuids)}


def _place(pci: Any) -> tuple[int, int, int]:
    return pci.domain, pci.bus, pci.device


def _in_mig_mode(handle: Any, *, nvml: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return False  # a device or a driver from before MIG
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)
