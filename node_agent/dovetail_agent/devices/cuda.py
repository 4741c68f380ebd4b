"""The calls of CUDA's driver library that Dovetail uses: device memory, checkpoints.

It uses only `ctypes` and the library: an import needs no CUDA, and a missing library raises one clear sentence. The
result codes are those of `cuda.h`.

CudaError              what went wrong
├── LibraryMissing     the driver library is missing, or lacks the named call
└── CallRefused        the named call did not return 0, and its code
"""

import ctypes
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"

INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
ILLEGAL_STATE: Final = 401
NOT_READY: Final = 600
NOT_SUPPORTED: Final = 801

_WORDS: Final = {
    INVALID_VALUE: "invalid value",
    OUT_OF_MEMORY: "out of memory",
    NOT_INITIALIZED: "not initialized",
    100: "no device",
    101: "invalid device",
    304: "operating system call failed",
    ILLEGAL_STATE: "illegal state",
    NOT_READY: "not ready",
    NOT_SUPPORTED: "not supported",
    805: "MPS connection failed",
    806: "MPS RPC failure",
    807: "MPS server not ready",
    808: "MPS clients at their maximum",
    999: "unknown error",
}


class CudaError(Exception):
    """An error of the driver library; the text is a sentence for people."""


class LibraryMissing(CudaError):  # noqa: N818 - says what is the matter, as the tree above reads
    """The library, or a call in it, is missing."""


class CallRefused(CudaError):  # noqa: N818 - as above
    """A call that did not return 0."""

    def __init__(self, call: str, *, code: int) -> None:
        self.call = call
        self.code = code
        super().__init__(f"{call}: {_WORDS.get(code, 'error')} ({code})")


class Driver:
    """The driver library. Raises `LibraryMissing` if it cannot be loaded."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library: Any = ctypes.CDLL(library)
        except OSError as error:
            raise LibraryMissing(f"NVIDIA's driver library is not there: {error}") from error

    def has(self, call: str) -> bool:
        """Whether this driver has the named call."""
        return hasattr(self._library, call)

    def call(self, name: str, *args: Any) -> None:
        """Make a call. Raises `CallRefused`, and `LibraryMissing` if the driver has no such call."""
        if not self.has(name):
            raise LibraryMissing(f"the driver has no {name}")
        code = int(getattr(self._library, name)(*args))
        if code:
            raise CallRefused(name, code=code)

    def init(self) -> None:
        """Initialise the driver. Raises `CudaError`."""
        self.call("cuInit", ctypes.c_uint(0))


class Context:
    """A context on the first device that this process sees. Raises `CudaError`.

    The end of the process frees what was allocated.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        device, self._handle = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        driver.call("cuCtxCreate_v2", ctypes.byref(self._handle), ctypes.c_uint(0), device)

    def allocate(self, *, mib: int) -> None:
        """Allocate device memory. Raises `CallRefused`."""
        pointer = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
