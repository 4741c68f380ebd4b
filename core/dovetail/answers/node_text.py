"""The figures of a device in words: none for a device that cannot report, and old ones with their age. Pure."""

from typing import Final

from dovetail.answers.inventory import DeviceUse

NONE: Final = "-"


def memory_text(used_mib: int | None, *, memory_mib: int, stale: str) -> str:
    """`812/32768 MiB`: the memory in use and in all; the latter alone for a device that cannot report."""
    total = f"{memory_mib} MiB"
    return total if used_mib is None else _aged(f"{used_mib}/{total}", stale=stale)


def utilization_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`45%`, or `none`."""
    return none if use.utilization is None else _aged(f"{use.utilization:.0%}", stale=use.stale)


def temperature_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`31 C`, or `none`."""
    return none if use.temperature_celsius is None else _aged(f"{use.temperature_celsius} C", stale=use.stale)


def power_text(use: DeviceUse, *, none: str = NONE) -> str:
    """`70 W`, or `none`."""
    return none if use.power_watts is None else _aged(f"{use.power_watts} W", stale=use.stale)


def _aged(text: str, *, stale: str) -> str:
    return f"{text} ({stale} ago)" if stale else text
