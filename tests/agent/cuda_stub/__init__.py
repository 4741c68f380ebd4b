"""Builds our stand-in for CUDA's driver library, and writes the scenarios that it plays."""

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("cuda.c")
LIBRARY = "libcuda.so.1"


@functools.cache
def built(*, old_driver: bool = False) -> Path:
    """A folder with the library; an old driver's has no checkpoint calls. Skips without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc libc6-dev")
    folder = Path(tempfile.mkdtemp(prefix="dovetail-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    flags = ["-DOLD_DRIVER"] if old_driver else []
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", *flags]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(SOURCE), "-lpthread"], check=True)
    return folder


class CudaStub:
    """The library, loaded into this process."""

    def __init__(self, *lines: str, old_driver: bool = False) -> None:
        self.path = str(built(old_driver=old_driver) / LIBRARY)
        self.library = ctypes.CDLL(self.path)
        self.play(*lines)

    def play(self, *lines: str) -> None:
        """From now on, from the start."""
        self.library.stub_load("\n".join(lines).encode())

    def add(self, line: str) -> None:
        """One fact more."""
        self.library.stub_add(line.encode())

    def state(self, pid: int) -> int:
        """The state of a process; -1 for one that is not there."""
        return int(self.library.stub_state(pid))

    @property
    def resident_mib(self) -> int:
        """What the processes have of the card together."""
        return int(self.library.stub_resident())
