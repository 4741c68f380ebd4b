"""Measures the node's own CPU and memory load from `/proc/stat` and `/proc/meminfo`."""

from pathlib import Path
from typing import NamedTuple

from dovetail_agent.processes.identity import PROC


class HostLoad(NamedTuple):
    """Ratios from 0 to 1; None if unavailable.

    CPU load is a difference between two reads, so the first has none.
    """

    cpu: float | None = None
    memory: float | None = None


class _Ticks(NamedTuple):
    idle: int
    total: int


class HostMeter:
    """Measures the load since its last read."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before: _Ticks | None = None

    def read(self) -> HostLoad:
        """Return the CPU load since the last read, and the ratio of unavailable memory now."""
        before, now = self._before, _ticks(self._read("stat"))
        self._before = now
        cpu = None
        if before and now and now.total > before.total:
            cpu = 1 - (now.idle - before.idle) / (now.total - before.total)
        return HostLoad(cpu=cpu, memory=_memory(self._read("meminfo")))

    def _read(self, name: str) -> str:
        try:
            return (self._proc / name).read_text(encoding="utf-8")
        except OSError:
            return ""


def _ticks(stat: str) -> _Ticks | None:
    """Parse the first line: user, nice, system, idle, iowait, irq, softirq, steal.

    Guest time is already part of user and nice.
    """
    first = stat.partition("\n")[0].split()
    if len(first) < 6 or first[0] != "cpu":
        return None
    ticks = [int(each) for each in first[1:9]]
    return _Ticks(idle=ticks[3] + ticks[4], total=sum(ticks))


def _memory(meminfo: str) -> float | None:
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    try:
        total, available = int(fields["MemTotal"][0]), int(fields["MemAvailable"][0])
    except (KeyError, IndexError, ValueError):
        return None
    return 1 - available / total if total else None
