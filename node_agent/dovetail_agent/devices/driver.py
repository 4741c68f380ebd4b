"""The driver protocol that each vendor implements, and its errors.

LibraryError
├── LibraryGone   the library or the driver below it is unusable: names the call and its message
├── CardLost      one device is gone: names the call
└── CallRefused   the library does not do what it was asked to: names the call and its message
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Protocol

from dovetail_agent.devices.model import DeviceSample, Inventory


class LibraryError(Exception):
    """An error of the library; the text is a sentence for people."""

    def __init__(self, call: str, *, said: str) -> None:
        super().__init__(f"{call}: {said}")


class LibraryGone(LibraryError):  # noqa: N818 - says what is the matter, as the tree above reads
    """The library or the driver below it is unusable.

    `unloaded` means that no driver runs; the next one starts afresh.
    """

    def __init__(self, call: str, *, said: str, unloaded: bool = False) -> None:
        super().__init__(call, said=said)
        self.unloaded = unloaded

    def __str__(self) -> str:
        # Which call met that says nothing, and each vendor's library has other words for it.
        return "driver not loaded" if self.unloaded else super().__str__()


class CardLost(LibraryError):  # noqa: N818 - as above
    """A device no longer answers and needs a reset."""


class CallRefused(LibraryError):  # noqa: N818 - as above
    """The library does not do what it was asked to."""


class Driver(Protocol):
    """One vendor's devices. Only one thread calls it.

    Any method except `waiting_for` can block for ever.
    """

    @property
    def label(self) -> str:
        """The common name of the library, such as NVML."""
        ...

    @property
    def waiting_for(self) -> str:
        """The library call that has not returned yet; empty between calls. Read by other threads."""
        ...

    def find(self) -> Inventory:
        """Return the devices with new handles; opens the library if needed. Raises `LibraryGone`."""
        ...

    def read(self) -> Mapping[str, DeviceSample]:
        """Return the sample of each found device, by UUID. Raises `LibraryGone`.

        A lost device gets a sample that says so.
        """
        ...

    def hear(self, *, seconds: float) -> bool | None:
        """Wait for a device error. False: none came. None, at once: the library reports no events."""
        ...

    def reshape(self, card: str, *, profiles: Sequence[str]) -> None:
        """Partition an idle GPU in MIG mode, by UUID, into instances of these profiles.

        Raises `LibraryError` with the reason if the GPU is in use or the library refuses.
        """
        ...

    def close(self) -> None:
        """Shut the library down if it is open. Raises `LibraryError`."""
        ...


def loads(*libraries: str) -> bool:
    """Whether one of these libraries can be loaded here.

    That does not prove a driver or a device.
    """
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False
