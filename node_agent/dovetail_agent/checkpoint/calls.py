"""CUDA's checkpoint of another process, call by call: its states and the calls between them.

    RUNNING --lock--> LOCKED --checkpoint--> CHECKPOINTED --restore--> LOCKED --unlock--> RUNNING

A checkpointed process has no memory on any device: its device memory is in its own host memory. FAILED is final.

CheckpointFailed   a call was refused, timed out or did not return: names the call, and its code if there is one
"""

import ctypes
from enum import IntEnum
from typing import Final, Protocol

from dovetail_agent.devices.cuda import CallRefused, CudaError, Driver

CALLS: Final = tuple(f"cuCheckpointProcess{verb}" for verb in ("Lock", "Checkpoint", "Restore", "Unlock", "GetState"))
# The argument structure of each call has 64 bytes, all zero except the first field of Lock.
_ARGUMENTS: Final = ctypes.c_uint32 * 16


class ProcessState(IntEnum):
    """The values of `CUprocessState`."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CheckpointFailed(Exception):  # noqa: N818 - says what is the matter
    """A call failed; the text is a sentence. `code` is None if the call did not return a code."""

    def __init__(self, problem: str, *, code: int | None = None) -> None:
        self.code = code
        super().__init__(problem)


class Calls(Protocol):
    """The five calls, each for a process by its PID on the node.

    All block and raise `CheckpointFailed`.
    """

    def state(self, pid: int) -> ProcessState:
        """Return the process's state."""
        ...

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        """Block new GPU work of the process and wait for running work.

        If that takes longer than the timeout, the process stays RUNNING.
        """
        ...

    def checkpoint(self, pid: int) -> None:
        """Move its device memory to the host."""
        ...

    def restore(self, pid: int) -> None:
        """Move its memory back to the device.

        If the device has no room, the process ends in FAILED for good.
        """
        ...

    def unlock(self, pid: int) -> None:
        """Allow new GPU work again."""
        ...


class LibraryCalls:
    """The calls of the driver library in this process.

    Raises `CudaError` if the driver has no checkpoint calls or cannot be initialised.
    """

    def __init__(self, driver: Driver) -> None:
        if missing := missing_calls(driver):
            raise CudaError(f"the driver offers no checkpoint of processes: it has no {missing[0]}")
        driver.init()
        self._driver = driver

    def state(self, pid: int) -> ProcessState:
        """Implement `Calls.state`."""
        found = ctypes.c_int()
        self._call("cuCheckpointProcessGetState", pid=pid, argument=ctypes.byref(found))
        return ProcessState(found.value)

    def lock(self, pid: int, *, timeout_ms: int) -> None:
        """Implement `Calls.lock`."""
        self._call("cuCheckpointProcessLock", pid=pid, argument=_ARGUMENTS(timeout_ms))

    def checkpoint(self, pid: int) -> None:
        """Implement `Calls.checkpoint`."""
        self._call("cuCheckpointProcessCheckpoint", pid=pid, argument=_ARGUMENTS())

    def restore(self, pid: int) -> None:
        """Implement `Calls.restore`."""
        self._call("cuCheckpointProcessRestore", pid=pid, argument=_ARGUMENTS())

    def unlock(self, pid: int) -> None:
        """Implement `Calls.unlock`."""
        self._call("cuCheckpointProcessUnlock", pid=pid, argument=_ARGUMENTS())

    def _call(self, name: str, *, pid: int, argument: object) -> None:
        try:
            self._driver.call(name, ctypes.c_int(pid), argument)
        except CallRefused as error:
            raise CheckpointFailed(str(error), code=error.code) from error
        except CudaError as error:
            raise CheckpointFailed(str(error)) from error


def missing_calls(driver: Driver) -> tuple[str, ...]:
    """The checkpoint calls that this driver lacks; none from CUDA 12.8 on."""
    return tuple(name for name in CALLS if not driver.has(name))
