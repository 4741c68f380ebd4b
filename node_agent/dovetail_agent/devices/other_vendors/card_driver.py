"""The driver that AMD, Intel and Ascend share: a library that addresses devices by handles."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dovetail.api.gpunode import LOST, Links
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import CallRefused, CardLost
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory
from dovetail_agent.devices.pci import SYS, numa_node
from dovetail_agent.devices.process_memory import owned, used_by_pod

log = get_logger(__name__)


class CardLibrary(Protocol):
    """A vendor's library.

    Any method except `label` and `waiting_for` can block and raise `LibraryGone`.
    """

    label: str

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet; empty between calls."""
        ...

    def open(self) -> None:
        """Load and initialise the library."""
        ...

    def handles(self) -> Sequence[Any]:
        """The devices' handles in the driver's order."""
        ...

    def describe(self, handle: Any, *, index: int) -> DeviceInfo:
        """Return the device's inventory entry. Raises `CardLost`."""
        ...

    def links(self, handles: Mapping[int, Any]) -> Mapping[int, Links]:
        """Links between devices, by index; unknown links are missing. Raises `CardLost`."""
        ...

    def load(self, handle: Any) -> DeviceSample:
        """Return a device's sample without its processes. Raises `CardLost`."""
        ...

    def processes(self, handle: Any) -> Mapping[int, int | None] | None:
        """Memory in MiB by PID; None if the driver does not report it. Raises `CardLost`."""
        ...

    def versions(self, handle: Any) -> tuple[str, str]:
        """Versions of the device's driver and of the vendor's runtime; empty if unavailable.

        Raises `CardLost`.
        """
        ...

    def close(self) -> None:
        """Shut the library down."""
        ...


@dataclass(frozen=True, slots=True)
class _Card:
    info: DeviceInfo
    handle: Any


class CardDriver:
    """The devices of one such library.

    `proc` is the node's own `/proc`. If it is None, the node's processes are invisible and no pod's use is reported.
    """

    def __init__(self, library: CardLibrary, *, proc: Path | None, sys: Path = SYS) -> None:
        self.label = library.label
        self._library = library
        self._proc = proc
        self._sys = sys
        self._open = False
        self._cards: tuple[_Card, ...] = ()
        self._lost: set[str] = set()

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet; empty between calls."""
        return self._library.waiting_for

    def find(self) -> Inventory:
        """Return the devices.

        A device that no longer answers stays listed, because its pods are still there. Raises `LibraryGone`.
        """
        if self._lost:
            self.close()  # a device that was reset answers to new handles only
        if not self._open:
            self._library.open()
            self._open = True
        found = self._wired(self._found())
        there = {card.info.uuid for card in found}
        taken = {card.info.index for card in found}
        gone = [card for card in self._cards if card.info.uuid not in there and card.info.index not in taken]
        self._lost = {card.info.uuid for card in gone}
        self._cards = tuple(sorted([*found, *gone], key=lambda card: card.info.index))
        driver, runtime = self._versions()
        devices = tuple(card.info for card in self._cards)
        return Inventory(devices=devices, driver_version=driver, runtime_version=runtime)

    def read(self) -> Mapping[str, DeviceSample]:
        """Sample each device once, by UUID."""
        return {card.info.uuid: self._sample(card) for card in self._cards}

    def hear(self, *, seconds: float) -> bool | None:  # noqa: ARG002 - the protocol's
        """None: these libraries report no error as an event."""
        return None

    def reshape(self, card: str, *, profiles: Sequence[str]) -> None:  # noqa: ARG002 - the protocol's
        """Refuse: only NVIDIA's GPUs are partitioned."""
        raise CallRefused("reshape", said=f"{self.label} partitions no devices")

    def close(self) -> None:
        """Shut the library down if it is open."""
        if self._open:
            self._open = False
            self._library.close()

    def _found(self) -> list[_Card]:
        cards = []
        for index, handle in enumerate(self._library.handles()):
            try:
                info = self._library.describe(handle, index=index)
            except CardLost as error:
                log.warning("a card cannot be read", library=self.label, index=index, problem=str(error))
            else:
                info = replace(info, numa_node=numa_node(info.pci_bus_id, sys=self._sys))
                cards.append(_Card(info, handle))
        return cards

    def _versions(self) -> tuple[str, str]:
        for card in self._cards:
            with suppress(CardLost):
                return self._library.versions(card.handle)
        return "", ""

    def _wired(self, cards: Sequence[_Card]) -> list[_Card]:
        try:
            links = self._library.links({card.info.index: card.handle for card in cards})
        except CardLost as error:
            log.warning("the links between the devices cannot be read", library=self.label, problem=str(error))
            return list(cards)
        return [replace(card, info=replace(card.info, links=links.get(card.info.index, Links()))) for card in cards]

    def _sample(self, card: _Card) -> DeviceSample:
        if card.info.uuid not in self._lost:
            try:
                return self._read(card.handle)
            except CardLost as error:
                log.warning("a card is lost", device=card.info.uuid, problem=str(error))
                self._lost.add(card.info.uuid)
        return DeviceSample(unhealthy_reason=LOST)

    def _read(self, handle: Any) -> DeviceSample:
        sample = self._library.load(handle)
        used = self._library.processes(handle) if self._proc else None
        if used is None or self._proc is None:
            return sample
        processes = owned(used, proc=self._proc)
        return replace(sample, processes=processes, used_by_tenant_mib=used_by_pod(processes))
