"""The structures of Level Zero's Sysman that the agent reads.

They follow its public interface, version 1.8 and later.
Intel's own binding, pyzes, loads one fixed path of one distribution, prints errors instead of raising them, and lacks
RAS. These structures therefore replace it.
"""

import ctypes
from ctypes import c_char, c_double, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Final

_NAME: Final = 64
RAS_CATEGORIES: Final = 7


class _Properties(ctypes.Structure):
    """Fields of all structures that begin with their type, which `kind` sets in each subclass."""

    _fields_ = [("stype", c_uint32), ("next", c_void_p)]
    kind = 0

    def __init__(self) -> None:
        super().__init__(self.kind)


class _Core(ctypes.Structure):
    _fields_ = [
        ("stype", c_uint32),
        ("next", c_void_p),
        ("type", c_uint32),
        ("vendor_id", c_uint32),
        ("device_id", c_uint32),
        ("flags", c_uint32),
        ("subdevice_id", c_uint32),
        ("core_clock_rate", c_uint32),
        ("max_mem_alloc_size", c_uint64),
        ("limits", c_uint32 * 7),
        ("timer_resolution", c_uint64),
        ("timestamp_bits", c_uint32 * 2),
        ("uuid", c_uint8 * 16),
        ("name", c_char * 256),
    ]


class Device(_Properties):
    """Properties of a device."""

    kind = 0x1
    _fields_ = [
        ("core", _Core),
        ("subdevices", c_uint32),
        ("serial_number", c_char * _NAME),
        ("board_number", c_char * _NAME),
        ("brand_name", c_char * _NAME),
        ("model_name", c_char * _NAME),
        ("vendor_name", c_char * _NAME),
        ("driver_version", c_char * _NAME),
    ]


class Pci(_Properties):
    """A device's address on the PCI bus."""

    kind = 0x2
    _fields_ = [
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("generation", c_int32),
        ("width", c_int32),
        ("max_bandwidth", c_int64),
        ("counters", c_uint8 * 3),
    ]


class Engine(_Properties):
    """Properties of an engine group."""

    kind = 0x5
    _fields_ = [("type", c_uint32), ("on_subdevice", c_uint8), ("subdevice", c_uint32)]


class Frequency(_Properties):
    """Properties of a clock domain, in MHz."""

    kind = 0x9
    _fields_ = [
        ("type", c_uint32),
        ("on_subdevice", c_uint8),
        ("subdevice", c_uint32),
        ("flags", c_uint8 * 2),
        ("min", c_double),
        ("max", c_double),
    ]


class Memory(_Properties):
    """Properties of a memory module."""

    kind = 0xB
    _fields_ = [
        ("type", c_uint32),
        ("on_subdevice", c_uint8),
        ("subdevice", c_uint32),
        ("location", c_uint32),
        ("physical_size", c_uint64),
        ("bus_width", c_int32),
        ("channels", c_int32),
    ]


class Ras(_Properties):
    """Properties of a set of RAS errors."""

    kind = 0xF
    _fields_ = [("type", c_uint32), ("on_subdevice", c_uint8), ("subdevice", c_uint32)]


class Sensor(_Properties):
    """Properties of a temperature sensor."""

    kind = 0x14
    _fields_ = [
        ("type", c_uint32),
        ("on_subdevice", c_uint8),
        ("subdevice", c_uint32),
        ("max", c_double),
        ("flags", c_uint8 * 3),
    ]


class DeviceState(_Properties):
    """Whether a device needs a reset."""

    kind = 0x15
    _fields_ = [("reset", c_uint32), ("repaired", c_uint32)]


class Process(_Properties):
    """A process on a device."""

    kind = 0x16
    _fields_ = [("pid", c_uint32), ("memory_bytes", c_uint64), ("shared_bytes", c_uint64), ("engines", c_uint32)]


class FrequencyState(_Properties):
    """State of a clock domain, in MHz."""

    kind = 0x1B
    _fields_ = [
        ("voltage", c_double),
        ("request", c_double),
        ("tdp", c_double),
        ("efficient", c_double),
        ("actual", c_double),
        ("throttled", c_uint32),
    ]


class MemoryState(_Properties):
    """State of a memory module, in bytes."""

    kind = 0x1E
    _fields_ = [("health", c_uint32), ("free", c_uint64), ("size", c_uint64)]


class RasState(_Properties):
    """Number of errors in each category."""

    kind = 0x22
    _fields_ = [("category", c_uint64 * RAS_CATEGORIES)]


class Counter(ctypes.Structure):
    """A counter and its timestamp, both in the library's own units."""

    _fields_ = [("amount", c_uint64), ("at", c_uint64)]
