"""What threads do in their own way: sleep, and work in the background."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

# A gateway that does not answer must not keep a block from ending.
_STOP_SECONDS: Final = 5.0


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def finish(work: Callable[[], None]) -> None:
    """Do the work to its end: nothing cancels a thread."""
    work()


def settled(work: Callable[[], T], *, undo: Callable[[T], Any]) -> T:  # noqa: ARG001 - its twin undoes
    """The result of the work: nothing cancels a thread."""
    return work()


def begin(work: Callable[[], None]) -> None:
    """Do the work now: a thread can wait for it."""
    work()


class Periodic:
    """Calls `action` repeatedly in a thread; it returns the seconds until the next call, or None to end."""

    def __init__(self, action: Callable[[], float | None]) -> None:
        self._action = action
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, after_seconds: float) -> None:
        """Begin, with the first call after this time."""
        # A daemon: a script that forgets the allocation still ends.
        self._thread = threading.Thread(target=self._run, args=(after_seconds,), name="dovetail-periodic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; a call that has begun gets a few seconds to come to its end."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def _run(self, seconds: float) -> None:
        pause: float | None = seconds
        while pause is not None and not self._stopping.wait(pause):
            pause = self._action()
