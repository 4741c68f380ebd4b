"""How NVIDIA's library is asked: what it does not give is None, and a card or library that is gone is an error."""

from collections.abc import Callable
from typing import Any, Final

import pynvml

from dovetail_agent.library import CardLost, LibraryGone

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
                    raise _gone(call, error=error) from error
        return None

    def surely(self, call: Callable[..., Any]) -> Any:
        """The answer of a call without which nothing goes. Raises `LibraryGone`."""
        try:
            return self._made(call, args=())
        except pynvml.NVMLError as error:
            raise _gone(call, error=error) from error

    def _made(self, call: Callable[..., Any], *, args: tuple[Any, ...]) -> Any:
        self._asking = call.__name__
        try:
            return call(*args)
        finally:
            self._asking = ""


def _gone(call: Callable[..., Any], *, error: pynvml.NVMLError) -> LibraryGone:
    return LibraryGone(call.__name__, said=str(error), unloaded=error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
