"""What benchmarks/console.py measures, and the targets that it is compared with."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.gateway import Live

STREAMS: Final = 50
# The pages that are to scroll without a long task.
SCROLLED: Final = ("queue", "map")
PAINT_SECONDS: Final = 1.0
FRAME_MS: Final = 8.0
CHANGE_SECONDS: Final = 1.0
STREAMS_CPU_PERCENT: Final = 50.0
# Of the first third's median: what a collection leaves behind varies by some percent.
MEMORY_GROWTH_PERCENT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """The start of a page, in seconds of wall time, and the main thread's CPU until its data are shown."""

    page: str
    first_paint_seconds: float
    shown_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrolling:
    """Scrolling through a page, in milliseconds: script and layout in each frame, and the longest task."""

    page: str
    frames: int
    p50_ms: float
    p95_ms: float
    longest_task_cpu_ms: float
    longest_task_wall_ms: float
    tasks_above_50_ms_cpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Seconds until the page shows a change, while 50 jobs change each second; and the tab's CPU meanwhile."""

    changes: int
    median_seconds: float
    p95_seconds: float
    slowest_seconds: float
    tab_cpu_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A tab's JavaScript heap after a collection, in MiB, and its DOM nodes, once a minute."""

    heap_mib: list[float]
    dom_nodes: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All results of a run."""

    paints: list[Paint]
    scrolling: list[Scrolling]
    changes: Changes
    streams: Live
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure and the most that it may be."""

    what: str
    measured: float
    most: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure is within its bound."""
        return self.measured <= self.most

    def row(self) -> str:
        """For people."""
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:8}{self.what:58}{self.measured:9.2f} of at most {self.most:g} {self.unit}"


def judged(found: Measured) -> Iterator[Target]:
    """Every target with its figure."""
    for page in dict.fromkeys(each.page for each in found.paints):
        paints = [each for each in found.paints if each.page == page]
        first, shown = (median(each) for each in zip(*map(_times, paints), strict=True))
        yield Target(what=f"{page}: first paint, median", measured=first, most=PAINT_SECONDS, unit="s")
        yield Target(what=f"{page}: data shown, median", measured=shown, most=PAINT_SECONDS, unit="s")
    for each in found.scrolling:
        if each.page in SCROLLED:
            tasks = f"{each.page}: tasks above 50 ms of CPU while scrolling"
            yield Target(what=tasks, measured=each.tasks_above_50_ms_cpu, most=0, unit="tasks")
            frame = f"{each.page}: script and layout in a frame, p95"
            yield Target(what=frame, measured=each.p95_ms, most=FRAME_MS, unit="ms")
    yield Target(what="a change is shown, p95", measured=found.changes.p95_seconds, most=CHANGE_SECONDS, unit="s")
    cpu = f"the gateway's CPU with {found.streams.streams} streams"
    yield Target(what=cpu, measured=found.streams.cpu_percent, most=STREAMS_CPU_PERCENT, unit="% of a core")
    growth = growth_percent(found.memory.heap_mib)
    over = f"growth of a tab's heap over {len(found.memory.heap_mib) - 1} min"
    yield Target(what=over, measured=growth, most=MEMORY_GROWTH_PERCENT, unit="%")


def _times(paint: Paint) -> tuple[float, float]:
    return paint.first_paint_seconds, paint.shown_seconds


def growth_percent(heap_mib: list[float]) -> float:
    """How much more the last third holds than the first, by medians."""
    third = max(1, len(heap_mib) // 3)
    first, last = median(heap_mib[:third]), median(heap_mib[-third:])
    return 100 * (last - first) / first
