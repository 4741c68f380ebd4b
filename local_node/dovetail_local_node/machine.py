"""What this machine has: CPUs, memory, the current boot. Only reads."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.process import identity

_MEMINFO: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine. `cpus` are those that this process may use, `memory_mib` is all memory."""

    cpus: int
    memory_mib: int
    boot_id: str
    hostname: str
    kernel: str
    architecture: str


def this_machine() -> Machine:
    """Read what this machine has now."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=_memory_mib(_MEMINFO.read_text(encoding="ascii")),
        boot_id=identity.boot_id(),
        hostname=platform.node(),
        kernel=platform.release(),
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    )


def _memory_mib(meminfo: str) -> int:
    line = next(line for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) // 1024
