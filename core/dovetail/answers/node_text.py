"""The figures of a device in words: none for a device that cannot report, and old ones with their age. Pure."""

from typing import Final

from dovetail.answers.inventory import DeviceUse

NONE: Final = "-"


def memory_text(use: DeviceUse) -> str:
    """`812/32768 MiB`: the memory in use and in all; the latter alone for a device that cannot report."""
    total = f"{use.device.memory_mib} MiB"
    return total if use.used_mib is None else _aged(f"{use.used_mib}/{total}", use=use)


def utilization_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`45%`, or `none`."""
    return none if use.utilization is None else _aged(f"{use.utilization:.0%}", use=use)


def temperature_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`31 C`, or `none`."""
    return none if use.temperature_celsius is None else _aged(f"{use.temperature_celsius} C", use=use)


def power_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`70 W`, or `none`."""
    return none if use.power_watts is None else _aged(f"{use.power_watts} W", use=use)


def _aged(text: str, *, use: DeviceUse) -> str:
    return f"{text} ({use.stale} ago)" if use.stale else text
