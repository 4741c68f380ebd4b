"""Calls a vendor's library: a missing figure gives None, a lost device or library an error."""

import ctypes
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from dovetail_agent.devices.driver import CallRefused, CardLost, LibraryGone


class Meaning(Enum):
    """The meaning of a library's error."""

    ABSENT = auto()  # a figure that this device or driver does not report
    LOST = auto()  # the device is lost
    GONE = auto()  # the library or its driver is unusable
    UNLOADED = auto()  # no driver runs


class Caller:
    """Makes the calls and records the current one: another thread can name a call that hangs."""

    def __init__(self, error: type[Exception], *, meaning: Callable[[Any], Meaning]) -> None:
        self._error = error
        self._meaning = meaning
        self._asking = ""

    @property
    def waiting_for(self) -> str:
        """The call that has not returned yet; empty between calls."""
        return self._asking

    def __call__(self, *calls: Callable[..., Any], args: tuple[Any, ...] = ()) -> Any:
        """Return the answer of the first call that the driver supports, or None.

        Pass the newest call first: older drivers lack it. Raises `CardLost` and `LibraryGone`.
        """
        for call in calls:
            try:
                return self._made(call, args=args)
            except self._error as error:
                meaning = self._meaning(error)
                if meaning is Meaning.LOST:
                    raise CardLost(call.__name__, said=_said(error)) from error
                if meaning is not Meaning.ABSENT:
                    raise self._gone(call, error=error) from error
        return None

    def require(self, call: Callable[..., Any], *, args: tuple[Any, ...] = ()) -> Any:
        """Return the answer of a call that must succeed. Raises `LibraryGone`."""
        try:
            return self._made(call, args=args)
        except self._error as error:
            raise self._gone(call, error=error) from error

    def insist(self, call: Callable[..., Any], *, args: tuple[Any, ...]) -> Any:
        """Return the answer of a call that changes something. Raises `CallRefused`, `CardLost` and `LibraryGone`."""
        try:
            return self._made(call, args=args)
        except self._error as error:
            meaning = self._meaning(error)
            if meaning is Meaning.LOST:
                raise CardLost(call.__name__, said=_said(error)) from error
            if meaning is Meaning.ABSENT:
                raise CallRefused(call.__name__, said=_said(error)) from error
            raise self._gone(call, error=error) from error

    def _made(self, call: Callable[..., Any], *, args: tuple[Any, ...]) -> Any:
        self._asking = call.__name__
        try:
            return call(*args)
        finally:
            self._asking = ""

    def _gone(self, call: Callable[..., Any], *, error: Exception) -> LibraryGone:
        unloaded = self._meaning(error) is Meaning.UNLOADED
        return LibraryGone(call.__name__, said=_said(error), unloaded=unloaded)


class CallFailed(Exception):  # noqa: N818 - says what happened
    """A C function returned this code. None means that the library lacks the function."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        super().__init__("this library does not have it" if code is None else f"error {code} (0x{code & 0xFFFFFFFF:x})")


def c_function(library: ctypes.CDLL, *, name: str, takes: tuple[Any, ...]) -> Callable[..., None]:
    """Wrap a C function that returns 0 or an error code.

    The wrapper raises `CallFailed` for a code.
    """
    found = getattr(library, name, None)
    if found is not None:
        found.argtypes, found.restype = takes, ctypes.c_int

    def call(*args: Any) -> None:
        code = None if found is None else found(*args)
        if code != 0:
            raise CallFailed(code)

    call.__name__ = name
    return call


def _said(error: Exception) -> str:
    return " ".join(str(error).split())
