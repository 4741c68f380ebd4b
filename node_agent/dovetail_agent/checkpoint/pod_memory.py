"""Reads from a pod's cgroup (v1 and v2) how much more host memory it can use.

Only reads files.
"""

from pathlib import Path
from typing import Final

from dovetail_agent.turns.cgroup_freezer import group_of_pod

_MIB: Final = 1 << 20
# Cgroup v1 writes the largest number of pages for "no limit", not a word.
_NO_LIMIT_BYTES: Final = 1 << 60
_FILES_V2: Final = ("memory.max", "memory.current")
_FILES_V1: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def pod_free_mib(uid: str, *, mount: Path, proc: Path) -> int | None:
    """Free MiB up to the pod's limit or the node's end, whichever is less; None if unreadable.

    `mount` is where the node's cgroups are mounted.
    """
    v2 = (mount / "cgroup.controllers").exists()
    root = mount if v2 else mount / "memory"
    group = group_of_pod(root, uid=uid)
    if group is None:
        return None
    try:
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in (_FILES_V2 if v2 else _FILES_V1))
        left = _available_mib(proc)
        if limit != "max" and int(limit) < _NO_LIMIT_BYTES:
            left = min(left, (int(limit) - int(used)) // _MIB)
    except (OSError, ValueError):
        return None
    return max(0, left)


def _available_mib(proc: Path) -> int:
    """The node's available memory in MiB.

    Raises `OSError`, and `ValueError` if the kernel does not report it.
    """
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise ValueError("no MemAvailable")
