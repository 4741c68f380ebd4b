"""Chooses the parent of the jobs' cgroups when the local node starts, and says for people what holds."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dovetail_local_node.limits import groups
from dovetail_local_node.limits.groups import PROCESSES, Groups, Hierarchy

_CONTROLLERS: Final = ("cpu", "memory")
_AVAILABLE: Final = "cgroup.controllers"  # only v2 has it
_FOR_CHILDREN: Final = "cgroup.subtree_control"
# The local node's own place: in v2, a cgroup with processes cannot limit its children.
_OWN: Final = "node"


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel's files about cgroups, how to write one, and which this user may write."""

    mount: Path = Path("/sys/fs/cgroup")
    own: Path = Path("/proc/self/cgroup")
    pid: int = field(default_factory=os.getpid)
    write: Callable[[Path, str], object] = Path.write_text
    writable: Callable[[Path], bool] = _is_writable

    def own_group(self) -> Path:
        """The cgroup of this process in v2."""
        lines = self.own.read_text(encoding="utf-8").splitlines()
        path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
        return self.mount / path.lstrip("/")


def choose(name: str, *, kernel: Kernel) -> Groups:
    """Make a parent called `name` for the cgroups of jobs, where this user may and the kernel has the controllers."""
    try:
        if (kernel.mount / _AVAILABLE).exists():
            return _version_2(name, kernel=kernel)
        if all((kernel.mount / each / PROCESSES).exists() for each in _CONTROLLERS):
            return _version_1(name, kernel=kernel)
    except OSError as error:
        return none(f"{error.filename}: {error.strerror}")
    return none(f"this machine has no cgroups with CPU and memory at {kernel.mount}")


def sentence_file(state: Path) -> Path:
    """The file in which a local node with this folder says what holds."""
    return state / "limits"


def none(reason: str) -> Groups:
    """No limits, and why."""
    return Groups(hierarchies=(), sentence=f"Limits of CPU and memory are not enforced: {reason}.")


def _enforced(*hierarchies: Hierarchy) -> Groups:
    where = " and ".join(str(each.parent) for each in hierarchies)
    return Groups(hierarchies=hierarchies, sentence=f"Limits of CPU and memory are enforced, in {where}.")


def _version_1(name: str, *, kernel: Kernel) -> Groups:
    """Below the root of both controllers: v1 gives no user a part of its own."""
    settings = {"cpu": groups.cpu_of_version_1, "memory": groups.memory_of_version_1}
    parents = {each: kernel.mount / each for each in _CONTROLLERS}
    if not all(map(kernel.writable, parents.values())):
        return none("this machine has cgroup v1, which takes limits from root only")
    for parent in parents.values():
        (parent / name).mkdir(exist_ok=True)
    return _enforced(*(Hierarchy(parent=parents[each] / name, settings=settings[each]) for each in _CONTROLLERS))


def _version_2(name: str, *, kernel: Kernel) -> Groups:
    """Below this process's own cgroup, if it is delegated, else below the root, which only root may write."""
    own = kernel.own_group()
    reasons = []
    for candidate in dict.fromkeys((own, kernel.mount)):
        if reason := _unusable(candidate, kernel=kernel):
            reasons.append(reason)
            continue
        parent = candidate / name
        parent.mkdir(exist_ok=True)
        _enable(parent, kernel=kernel)
        return _enforced(Hierarchy(parent=parent, settings=groups.version_2))
    return none(reasons[0])


def _unusable(candidate: Path, *, kernel: Kernel) -> str:
    """Why a cgroup cannot limit children; empty once it can, which may take moving this process out of it."""
    if not all(map(kernel.writable, (candidate, candidate / PROCESSES, candidate / _FOR_CHILDREN))):
        return f"cgroup {candidate} is not delegated to this user"
    has = (candidate / _AVAILABLE).read_text(encoding="ascii").split()
    if missing := [each for each in _CONTROLLERS if each not in has]:
        return f"cgroup {candidate} does not have the controller {missing[0]}"
    try:
        _enable(candidate, kernel=kernel)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        if not _leave(candidate, kernel=kernel):
            return f"other processes run in cgroup {candidate}"
        _enable(candidate, kernel=kernel)
    return ""


def _enable(group: Path, *, kernel: Kernel) -> None:
    kernel.write(group / _FOR_CHILDREN, " ".join(f"+{each}" for each in _CONTROLLERS))


def _leave(group: Path, *, kernel: Kernel) -> bool:
    """Move this process into a child of its cgroup, if it is the only one there."""
    with suppress(OSError, ValueError):
        found = [int(line) for line in (group / PROCESSES).read_text(encoding="ascii").split()]
        if found == [kernel.pid]:
            (group / _OWN).mkdir(exist_ok=True)
            kernel.write(group / _OWN / PROCESSES, str(kernel.pid))
            return True
    return False
