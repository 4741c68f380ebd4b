"""Chooses the agent's providers: vendors whose libraries are present, or the simulated one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import Driver, loads
from dovetail_agent.devices.model import Provider
from dovetail_agent.devices.multi_vendor import ManyProvider
from dovetail_agent.devices.no_library import NoLibraryProvider
from dovetail_agent.devices.polled_provider import MeasuredProvider
from dovetail_agent.devices.poller import Paces, Watch
from dovetail_agent.devices.process_memory import sees_host_processes
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.processes.identity import PROC

log = get_logger(__name__)

AUTO: Final = "auto"
# A first report without devices would make a healthy node look broken each time its agent starts.
_FIRST_LOOK_SECONDS: Final = 15.0
Clock = Callable[[], datetime]


Open = Callable[[Clock, Path | None, Sequence[str]], Driver]

# Each binding costs memory, and most nodes need only one: import each where it is used.


def _nvml(clock: Clock, proc: Path | None, _: Sequence[str]) -> Driver:
    from dovetail_agent.devices.nvidia.driver import NvmlDriver  # noqa: PLC0415 - as above

    return NvmlDriver(clock=clock, proc=proc)


def _amd(_: Clock, proc: Path | None, libraries: Sequence[str]) -> Driver:
    from dovetail_agent.devices.other_vendors.amd import amd_driver  # noqa: PLC0415 - as above

    return amd_driver(proc=proc, libraries=libraries)


def _intel(_: Clock, proc: Path | None, libraries: Sequence[str]) -> Driver:
    from dovetail_agent.devices.other_vendors.intel.driver import intel_driver  # noqa: PLC0415 - as above

    return intel_driver(proc=proc, library=libraries[0])


def _ascend(_: Clock, proc: Path | None, libraries: Sequence[str]) -> Driver:
    from dovetail_agent.devices.other_vendors.ascend import ascend_driver  # noqa: PLC0415 - as above

    return ascend_driver(proc=proc, libraries=libraries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A vendor's library, by loader name or installer's path, and the driver that uses it."""

    libraries: tuple[str, ...]
    driver: Open


VENDORS: Final = MappingProxyType(
    {
        "nvml": Vendor(libraries=("libnvidia-ml.so.1",), driver=_nvml),
        "amd": Vendor(libraries=("libamd_smi.so", "/opt/rocm/lib/libamd_smi.so"), driver=_amd),
        "intel": Vendor(libraries=("libze_loader.so.1",), driver=_intel),
        "ascend": Vendor(
            libraries=("libdcmi.so", "/usr/local/dcmi/libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so"),
            driver=_ascend,
        ),
    }
)
PROVIDERS: Final = (AUTO, *VENDORS, SimulatedProvider.name)


@contextmanager
def opened(
    name: str, *, node: str | None, look_every: timedelta, vendors: Vendors = DEFAULT_VENDORS
) -> Iterator[Provider]:
    """Open the named provider; `auto` opens all vendors whose libraries are present.

    Devices are simulated only if the name says so. Every other provider needs the `node` on which it runs.
    """
    if name == SimulatedProvider.name:
        yield SimulatedProvider()
        return
    assert node is not None, "the command line demands it"
    names = _there() if name == AUTO else [name]
    if not names:
        libraries = [vendor.libraries[0] for vendor in VENDORS.values()]
        yield NoLibraryProvider(node=node, libraries=libraries, vendors=vendors)
        return
    watches = _started(names, paces=paces_of(look_every))
    try:
        for watch in watches:
            watch.looked.wait(_FIRST_LOOK_SECONDS)
        parts = [MeasuredProvider(watch, name=each, node=node) for each, watch in zip(names, watches, strict=True)]
        yield parts[0] if len(parts) == 1 else ManyProvider(parts)
    finally:
        for watch in watches:
            watch.stop()


def paces_of(look_every: timedelta) -> Paces:
    """Return the polling intervals for an agent that looks this often.

    Devices are read at least as often, because the agent would see the same values again otherwise.
    """
    return Paces(look=min(Paces().look, look_every.total_seconds()))


def _started(names: Sequence[str], *, paces: Paces) -> list[Watch]:
    clock = partial(datetime.now, UTC)
    proc = PROC if sees_host_processes() else None
    if proc is None:
        log.warning("the node's processes cannot be seen (hostPID): what each pod uses of a device is not reported")
    watches = [
        Watch(VENDORS[name].driver(clock, proc, VENDORS[name].libraries), clock=clock, paces=paces) for name in names
    ]
    for watch in watches:
        watch.start()
    return watches


def _there() -> list[str]:
    """The vendors whose libraries are present. Logs each missing one once."""
    found = [name for name, vendor in VENDORS.items() if loads(*vendor.libraries)]
    for name in sorted(VENDORS.keys() - set(found)):
        log.info("none of these devices: the library is not there", provider=name, library=VENDORS[name].libraries[0])
    return found
