"""The cgroups of jobs below a parent that this user may write: made, watched, and removed with all that runs in them.

A job has one cgroup in cgroup v2, and one for each controller in v1. Each is called as kubelet calls a pod's,
`pod<UID>`: by that the node agent knows whose device memory a process holds.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail_local_node.limits.amounts import PERIOD_US, Limits

# Writing a PID to it moves the process; 0 is the writer's own.
PROCESSES: Final = "cgroup.procs"
_KILL: Final = "cgroup.kill"
# The first is v2's, the second v1's. Both count in a line `oom_kill N`.
_MEMORY_EVENTS: Final = ("memory.events", "memory.oom_control")
_POLL_SECONDS: Final = 0.01
_REMOVAL_SECONDS: Final = 5.0

Settings = Callable[[Limits], list[tuple[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """A parent for the cgroups of jobs, and the files of a cgroup that set its limits, in the order of writing."""

    parent: Path
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The parents that this machine offers; none if it enforces no limits. `sentence` says for people what holds."""

    hierarchies: tuple[Hierarchy, ...]
    sentence: str

    def create(self, pod_uid: str, *, limits: Limits) -> tuple[Path, ...]:
        """Make the cgroups of one job. Raises `OSError`."""
        made = []
        for each in self.hierarchies:
            group = each.parent / f"pod{pod_uid}"
            group.mkdir(exist_ok=True)
            for file, value in each.settings(limits):
                # Without swap, the kernel has no file about it.
                if "sw" not in file or (group / file).exists():
                    (group / file).write_text(value, encoding="ascii")
            made.append(group)
        return tuple(made)

    def leave(self) -> None:
        """Remove the parents unless jobs still run in them. The next local node makes them again."""
        for each in self.hierarchies:
            with suppress(OSError):
                each.parent.rmdir()


def version_2(limits: Limits) -> list[tuple[str, str]]:
    """The files of cgroup v2. Out of memory, the kernel ends all processes of the job, not one of them."""
    found = [("cpu.weight", str(limits.cpu_weight))]
    if limits.quota_us is not None:
        found.append(("cpu.max", f"{limits.quota_us} {PERIOD_US}"))
    if limits.memory_bytes is not None:
        memory = str(limits.memory_bytes)
        found += [("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return found


def memory_of_version_1(limits: Limits) -> list[tuple[str, str]]:
    """The files of v1's memory controller. The second one counts memory and swap together."""
    if limits.memory_bytes is None:
        return []
    memory = str(limits.memory_bytes)
    return [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]


def cpu_of_version_1(limits: Limits) -> list[tuple[str, str]]:
    """The files of v1's CPU controller."""
    found = [("cpu.shares", str(limits.cpu_shares))]
    if limits.quota_us is not None:
        found += [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(limits.quota_us))]
    return found


def out_of_memory(groups: Sequence[Path]) -> bool:
    """Whether the kernel has ended a process of a job because the job had reached its limit of memory."""
    return any(_counted(group / file, event="oom_kill") for group in groups for file in _MEMORY_EVENTS)


async def end(groups: Sequence[Path]) -> None:
    """Kill whatever still runs in the cgroups of a job, and remove them; they stay if that takes more than 5 s."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REMOVAL_SECONDS):
            for group in groups:
                while group.exists():
                    _kill(group)
                    _remove(group)
                    await asyncio.sleep(_POLL_SECONDS if group.exists() else 0)


def _kill(group: Path) -> None:
    with suppress(OSError):
        (group / _KILL).write_text("1", encoding="ascii")
    for each in _nested(group):
        for pid in _processes(each):
            if process := identity.identify(pid):
                identity.send(process, signal_number=signal.SIGKILL)


def _remove(group: Path) -> None:
    # It is busy until the parents of its processes have reaped them.
    with suppress(OSError):
        for each in _nested(group):
            each.rmdir()


def _nested(group: Path) -> Iterator[Path]:
    """A cgroup and those that a job has made in it, children before their parents."""
    for folder, _, _ in os.walk(group, topdown=False):
        yield Path(folder)


def _processes(group: Path) -> list[int]:
    with suppress(OSError):
        return [int(line) for line in (group / PROCESSES).read_text(encoding="ascii").split()]
    return []


def _counted(file: Path, *, event: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == event:
                return int(count)
    return 0
