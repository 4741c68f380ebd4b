"""A node's cgroup: its own programs in `node`, its pods in cgroups that kubelet creates.

Only the kernel records which processes belong to a node, so that a node can be ended at any point of its start.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = "cgroup.controllers"  # only a v2 hierarchy has this file
PROGRAMS = "node"


def hierarchies() -> list[Path]:
    """The root of each mounted hierarchy: one for cgroup v2, one for each controller of v1."""
    if (MOUNT / CONTROLLERS).exists():
        return [MOUNT]
    return [path for path in sorted(MOUNT.iterdir()) if (path / "cgroup.procs").exists() and not path.is_symlink()]


def create(name: str) -> None:
    """Create the cgroup in every hierarchy, ready for processes and kubelet's own cgroups."""
    for hierarchy in hierarchies():
        top = hierarchy / name
        programs = top / PROGRAMS
        programs.mkdir(parents=True, exist_ok=True)
        for parent, child in ((hierarchy, top), (top, programs)):
            _copy_cpuset(parent, child=child)
        if (hierarchy / CONTROLLERS).exists():
            _delegate(hierarchy)
            _delegate(top)


def join(name: str) -> None:
    """Add the calling process, and so its children, to the node's programs."""
    for hierarchy in hierarchies():
        (hierarchy / name / PROGRAMS / "cgroup.procs").write_text("0")


def pids(name: str) -> list[int]:
    """PIDs of all processes of the node and its containers, in the caller's PID namespace."""
    found: set[int] = set()
    for group in _groups(name):
        with suppress(FileNotFoundError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return sorted(found - {0})  # 0: a process outside this PID namespace


def first(name: str) -> int | None:
    """PID of the node's first process, in whose namespaces a command sees what the node sees; None without a node.

    That is not the lowest PID: once the kernel has given out its last one it starts from low ones again, and a process
    of a container, whose namespaces are others, can have a lower one.
    """
    return next((pid for pid in pids(name) if _is_first(pid)), None)


def _is_first(pid: int) -> bool:
    """Whether it is PID 1 one PID namespace below ours. A container's first process is two or more below."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[2:] == ["1"]
    return False


def end(name: str, *, deadline_s: float = 20.0) -> None:
    """Kill every process of the node and remove its cgroups.

    Raises:
        TimeoutError: a process did not end in time.
    """
    limit = time.monotonic() + deadline_s
    while alive := pids(name):
        if time.monotonic() > limit:
            raise TimeoutError(f"these processes of the real node do not end: {alive}")
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for group in _groups(name):
        _remove(group, limit=limit)


def _groups(name: str) -> Iterator[Path]:
    """Every cgroup of the node in every hierarchy, children before their parents."""
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            yield Path(folder)


def _remove(group: Path, *, limit: float) -> None:
    while group.exists():
        try:
            group.rmdir()
        except OSError:  # busy until the kernel has reaped the last process
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)


def _copy_cpuset(parent: Path, *, child: Path) -> None:
    """Copy the cpuset.

    In v1 it starts empty, and takes no process before it has CPUs and memory nodes.
    """
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = child / name
        if not (parent / CONTROLLERS).exists() and file.exists() and not file.read_text().strip():
            file.write_text((parent / name).read_text())


def _delegate(group: Path) -> None:
    """Enable all controllers for a v2 cgroup's children."""
    for controller in (group / CONTROLLERS).read_text().split():
        with suppress(OSError):  # some hold processes or real-time tasks; kubelet reports those that it misses
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
