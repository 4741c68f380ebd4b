"""Intel's devices through Level Zero's Sysman."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.api.gpunode import Links
from dovetail_agent.devices.driver import CardLost, LibraryGone
from dovetail_agent.devices.library_calls import Caller, CallFailed
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.devices.other_vendors.card_driver import CardDriver
from dovetail_agent.devices.other_vendors.intel.sysman import Handle, Sysman, meaning
from dovetail_agent.devices.pci import SYS

_MIB: Final = 1 << 20
_GPU, _ON_DEVICE, _WEDGED, _REPLACE = 1, 1, 1, 4
# All engines together, otherwise the compute engines.
_ENGINES: Final = (0, 1)
# The hottest point of the GPU, otherwise of the board.
_SENSORS: Final = (1, 0)
_CLOCKS: Final = {0: "sm", 1: "memory"}
_ERRORS: Final = {0: "corrected", 1: "uncorrected"}
# The categories of faults in memory or hardware, not of a program or driver.
_OF_HARDWARE: Final = (3, 4, 5, 6)
# What lowers a device's clocks involuntarily. A range that an administrator has set does not count.
_THROTTLES: Final = {1: "power_cap", 2: "power_cap", 4: "current", 8: "temperature", 16: "power_brake"}


def intel_driver(*, proc: Path | None, sys: Path = SYS, library: str) -> CardDriver:
    """Return the driver of a node's Intel devices."""
    return CardDriver(IntelLibrary(library), proc=proc, sys=sys)


class IntelLibrary:
    """The library's calls.

    Utilization and power are differences between two samples, so the first sample has neither.
    """

    label = "Level Zero"

    def __init__(self, library: str) -> None:
        self._name = library
        self._zes: Any = None
        self._ask = Caller(CallFailed, meaning=meaning)
        self._before: dict[int | None, tuple[int, int]] = {}

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet."""
        return self._ask.waiting_for

    def open(self) -> None:
        """Load and initialise the library. Raises `LibraryGone`."""
        if self._zes is None:
            try:
                self._zes = Sysman(self._name)
            except OSError as error:
                raise LibraryGone(self._name, said=str(error)) from error
        self._ask.require(self._zes.init)
        self._before.clear()

    def close(self) -> None:
        """Do nothing: the library has no call to shut it down."""

    def handles(self) -> Sequence[Handle]:
        """The GPUs of all its drivers."""
        drivers = self._ask(self._zes.drivers) or ()
        devices = [device for driver in drivers for device in self._ask(self._zes.devices, args=(driver,)) or ()]
        return [device for device in devices if self._is_gpu(device)]

    def describe(self, handle: Handle, *, index: int) -> DeviceInfo:
        """Name, memory and PCI address. Raises `CardLost`."""
        answer, memory = self._ask(self._zes.device, args=(handle,)), self._memory(handle)
        if answer is None or not memory:
            raise CardLost("zesDeviceGetProperties", said="the card says neither who it is nor how large")
        pci = self._ask(self._zes.pci, args=(handle,))
        name = answer.core.name or answer.model_name
        return DeviceInfo(
            index=index,
            uuid=f"GPU-{uuid.UUID(bytes=bytes(answer.core.uuid))}",
            vendor="intel",
            model=name.decode(errors="replace") or "unknown",
            memory_mib=sum(state.size for state in memory) // _MIB,
            pci_bus_id=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.{pci.function:x}" if pci else "",
        )

    def links(self, handles: Mapping[int, Any]) -> Mapping[int, Links]:  # noqa: ARG002 - the protocol's
        """None: Xe Link is not read."""
        return {}

    def load(self, handle: Handle) -> DeviceSample:
        """All figures except those of processes. Raises `CardLost`."""
        memory = self._memory(handle)
        clocks, throttled = self._clocks(handle)
        watts = self._power(handle)
        return DeviceSample(
            used_mib=sum(state.size - state.free for state in memory) // _MIB if memory else None,
            utilization=self._utilization(handle),
            temperature_celsius=self._temperature(handle),
            power_watts=None if watts is None else round(watts),
            clocks_mhz=clocks,
            throttled_by=throttled,
            ecc_errors=self._errors(handle),
            unhealthy_reason=self._verdict(handle, memory=memory),
        )

    def processes(self, handle: Handle) -> Mapping[int, int | None] | None:
        """Device memory in MiB by PID."""
        answer = self._ask(self._zes.processes, args=(handle,))
        return None if answer is None else {each.pid: each.memory_bytes // _MIB for each in answer}

    def versions(self, handle: Handle) -> tuple[str, str]:
        """Version of the driver. Level Zero has no runtime of its own, so that version is empty."""
        answer = self._ask(self._zes.device, args=(handle,))
        return (answer.driver_version.decode(errors="replace") if answer else "", "")

    def _is_gpu(self, device: Handle) -> bool:
        # A lost device still counts as a GPU: `describe` asks again and gets the error.
        try:
            answer = self._ask(self._zes.device, args=(device,))
        except CardLost:
            return True
        return answer is not None and answer.core.type == _GPU

    def _memory(self, handle: Handle) -> list[Any]:
        """The state of each memory module on the device."""
        states = []
        for module in self._ask(self._zes.memories, args=(handle,)) or ():
            kind = self._ask(self._zes.memory, args=(module,))
            state = self._ask(self._zes.memory_state, args=(module,)) if kind and kind.location == _ON_DEVICE else None
            if state is not None:
                states.append(state)
        return states

    def _utilization(self, handle: Handle) -> float | None:
        groups = self._kinds(self._zes.engines, properties=self._zes.engine, handle=handle)
        group = next((groups[kind] for kind in _ENGINES if kind in groups), None)
        ratio = None if group is None else self._pace(self._zes.engine_activity, handle=group)
        return None if ratio is None else min(1.0, max(0.0, ratio))

    def _power(self, handle: Handle) -> float | None:
        """Power in watts: microjoules divided by microseconds.

        The first domain covers the whole device.
        """
        domains = self._ask(self._zes.powers, args=(handle,)) or ()
        return self._pace(self._zes.energy, handle=domains[0]) if domains else None

    def _pace(self, call: Any, *, handle: Handle) -> float | None:
        """The counter's rate of change since the last sample; None for the first sample."""
        answer = self._ask(call, args=(handle,))
        if answer is None:
            return None
        before = self._before.get(handle.value)
        self._before[handle.value] = (answer.amount, answer.at)
        if before is None or answer.at <= before[1]:
            return None
        moved, took = int(answer.amount) - before[0], int(answer.at) - before[1]
        return moved / took

    def _temperature(self, handle: Handle) -> int | None:
        sensors = self._kinds(self._zes.sensors, properties=self._zes.sensor, handle=handle)
        sensor = next((sensors[kind] for kind in _SENSORS if kind in sensors), None)
        celsius = None if sensor is None else self._ask(self._zes.celsius, args=(sensor,))
        return None if celsius is None else round(celsius)

    def _clocks(self, handle: Handle) -> tuple[dict[str, int], tuple[str, ...] | None]:
        domains = self._kinds(self._zes.frequencies, properties=self._zes.frequency, handle=handle)
        states = {kind: self._ask(self._zes.frequency_state, args=(domain,)) for kind, domain in domains.items()}
        rates = {_CLOCKS[kind]: state.actual for kind, state in states.items() if state and kind in _CLOCKS}
        clocks = {name: round(mhz) for name, mhz in rates.items() if mhz > 0}
        chip = states.get(0)
        return clocks, None if chip is None else _throttles(chip.throttled)

    def _errors(self, handle: Handle) -> dict[str, int]:
        sets = self._kinds(self._zes.ras_sets, properties=self._zes.ras, handle=handle)
        answer = {kind: self._ask(self._zes.ras_state, args=(each,)) for kind, each in sets.items()}
        return {
            _ERRORS[kind]: sum(state.category[at] for at in _OF_HARDWARE)
            for kind, state in answer.items()
            if state is not None and kind in _ERRORS
        }

    def _verdict(self, handle: Handle, *, memory: Iterable[Any]) -> str:
        state = self._ask(self._zes.device_state, args=(handle,))
        if state is not None and state.reset & _WEDGED:
            return "Wedged"
        return "MemoryMustBeReplaced" if any(each.health == _REPLACE for each in memory) else ""

    def _kinds(self, many: Any, *, properties: Any, handle: Handle) -> dict[int, Handle]:
        """The parts of a device by their type. Of several parts of one type, the first counts."""
        found: dict[int, Handle] = {}
        for part in self._ask(many, args=(handle,)) or ():
            if answer := self._ask(properties, args=(part,)):
                found.setdefault(answer.type, part)
        return found


def _throttles(flags: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for flag, name in _THROTTLES.items() if flags & flag))
