"""The devices that MPS's supervisor uses: free memory and compute mode, through NVML.

CardsUnreadable   the driver does not answer: has its message
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pynvml

_MIB: Final = 1 << 20


class DevicesUnreadable(Exception):  # noqa: N818 - says what is the matter
    """The driver does not answer; the text is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsDevice:
    """A whole device.

    `exclusive` means EXCLUSIVE_PROCESS: only MPS's server or one process can use it.
    """

    free_mib: int
    exclusive: bool


class MpsDevices(Protocol):
    """The devices of this node."""

    def list_devices(self) -> Mapping[str, MpsDevice]:
        """Return the devices that MPS can serve (no MIG), by UUID. Raises `DevicesUnreadable`."""
        ...

    def keep(self, uuid: str, *, exclusive: bool) -> None:
        """Set a device's compute mode: EXCLUSIVE_PROCESS or DEFAULT. Raises `DevicesUnreadable`."""
        ...


class NvmlDevices:
    """The devices through NVML. Blocks. The library is opened on first use and after an error."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def list_devices(self) -> Mapping[str, MpsDevice]:
        """Implement `MpsDevices.list_devices`."""
        try:
            self._open()
            return {uuid: _card(handle) for uuid, handle in self._handles.items() if not _split(handle)}
        except pynvml.NVMLError as error:
            self._close()
            raise DevicesUnreadable(f"NVML: {error}") from error

    def keep(self, uuid: str, *, exclusive: bool) -> None:
        """Implement `MpsDevices.keep`."""
        mode = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else pynvml.NVML_COMPUTEMODE_DEFAULT
        try:
            self._open()
            pynvml.nvmlDeviceSetComputeMode(self._handles[uuid], mode)
        except KeyError as error:
            raise DevicesUnreadable(f"there is no card {uuid}") from error
        except pynvml.NVMLError as error:
            raise DevicesUnreadable(f"the compute mode of {uuid} cannot be set: {error}") from error

    def _open(self) -> None:
        if self._handles:
            return
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        self._handles = {pynvml.nvmlDeviceGetUUID(handle): handle for handle in handles}

    def _close(self) -> None:
        if self._handles:
            self._handles = {}
            pynvml.nvmlShutdown()


def _card(handle: Any) -> MpsDevice:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    mode = pynvml.nvmlDeviceGetComputeMode(handle)
    return MpsDevice(
        free_mib=int(memory.free) // _MIB, exclusive=bool(mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    )


def _split(handle: Any) -> bool:
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
