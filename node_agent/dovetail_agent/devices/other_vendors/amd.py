"""AMD's devices through AMD's own binding, `amdsmi`.

The binding's structures change with each ROCm release, so its version must match the library's.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.api.gpunode import Links
from dovetail_agent.devices.driver import CardLost, LibraryGone, loads
from dovetail_agent.devices.health import Signs, verdict
from dovetail_agent.devices.library_calls import Caller, Meaning
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.devices.other_vendors.card_driver import CardDriver
from dovetail_agent.devices.pci import SYS

_MIB: Final = 1 << 20
_NOT_INIT, _DRIVER_NOT_LOADED = 32, 34
_UNRESERVABLE: Final = 2


def amd_driver(*, proc: Path | None, libraries: Sequence[str], sys: Path = SYS) -> CardDriver:
    """Return the driver of a node's AMD devices."""
    return CardDriver(AmdLibrary(libraries), proc=proc, sys=sys)


class AmdLibrary:
    """The library's calls. `open` imports the binding, because the import loads the library."""

    label = "AMD SMI"

    def __init__(self, libraries: Sequence[str]) -> None:
        self._libraries = tuple(libraries)
        self._smi: Any = None
        self._ask = Caller(Exception, meaning=_meaning)

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet."""
        return self._ask.waiting_for

    def open(self) -> None:
        """Load and initialise the library.

        Raises `LibraryGone`, also if the binding is missing or does not match the library.
        """
        if self._smi is None:
            self._smi = _binding(self._libraries)
            self._ask = Caller(self._smi.AmdSmiException, meaning=_meaning)
        self._ask.require(self._smi.amdsmi_init)

    def close(self) -> None:
        """Shut the library down."""
        self._ask(self._smi.amdsmi_shut_down)

    def handles(self) -> Sequence[Any]:
        """One handle for each device, or for each partition of one."""
        return self._ask(self._smi.amdsmi_get_processor_handles) or ()

    def describe(self, handle: Any, *, index: int) -> DeviceInfo:
        """Name, memory and PCI address. Raises `CardLost`."""
        smi = self._smi
        uuid = self._ask(smi.amdsmi_get_gpu_device_uuid, args=(handle,))
        memory = self._memory(handle)
        if not uuid:
            raise CardLost("amdsmi_get_gpu_device_uuid", said="the card does not say who it is")
        asic = self._ask(smi.amdsmi_get_gpu_asic_info, args=(handle,)) or {}
        return DeviceInfo(
            index=index,
            uuid=uuid,
            vendor="amd",
            model=_value_or_none(asic.get("market_name")) or "unknown",
            memory_mib=memory["vram_total"],
            pci_bus_id=self._ask(smi.amdsmi_get_gpu_device_bdf, args=(handle,)) or "",
        )

    def links(self, handles: Mapping[int, Any]) -> Mapping[int, Links]:
        """The XGMI links of each device, by index."""
        xgmi = self._smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI
        return {
            index: Links(nvlink=[to for to in handles if to != index and self._link(one, other=handles[to]) == xgmi])
            for index, one in handles.items()
        }

    def load(self, handle: Any) -> DeviceSample:
        """All figures except those of processes. Raises `CardLost`."""
        smi = self._smi
        memory = self._memory(handle)
        activity = self._ask(smi.amdsmi_get_gpu_activity, args=(handle,)) or {}
        busy = _value_or_none(activity.get("gfx_activity"))
        signs = self._signs(handle)
        return DeviceSample(
            used_mib=memory["vram_used"],
            utilization=None if busy is None else busy / 100,
            temperature_celsius=self._temperature(handle),
            power_watts=self._power(handle),
            clocks_mhz=self._clocks(handle),
            ecc_errors=signs.ecc_errors,
            remapped_rows=signs.remapped_rows,
            unhealthy_reason=verdict(signs),
        )

    def processes(self, handle: Any) -> Mapping[int, int | None] | None:
        """Device memory in MiB by PID."""
        answer = self._ask(self._smi.amdsmi_get_gpu_process_list, args=(handle,))
        if answer is None:
            return None
        return {each["pid"]: each["memory_usage"]["vram_mem"] // _MIB for each in answer}

    def versions(self, handle: Any) -> tuple[str, str]:
        """Versions of the kernel driver and of the library."""
        driver = self._ask(self._smi.amdsmi_get_gpu_driver_info, args=(handle,))
        library = self._ask(self._smi.amdsmi_get_lib_version) or {}
        numbers = [str(library[part]) for part in ("major", "minor", "release") if part in library]
        return _value_or_none((driver or {}).get("driver_version")) or "", ".".join(numbers)

    def _memory(self, handle: Any) -> Mapping[str, int]:
        memory: Mapping[str, int] | None = self._ask(self._smi.amdsmi_get_gpu_vram_usage, args=(handle,))
        if not memory or not memory["vram_total"]:
            # A device reports this for as long as its driver reaches it.
            raise CardLost("amdsmi_get_gpu_vram_usage", said="the card does not answer")
        return memory

    def _link(self, one: Any, *, other: Any) -> Any:
        return (self._ask(self._smi.amdsmi_topo_get_link_type, args=(one, other)) or {}).get("type")

    def _temperature(self, handle: Any) -> int | None:
        smi = self._smi
        for sensor in (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureType.EDGE):
            args = (handle, sensor, smi.AmdSmiTemperatureMetric.CURRENT)
            if celsius := self._ask(smi.amdsmi_get_temp_metric, args=args):
                return int(celsius)
        return None

    def _power(self, handle: Any) -> int | None:
        """Power in watts. Newer devices report the current draw, older ones an average."""
        answer = self._ask(self._smi.amdsmi_get_power_info, args=(handle,)) or {}
        watts = (_value_or_none(answer.get(name)) for name in ("current_socket_power", "average_socket_power"))
        return next((value for value in watts if value), None)

    def _clocks(self, handle: Any) -> dict[str, int]:
        kinds = {"sm": self._smi.AmdSmiClkType.GFX, "memory": self._smi.AmdSmiClkType.MEM}
        answer = {name: self._ask(self._smi.amdsmi_get_clock_info, args=(handle, kind)) for name, kind in kinds.items()}
        rates = {name: _value_or_none((clock or {}).get("clk")) for name, clock in answer.items()}
        return {name: rate for name, rate in rates.items() if rate is not None}

    def _signs(self, handle: Any) -> Signs:
        ecc = self._ask(self._smi.amdsmi_get_gpu_total_ecc_count, args=(handle,)) or {}
        pages = self._ask(self._smi.amdsmi_get_gpu_bad_page_info, args=(handle,))
        return Signs(
            ecc_corrected=ecc.get("correctable_count"),
            ecc_uncorrected=ecc.get("uncorrectable_count"),
            remapped_rows=None if pages is None else len(pages),
            remap_failed=None if pages is None else any(page["status"] == _UNRESERVABLE for page in pages),
        )


def _binding(libraries: Sequence[str]) -> Any:
    # Without its library, the binding prints an error on standard output at each import.
    if not loads(*libraries):
        raise LibraryGone(libraries[0], said="the library is not there")
    try:
        return importlib.import_module("amdsmi")
    except ImportError as error:
        said = "AMD's binding is not installed: pip install 'dovetail-gpu[amd]'"
        raise LibraryGone("import amdsmi", said=said) from error
    except (AttributeError, KeyError, OSError) as error:
        raise LibraryGone("import amdsmi", said=f"AMD's binding does not fit the library here ({error})") from error


def _meaning(error: Any) -> Meaning:
    code = getattr(error, "err_code", None)
    return {_NOT_INIT: Meaning.GONE, _DRIVER_NOT_LOADED: Meaning.UNLOADED}.get(code or 0, Meaning.ABSENT)


def _value_or_none(value: Any) -> Any:
    """The value, or None: the binding writes "N/A" for a missing value."""
    return None if value == "N/A" else value
