"""What benchmarks/console.py measures, and the targets that it is compared with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import inf
from statistics import median
from typing import Final

from benchmarks.gateway import Live

STREAMS: Final = 50
# The pages that are to scroll without a long task.
SCROLLED: Final = ("jobs", "nodes", "map")
PAINT_SECONDS: Final = 1.0
SHOWN_SECONDS: Final = 0.5
FRAME_MS: Final = 8.0
CHANGE_SECONDS: Final = 1.0
STREAMS_CPU_PERCENT: Final = 50.0
# 0.05 MiB a minute. The leak of rows that this rule was made for had 0.5; the line through 20 samples varies by 0.02,
# since what a collection leaves behind varies by some tenths of a MiB.
MEMORY_MIB_PER_HOUR: Final = 3.0
# After a whole list the heap grows for some minutes: each row changes once, and V8 compiles what runs often.
SETTLING_MINUTES: Final = 6
LEAST_SAMPLES: Final = 10


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
    """A tab's JavaScript heap after a collection, in MiB, and its DOM nodes, once a minute.

    `whole_lists` is how many it has loaded until then: each one frees all earlier rows, and hides what leaked.
    """

    heap_mib: list[float]
    dom_nodes: list[int]
    whole_lists: list[int]


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


def judged_pages(found: Sequence[Paint]) -> Iterator[Target]:
    """How soon each page is there."""
    for page in dict.fromkeys(each.page for each in found):
        paints = [each for each in found if each.page == page]
        first, shown = (median(each) for each in zip(*map(_times, paints), strict=True))
        yield Target(what=f"{page}: first paint, median", measured=first, most=PAINT_SECONDS, unit="s")
        yield Target(what=f"{page}: data shown, median", measured=shown, most=SHOWN_SECONDS, unit="s")


def judged(found: Measured) -> Iterator[Target]:
    """Every target with its figure."""
    yield from judged_pages(found.paints)
    for each in found.scrolling:
        if each.page in SCROLLED:
            tasks = f"{each.page}: tasks above 50 ms of CPU while scrolling"
            yield Target(what=tasks, measured=each.tasks_above_50_ms_cpu, most=0, unit="tasks")
            frame = f"{each.page}: script and layout in a frame, p95"
            yield Target(what=frame, measured=each.p95_ms, most=FRAME_MS, unit="ms")
    yield Target(what="a change is shown, p95", measured=found.changes.p95_seconds, most=CHANGE_SECONDS, unit="s")
    cpu = f"the gateway's CPU with {found.streams.streams} streams"
    yield Target(what=cpu, measured=found.streams.cpu_percent, most=STREAMS_CPU_PERCENT, unit="% of a core")
    yield judged_memory(found.memory)


def judged_memory(found: Memory) -> Target:
    """Whether a tab's memory is flat; infinite growth where too few samples tell."""
    samples = steady(found)
    slope = 60 * slope_of(samples) if len(samples) >= LEAST_SAMPLES else inf
    over = f"growth of a tab's heap over {max(0, len(samples) - 1)} min"
    return Target(what=over, measured=slope, most=MEMORY_MIB_PER_HOUR, unit="MiB an hour")


def steady(found: Memory) -> list[float]:
    """The samples of the longest time between two whole lists, without those in which the tab settles."""
    sampled = zip(found.whole_lists, found.heap_mib, strict=True)
    stretches = [[heap for _, heap in group] for _, group in groupby(sampled, key=lambda each: each[0])]
    return max(stretches, key=len, default=[])[SETTLING_MINUTES:]


def slope_of(samples: Sequence[float]) -> float:
    """Theil and Sen's estimate: the median slope of all pairs, which single samples hardly change."""
    pairs = combinations(enumerate(samples), 2)
    return median((later - sooner) / (end - start) for (start, sooner), (end, later) in pairs)


def _times(paint: Paint) -> tuple[float, float]:
    return paint.first_paint_seconds, paint.shown_seconds
