"""Chooses the agent's providers: vendors whose libraries are present, or the simulated one.

A provider returns at once what the poller's thread read last. A node where no library loads has one too: it reports no
devices, and why.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import Assignment, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.cluster.node_kind import serving
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import Driver, loads
from dovetail_agent.devices.model import DeviceSample, Inventory, InventoryUnreadable, Provider, Sample
from dovetail_agent.devices.multi_vendor import ManyProvider
from dovetail_agent.devices.poller import Known, Paces, Watch
from dovetail_agent.devices.process_memory import sees_host_processes
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.processes.identity import PROC

# A driver without an answer for so long is not slow: its devices take no new work until it answers.
SILENCE: Final = timedelta(seconds=60)


class MeasuredProvider:
    """The provider of its own node. `silence` is how long old figures are used."""

    def __init__(self, watch: Watch, *, name: str, node: str, silence: timedelta = SILENCE) -> None:
        self.name = name
        self._watch = watch
        self._node = node
        self._silence = silence

    def serves(self, node: Node) -> bool:
        """Whether this is the node that the library describes."""
        return node.metadata.name == self._node

    def listen(self, news: Callable[[], None]) -> None:
        """Register `news`, called after each poll."""
        self._watch.news = news

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:  # noqa: ARG002 - the protocol's
        """Return the devices that were found last. Raises `InventoryUnreadable`."""
        return self._inventory(self._watch.known, node=node)

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:  # noqa: ARG002
        """Partition a GPU in the thread that calls the library; why that failed, empty if it did not."""
        return await asyncio.wrap_future(self._watch.reshape(card, profiles=profiles))

    def assignments(
        self,
        inventory: Inventory,  # noqa: ARG002 - the protocol's
        *,
        node: Node,  # noqa: ARG002
        tenants: Sequence[NodeTenant],  # noqa: ARG002
        previous: Sequence[Assignment],  # noqa: ARG002
    ) -> list[Assignment]:
        """None: no vendor's library knows kubelet's assignments."""
        return []

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:  # noqa: ARG002
        """Return the last figures and their time. Raises `InventoryUnreadable` if they are too old."""
        known = self._watch.known
        self._inventory(known, node=node)
        if known.measured_at is None or now - known.measured_at > self._silence:
            raise InventoryUnreadable(node.metadata.name, problem=self._silent(known))
        return Sample(
            devices=tuple(known.samples.get(device.uuid, DeviceSample()) for device in inventory.devices),
            measured_at=known.measured_at,
            cpu_utilization=known.host.cpu,
            memory_utilization=known.host.memory,
        )

    def _inventory(self, known: Known, *, node: Node) -> Inventory:
        if known.problem or known.inventory is None:
            asked = f" ({self._watch.waiting_for} has not answered)" if self._watch.waiting_for else ""
            raise InventoryUnreadable(node.metadata.name, problem=f"{self._watch.label}: {known.problem}{asked}")
        return known.inventory

    def _silent(self, known: Known) -> str:
        # Gives a time and not a duration: a sentence that changes with every look would be written with every look.
        label = self._watch.label
        what = f"{label}: {self._watch.waiting_for}" if self._watch.waiting_for else label
        return f"{what} does not answer; the devices were last read at {known.measured_at:%Y-%m-%dT%H:%M:%SZ}"


class NoLibraryProvider:
    """Serves its node only where devices are expected.

    That is a node that is managed, served by a plugin, or annotated with simulated devices. A library enters a
    container when the container starts, so the provider does not look for one again.
    """

    name = "none"

    def __init__(self, *, node: str, libraries: Sequence[str], vendors: Vendors) -> None:
        self._node = node
        self._libraries = tuple(libraries)
        self._vendors = vendors

    def serves(self, node: Node) -> bool:
        """Whether devices are expected on this node. A node without GPUs gets no GPUNode."""
        if node.metadata.name != self._node:
            return False
        serves = serving(node, vendors=self._vendors)
        return serves.managed or bool(serves.resource) or names.SIMULATED_DEVICES in node.metadata.annotations

    def listen(self, news: Callable[[], None]) -> None:
        """Do nothing: there are never new figures."""

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:  # noqa: ARG002 - the protocol's
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:  # noqa: ARG002
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    def assignments(
        self,
        inventory: Inventory,  # noqa: ARG002 - the protocol's
        *,
        node: Node,  # noqa: ARG002
        tenants: Sequence[NodeTenant],  # noqa: ARG002
        previous: Sequence[Assignment],  # noqa: ARG002
    ) -> list[Assignment]:
        """None."""
        return []

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:  # noqa: ARG002
        """Raise `InventoryUnreadable`."""
        self._raise(node)

    def _raise(self, node: Node) -> NoReturn:
        hint = "agent.runtimeClassName names the RuntimeClass that brings NVIDIA's into the agent"
        if node.status.node_info.container_runtime_version == names.PROCESSES:
            hint = "the vendor's driver installs it; without it, jobs that ask no GPU run"
        if names.SIMULATED_DEVICES in node.metadata.annotations:
            hint += f"; the annotation {names.SIMULATED_DEVICES} counts only with agent.provider=simulated"
        problem = f"no vendor's library can be loaded ({', '.join(self._libraries)}); {hint}"
        raise InventoryUnreadable(node.metadata.name, problem=problem, reason=names.NO_LIBRARY)


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


def has_library() -> bool:
    """Whether an agent that begins here finds a vendor's library."""
    return any(loads(*vendor.libraries) for vendor in VENDORS.values())


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
