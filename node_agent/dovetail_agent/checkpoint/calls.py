"""CUDA's checkpoint of another process, call by call: the states that it knows, and the calls between them.

    RUNNING --lock--> LOCKED --checkpoint--> CHECKPOINTED --restore--> LOCKED --unlock--> RUNNING

Checkpointed, a process has no memory on any card: it lies in its own memory on the host. FAILED is final.

CheckpointFailed   a call was refused, timed out, or did not come back: which, and with what number if there is one
"""

import ctypes
from enum import IntEnum
from typing import Final, Protocol

from dovetail_agent.devices.cuda import CallRefused, CudaError, Driver

CALLS: Final = tuple(f"cuCheckpointProcess{verb}" for verb in ("Lock", "Checkpoint", "Restore", "Unlock", "GetState"))
# The arguments of each call are 64 bytes, zero but for the first field of Lock.
_ARGUMENTS: Final = ctypes.c_uint32 * 16


class ProcessState(IntEnum):
    """As `CUprocessState` has it."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CheckpointFailed(Exception):  # noqa: N818 - says what is the matter
    """A call did not do its work; the text is a sentence. `code` is None where it did not come back at all."""

    def __init__(self, problem: str, *, code: int | None = None) -> None:
        self.code = code
        super().__init__(problem)


class Calls(Protocol):
    """The five calls, for a process by its number on the node. All block and raise `CheckpointFailed`."""

    def state(self, pid: int) -> ProcessState:
        """How it stands."""
        ...

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        """Let no new work of it begin, and wait for what runs; when that takes too long it stays RUNNING."""
        ...

    def checkpoint(self, pid: int) -> None:
        """Move its memory to the host."""
        ...

    def restore(self, pid: int) -> None:
        """Move it back. Without room on the card it is FAILED for good."""
        ...

    def unlock(self, pid: int) -> None:
        """Let it work again."""
        ...


class LibraryCalls:
    """The calls of the driver's library in this process. Raises `CudaError` where there are none."""

    def __init__(self, driver: Driver) -> None:
        if missing := missing_calls(driver):
            raise CudaError(f"the driver offers no checkpoint of processes: it has no {missing[0]}")
        driver.init()
        self._driver = driver

    def state(self, pid: int) -> ProcessState:
        """As the protocol says."""
        found = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", pid, ctypes.byref(found))
        return ProcessState(found.value)

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        """As the protocol says."""
        self._call("cuCheckpointProcessLock", pid, _ARGUMENTS(timeout_ms))

    def checkpoint(self, pid: int) -> None:
        """As the protocol says."""
        self._call("cuCheckpointProcessCheckpoint", pid, _ARGUMENTS())

    def restore(self, pid: int) -> None:
        """As the protocol says."""
        self._call("cuCheckpointProcessRestore", pid, _ARGUMENTS())

    def unlock(self, pid: int) -> None:
        """As the protocol says."""
        self._call("cuCheckpointProcessUnlock", pid, _ARGUMENTS())

    def _call(self, name: str, pid: int, argument: object) -> None:
        try:
            self._driver.call(name, ctypes.c_int(pid), argument)
        except CallRefused as error:
            raise CheckpointFailed(str(error), code=error.code) from error
        except CudaError as error:
            raise CheckpointFailed(str(error)) from error


def missing_calls(driver: Driver) -> tuple[str, ...]:
    """Those that this driver lacks; it has all from CUDA 12.8 on."""
    return tuple(name for name in CALLS if not driver.has(name))
