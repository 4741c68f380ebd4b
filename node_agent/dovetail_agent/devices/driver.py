"""What can be said of a vendor's library: the driver protocol that each vendor fills, and its errors.

LibraryError
├── LibraryGone   the library or the driver below it cannot be used: which call said so, and what
└── CardLost      one card is gone: which call said so
"""

import ctypes
from collections.abc import Mapping
from typing import Protocol

from dovetail_agent.devices.model import DeviceSample, Inventory


class LibraryError(Exception):
    """What went wrong with the library; the text is a sentence for people."""

    def __init__(self, call: str, *, said: str) -> None:
        super().__init__(f"{call}: {said}")


class LibraryGone(LibraryError):  # noqa: N818 - says what is the matter, as the tree above reads
    """The library or the driver below it cannot be used. `unloaded`: no driver runs; the next one starts afresh."""

    def __init__(self, call: str, *, said: str, unloaded: bool = False) -> None:
        super().__init__(call, said=said)
        self.unloaded = unloaded


class CardLost(LibraryError):  # noqa: N818 - as above
    """A card does not answer any more and will not without a reset."""


class Driver(Protocol):
    """One vendor's cards. Only one thread calls it; any call but `waiting_for` may take for ever."""

    @property
    def label(self) -> str:
        """What people call the library, such as NVML."""
        ...

    @property
    def waiting_for(self) -> str:
        """The library's call that has not answered yet; empty between calls. For other threads."""
        ...

    def find(self) -> Inventory:
        """The devices, with new handles; opens the library where that is needed. Raises `LibraryGone`."""
        ...

    def read(self) -> Mapping[str, DeviceSample]:
        """How the devices that were found are, by UUID. Raises `LibraryGone`; what is lost is a sample that says so."""
        ...

    def hear(self, *, seconds: float) -> bool | None:
        """Wait for an error of a card. False: none came; None, at once: this library tells of none."""
        ...

    def close(self) -> None:
        """Let the library go, if it is open. Raises `LibraryError`."""
        ...


def loads(*libraries: str) -> bool:
    """Whether one of these can be loaded here; that says nothing yet of a driver or a card."""
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False
