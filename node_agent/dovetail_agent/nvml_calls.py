"""How NVIDIA's library is asked: what it does not give is None, and a card or library that is gone is an error.

NvmlError
├── LibraryGone   the library or driver cannot be used: which call said so, and what
└── CardLost      one card is gone: which call said so
"""

from collections.abc import Callable
from typing import Any, Final

import pynvml

_LOST: Final = frozenset(
    {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}
)
_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


class NvmlError(Exception):
    """What went wrong with the library; the text is a sentence for people."""

    def __init__(self, call: str, *, said: str) -> None:
        super().__init__(f"{call}: {said}")


class LibraryGone(NvmlError):  # noqa: N818 - says what is the matter, as the tree above reads
    """The library or the driver below it cannot be used."""


class CardLost(NvmlError):  # noqa: N818 - as above
    """A card does not answer any more and will not without a reset."""


class Caller:
    """Asks, and knows what it is asking: another thread can tell which call has not come back."""

    def __init__(self) -> None:
        self._asking = ""

    @property
    def waiting_for(self) -> str:
        """The call that has not answered yet; empty between calls."""
        return self._asking

    def __call__(self, *calls: Callable[..., Any], args: tuple[Any, ...] = ()) -> Any:
        """The first of these calls' answers that the driver gives, or None. Newest call first: older drivers lack it.

        Raises `CardLost` and `LibraryGone`.
        """
        for call in calls:
            try:
                return self._made(call, args=args)
            except pynvml.NVMLError as error:
                if error.value in _LOST:
                    raise CardLost(call.__name__, said=str(error)) from error
                if error.value in _GONE:
                    raise LibraryGone(call.__name__, said=str(error)) from error
        return None

    def surely(self, call: Callable[..., Any]) -> Any:
        """The answer of a call without which nothing goes. Raises `LibraryGone`."""
        try:
            return self._made(call, args=())
        except pynvml.NVMLError as error:
            raise LibraryGone(call.__name__, said=str(error)) from error

    def _made(self, call: Callable[..., Any], *, args: tuple[Any, ...]) -> Any:
        self._asking = call.__name__
        try:
            return call(*args)
        finally:
            self._asking = ""
