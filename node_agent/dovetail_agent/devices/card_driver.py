"""A driver over a library that tells of whole cards by handles: what AMD's, Intel's and Ascend's have in common."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dovetail.api.gpunode import Links
from dovetail.logs import get_logger
from dovetail_agent.devices.driver import CardLost
from dovetail_agent.devices.model import LOST, DeviceInfo, DeviceSample, Inventory
from dovetail_agent.devices.pci import SYS, numa_node
from dovetail_agent.devices.process_memory import owned, used_by_pod

log = get_logger(__name__)


class CardLibrary(Protocol):
    """A vendor's library. All calls but `label` and `waiting_for` may take for ever, and may raise `LibraryGone`."""

    label: str

    @property
    def waiting_for(self) -> str:
        """The call that has not answered yet."""
        ...

    def open(self) -> None:
        """Begin to use it."""
        ...

    def handles(self) -> Sequence[Any]:
        """The cards, in the driver's order."""
        ...

    def describe(self, handle: Any, *, index: int) -> DeviceInfo:
        """What the card is. Raises `CardLost`."""
        ...

    def links(self, handles: Mapping[int, Any]) -> Mapping[int, Links]:
        """How the cards reach each other, by index; none of those of which nothing is told. Raises `CardLost`."""
        ...

    def load(self, handle: Any) -> DeviceSample:
        """How the card is, without its processes. Raises `CardLost`."""
        ...

    def processes(self, handle: Any) -> Mapping[int, int | None] | None:
        """Memory in MiB by process; None where the driver does not tell. Raises `CardLost`."""
        ...

    def versions(self, handle: Any) -> tuple[str, str]:
        """Of the driver of that card and of the vendor's runtime; empty where they are not told. Raises `CardLost`."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


@dataclass(frozen=True, slots=True)
class _Card:
    info: DeviceInfo
    handle: Any


class CardDriver:
    """Cards of one such library. `proc` None: the node's processes cannot be seen, and no pod's use is told."""

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
        """The call that has not answered yet; empty between calls."""
        return self._library.waiting_for

    def find(self) -> Inventory:
        """The cards; one that answered before and does no more stays, for its pods' sake."""
        if self._lost:
            self.close()  # what was reset answers to new handles only
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
        """One look at each card."""
        return {card.info.uuid: self._sample(card) for card in self._cards}

    def hear(self, *, seconds: float) -> bool | None:  # noqa: ARG002 - the protocol's
        """These libraries tell of no error by themselves that would outlast its moment."""
        return None

    def close(self) -> None:
        """Let the library go."""
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
            log.warning("how the cards reach each other cannot be told", library=self.label, problem=str(error))
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
