"""Huawei's Ascend chips through `libdcmi.so`.

The library has a public interface and no Python binding.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_int, c_uint
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dovetail.api.gpunode import LOST, Links
from dovetail_agent.devices.driver import CardLost, LibraryGone
from dovetail_agent.devices.health import Signs
from dovetail_agent.devices.library_calls import Caller, CallFailed, Meaning, c_function
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.devices.other_vendors.card_driver import CardDriver
from dovetail_agent.devices.pci import SYS

_MIB: Final = 1 << 20
_MOST: Final = 64
_VDIE, _AICORE, _HBM = 1, 2, 2
_CLOCKS: Final = {"sm": 7, "memory": 6}
_MEANINGS: Final = {-8008: Meaning.LOST, -8012: Meaning.UNLOADED}
# The driver's grades of a chip's health. Grade 1 is an alarm that does not affect work.
_VERDICTS: Final = {2: "MajorAlarm", 3: "CriticalAlarm", 0xFFFFFFFF: LOST}
T = TypeVar("T")


class _Chip(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char * 32),
        ("name", ctypes.c_char * 32),
        ("version", ctypes.c_char * 32),
        ("cores", c_uint),
    ]


class _Die(ctypes.Structure):
    _fields_ = [("parts", c_uint * 5)]


class _Pcie(ctypes.Structure):
    _fields_ = [
        ("ids", c_uint * 4),
        ("domain", c_int),
        ("bus", c_uint),
        ("device", c_uint),
        ("function", c_uint),
        ("reserved", ctypes.c_ubyte * 32),
    ]


class _Memory(ctypes.Structure):
    """HBM of a chip, in MiB."""

    _fields_ = [
        ("size", ctypes.c_ulonglong),
        ("clock", c_uint),
        ("used", ctypes.c_ulonglong),
        ("celsius", c_int),
        ("bandwidth", c_uint),
    ]


class _Ddr(ctypes.Structure):
    """DDR memory of chips without HBM, in MiB."""

    _fields_ = [
        ("size", ctypes.c_ulonglong),
        ("available", ctypes.c_ulonglong),
        ("clock", c_uint),
        ("pages", ctypes.c_ulong * 3),
        ("busy", c_uint),
        ("reserved", ctypes.c_ubyte * 60),
    ]

    @property
    def used(self) -> int:
        """MiB that are not available."""
        return max(0, int(self.size) - int(self.available))


class _Ecc(ctypes.Structure):
    _fields_ = [
        ("enabled", c_int),
        ("single", c_uint),
        ("double", c_uint),
        ("total_single", c_uint),
        ("total_double", c_uint),
        ("isolated_single", c_uint),
        ("isolated_double", c_uint),
    ]


class _Process(ctypes.Structure):
    _fields_ = [("pid", c_int), ("bytes", ctypes.c_ulong)]


class Chip(NamedTuple):
    """A chip as the library addresses it: a card, and the chip's position on it."""

    card: int
    device: int


def ascend_driver(*, proc: Path | None, sys: Path = SYS, libraries: Sequence[str]) -> CardDriver:
    """Return the driver of a node's Ascend chips."""
    return CardDriver(AscendLibrary(libraries), proc=proc, sys=sys)


class AscendLibrary:
    """The library's calls."""

    label = "DCMI"

    def __init__(self, libraries: Sequence[str]) -> None:
        self._names = tuple(libraries)
        self._dcmi: ctypes.CDLL | None = None
        self._calls: dict[str, Callable[..., None]] = {}
        self._ask = Caller(CallFailed, meaning=lambda error: _MEANINGS.get(error.code, Meaning.ABSENT))

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet."""
        return self._ask.waiting_for

    def open(self) -> None:
        """Load and initialise the library. Raises `LibraryGone`."""
        if self._dcmi is None:
            self._dcmi = _loaded(self._names)
        self._ask.require(self._named("dcmi_init", takes=()))

    def close(self) -> None:
        """Do nothing: the library has no call to shut it down."""

    def handles(self) -> Sequence[Chip]:
        """All chips of all cards. Other processors on a card do not count."""
        cards, count = (c_int * _MOST)(), c_int()
        call = self._named("dcmi_get_card_list", takes=(POINTER(c_int), POINTER(c_int), c_int))
        self._ask.require(call, args=(byref(count), cards, _MOST))
        return [Chip(card, at) for card in cards[: count.value] for at in range(self._chips_of(card))]

    def describe(self, handle: Chip, *, index: int) -> DeviceInfo:
        """Name, memory and PCI address. Raises `CardLost`."""
        memory, chip = self._memory(handle), self._about(handle, name="dcmi_get_device_chip_info", of=_Chip)
        die = self._about(handle, name="dcmi_get_device_die_v2", of=_Die, kind=_VDIE)
        pcie = self._about(handle, name="dcmi_get_device_pcie_info_v2", of=_Pcie)
        if memory is None or not die:
            raise CardLost("dcmi_get_device_die_v2", said="the chip says neither who it is nor how large")
        kind, name = (text.decode(errors="replace") for text in (chip.type, chip.name)) if chip else ("Ascend", "")
        return DeviceInfo(
            index=index,
            uuid="NPU-" + "-".join(f"{part:08x}" for part in die.parts),
            vendor="ascend",
            model=name if name.startswith(kind) else f"{kind}{name}",
            memory_mib=memory.size,
            pci_bus_id=f"{pcie.domain:04x}:{pcie.bus:02x}:{pcie.device:02x}.{pcie.function:x}" if pcie else "",
        )

    def links(self, handles: Mapping[int, Any]) -> Mapping[int, Links]:  # noqa: ARG002 - the protocol's
        """None: HCCS is not read."""
        return {}

    def load(self, handle: Chip) -> DeviceSample:
        """All figures except those of processes. Raises `CardLost`."""
        memory, busy = self._memory(handle), self._number(handle, name="dcmi_get_device_utilization_rate", kind=_AICORE)
        deciwatts = self._number(handle, name="dcmi_get_device_power_info")
        clocks = {
            name: self._number(handle, name="dcmi_get_device_frequency", kind=kind) for name, kind in _CLOCKS.items()
        }
        signs = self._signs(handle)
        health = self._number(handle, name="dcmi_get_device_health", of=c_uint)
        return DeviceSample(
            used_mib=memory.used if memory else None,
            utilization=None if busy is None else min(100, busy) / 100,
            temperature_celsius=self._number(handle, name="dcmi_get_device_temperature"),
            power_watts=None if deciwatts is None else round(deciwatts / 10),
            clocks_mhz={name: rate for name, rate in clocks.items() if rate is not None},
            ecc_errors=signs.ecc_errors,
            remapped_rows=signs.remapped_rows,
            unhealthy_reason=_VERDICTS.get(health or 0, ""),
        )

    def processes(self, handle: Chip) -> Mapping[int, int | None] | None:
        """Device memory in MiB by PID."""
        answer, count = (_Process * _MOST)(), c_int(_MOST)
        takes = (c_int, c_int, POINTER(_Process), POINTER(c_int))
        call = self._answering("dcmi_get_device_resource_info", answer=answer, takes=takes)
        if self._ask(call, args=(*handle, answer, byref(count))) is None:
            return None
        return {each.pid: each.bytes // _MIB for each in answer[: count.value]}

    def versions(self, handle: Chip) -> tuple[str, str]:  # noqa: ARG002 - all chips have one driver
        """Version of the driver. The toolkit belongs to the container, so its version is empty."""
        text = ctypes.create_string_buffer(256)
        call = self._answering("dcmi_get_driver_version", answer=text, takes=(ctypes.c_char_p, c_uint))
        answer = self._ask(call, args=(text, len(text)))
        return (answer.value.decode(errors="replace") if answer is not None else "", "")

    def _chips_of(self, card: int) -> int:
        chips, mcu, cpu = c_int(), c_int(), c_int()
        takes = (c_int, POINTER(c_int), POINTER(c_int), POINTER(c_int))
        call = self._answering("dcmi_get_device_id_in_card", answer=chips, takes=takes)
        try:
            answer = self._ask(call, args=(card, byref(chips), byref(mcu), byref(cpu)))
        except CardLost:
            return 1  # the chip keeps its index: `describe` asks again and gets the error
        return answer.value if answer is not None else 0

    def _memory(self, handle: Chip) -> Any:
        answer = self._about(handle, name="dcmi_get_device_hbm_info", of=_Memory)
        return answer if answer and answer.size else self._about(handle, name="dcmi_get_device_memory_info_v3", of=_Ddr)

    def _signs(self, handle: Chip) -> Signs:
        ecc = self._about(handle, name="dcmi_get_device_ecc_info", of=_Ecc, kind=_HBM)
        if ecc is None or not ecc.enabled:
            return Signs()
        isolated = ecc.isolated_single + ecc.isolated_double
        return Signs(ecc_corrected=ecc.total_single, ecc_uncorrected=ecc.total_double, remapped_rows=isolated)

    def _number(self, handle: Chip, *, name: str, kind: int | None = None, of: Any = c_int) -> int | None:
        answer = self._about(handle, name=name, of=of, kind=kind)
        return None if answer is None else answer.value

    def _about(self, handle: Chip, *, name: str, of: Callable[[], Any], kind: int | None = None) -> Any:
        """Return what a call fills in about a chip, or about one kind of part on it.

        None if the driver does not support the call.
        """
        answer, kinds = of(), () if kind is None else (kind,)
        call = self._answering(
            name, answer=answer, takes=(c_int, c_int, *(c_int for _ in kinds), POINTER(type(answer)))
        )
        return self._ask(call, args=(*handle, *kinds, byref(answer)))

    def _answering(self, name: str, *, answer: T, takes: tuple[Any, ...]) -> Callable[..., T]:
        """Wrap the named call so that it returns the structure that it fills in."""
        function = self._named(name, takes=takes)

        def call(*args: Any) -> T:
            function(*args)
            return answer

        call.__name__ = name
        return call

    def _named(self, name: str, *, takes: tuple[Any, ...]) -> Callable[..., None]:
        assert self._dcmi is not None, "opened before"
        if name not in self._calls:
            self._calls[name] = c_function(self._dcmi, name=name, takes=takes)
        return self._calls[name]


def _loaded(names: Sequence[str]) -> ctypes.CDLL:
    problem = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = str(error)
    raise LibraryGone(names[0], said=problem)
