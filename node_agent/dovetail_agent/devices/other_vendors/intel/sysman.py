"""Level Zero's Sysman: calls that return what they read, or raise their error code.

A module of its own: the calls of a library, which the driver gives their meaning.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_double, c_uint8, c_uint32, c_void_p
from typing import Any, Final, TypeVar

from dovetail_agent.devices.library_calls import Meaning, c_function
from dovetail_agent.devices.other_vendors.intel import structs

_LOST: Final = frozenset({0x70000001, 0x70000006})  # the device is lost, or needs a reset
_UNINITIALISED: Final = 0x78000001
Handle = c_void_p
T = TypeVar("T", bound=ctypes.Structure)


def meaning(error: Any) -> Meaning:
    """Classify an error of the library."""
    code = None if error.code is None else error.code & 0xFFFFFFFF
    if code in _LOST:
        return Meaning.LOST
    return Meaning.UNLOADED if code == _UNINITIALISED else Meaning.ABSENT


class Sysman:
    """The loaded library. Raises `OSError` if it cannot be loaded."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self.init = self._named("zesInit", made=lambda call: call(0), takes=(c_uint32,))
        self.drivers = self._list("zesDriverGet", of_handle=False)
        self.devices = self._list("zesDeviceGet")
        self.memories = self._list("zesDeviceEnumMemoryModules")
        self.engines = self._list("zesDeviceEnumEngineGroups")
        self.sensors = self._list("zesDeviceEnumTemperatureSensors")
        self.powers = self._list("zesDeviceEnumPowerDomains")
        self.frequencies = self._list("zesDeviceEnumFrequencyDomains")
        self.ras_sets = self._list("zesDeviceEnumRasErrorSets")
        self.device = self._filled("zesDeviceGetProperties", of=structs.Device)
        self.device_state = self._filled("zesDeviceGetState", of=structs.DeviceState)
        self.pci = self._filled("zesDevicePciGetProperties", of=structs.Pci)
        self.memory = self._filled("zesMemoryGetProperties", of=structs.Memory)
        self.memory_state = self._filled("zesMemoryGetState", of=structs.MemoryState)
        self.engine = self._filled("zesEngineGetProperties", of=structs.Engine)
        self.engine_activity = self._filled("zesEngineGetActivity", of=structs.Counter)
        self.sensor = self._filled("zesTemperatureGetProperties", of=structs.Sensor)
        self.energy = self._filled("zesPowerGetEnergyCounter", of=structs.Counter)
        self.frequency = self._filled("zesFrequencyGetProperties", of=structs.Frequency)
        self.frequency_state = self._filled("zesFrequencyGetState", of=structs.FrequencyState)
        self.ras = self._filled("zesRasGetProperties", of=structs.Ras)
        self.ras_state = self._ras_state()
        self.celsius = self._celsius()
        self.processes = self._processes()

    def _named(self, name: str, *, made: Callable[..., Any], takes: tuple[Any, ...]) -> Callable[..., Any]:
        function = c_function(self._library, name=name, takes=takes)

        def call(*args: Any) -> Any:
            return made(function, *args)

        call.__name__ = name
        return call

    def _filled(self, name: str, *, of: type[T]) -> Callable[..., T]:
        """Make a call that fills one structure about a handle."""

        def made(function: Callable[..., None], handle: Handle) -> T:
            answer = of()
            function(handle, byref(answer))
            return answer

        return self._named(name, made=made, takes=(Handle, POINTER(of)))

    def _list(self, name: str, *, of_handle: bool = True) -> Callable[..., list[Handle]]:
        """Make a call that lists handles: it asks for their number first, then for the handles."""

        def made(function: Callable[..., None], *of: Handle) -> list[Handle]:
            count = c_uint32(0)
            function(*of, byref(count), None)
            found = (Handle * count.value)()
            function(*of, byref(count), found)
            return [Handle(each) for each in found[: count.value]]

        takes = (Handle,) if of_handle else ()
        return self._named(name, made=made, takes=(*takes, POINTER(c_uint32), POINTER(Handle)))

    def _ras_state(self) -> Callable[..., structs.RasState]:
        def made(function: Callable[..., None], handle: Handle) -> structs.RasState:
            answer = structs.RasState()
            function(handle, 0, byref(answer))  # 0 does not reset the counts
            return answer

        return self._named("zesRasGetState", made=made, takes=(Handle, c_uint8, POINTER(structs.RasState)))

    def _celsius(self) -> Callable[..., float]:
        def made(function: Callable[..., None], handle: Handle) -> float:
            answer = c_double()
            function(handle, byref(answer))
            return answer.value

        return self._named("zesTemperatureGetState", made=made, takes=(Handle, POINTER(c_double)))

    def _processes(self) -> Callable[..., list[structs.Process]]:
        def made(function: Callable[..., None], handle: Handle) -> list[structs.Process]:
            count = c_uint32(0)
            function(handle, byref(count), None)
            room = count.value + 16  # room for processes that start between the two calls
            answer = (structs.Process * room)(*(structs.Process() for _ in range(room)))
            count = c_uint32(room)
            function(handle, byref(count), answer)
            return list(answer[: count.value])

        takes = (Handle, POINTER(c_uint32), POINTER(structs.Process))
        return self._named("zesDeviceProcessesGetState", made=made, takes=takes)
