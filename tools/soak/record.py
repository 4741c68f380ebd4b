"""What a soak has seen, and whether it passed. Pure."""

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

# Part of the whole run: where the comparison of memory begins, and how long each of its two windows is.
_FROM: Final = 0.25
_WINDOW: Final = 0.15
MOST_GROWTH: Final = 0.10
# With fewer samples of one process a median says little.
_FEWEST_SAMPLES: Final = 5


class JobRecord(msgspec.Struct, kw_only=True):
    """One job: when it was submitted, first had a phase and ended, in seconds after the start, and how it ended.

    `wrong` says in which way its end is not one that its kind may have; empty if it is.
    """

    name: str
    kind: str
    submitted: float
    told: float | None = None
    ended: float | None = None
    phase: str = ""
    attempts: list[str] = []
    wrong: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The resident memory of a process in MiB, at a time in seconds after the start."""

    at: float
    program: str
    pid: int
    mib: float


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an audit; `failed` if the API server did not answer."""

    at: float
    findings: list[str]
    failed: str = ""


class Disturbed(msgspec.Struct, frozen=True, kw_only=True):
    """A disturbance as it was carried out."""

    at: float
    said: str
    kind: str
    seconds: float


class Record(msgspec.Struct, kw_only=True):
    """A whole soak.

    seconds       its length, without the end in which what waits may end
    seed          of its disturbances and jobs
    nodes         simulated nodes
    date          day, in ISO 8601
    jobs          all jobs
    samples       memory, every few seconds
    audits        all audits
    disturbances  what was done
    left_out      disturbances that this machine cannot carry out, each with the reason
    """

    seconds: float
    seed: int
    nodes: int
    date: str
    jobs: list[JobRecord] = []
    samples: list[Sample] = []
    audits: list[AuditRecord] = []
    disturbances: list[Disturbed] = []
    left_out: list[str] = []


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement, whether it holds, and the figure."""

    requirement: str
    holds: bool
    figure: str


def verdicts(record: Record) -> list[Verdict]:
    """Judge a record by each requirement."""
    jobs, ended = record.jobs, [job for job in record.jobs if job.ended is not None]
    wrong = [f"{job.name}: {job.wrong}" for job in jobs if job.wrong]
    found = [finding for audit in record.audits for finding in audit.findings]
    made = [audit for audit in record.audits if not audit.failed]
    grown = growth(record)
    worst = max(grown.values(), default=0.0)
    return [
        Verdict(
            requirement="No job is lost", holds=len(ended) == len(jobs) > 0,
            figure=f"{len(ended)} of {len(jobs)} ended",
        ),
        Verdict(
            requirement="Each job ends as its kind may, and none runs twice", holds=not wrong,
            figure="; ".join(wrong[:3]) or f"{len(jobs)} of {len(jobs)}",
        ),
        Verdict(
            requirement="Nothing is promised twice", holds=bool(made) and not found,
            figure="; ".join(found[:3]) or f"{len(made)} audits without a finding",
        ),
        Verdict(
            requirement=f"Memory grows by at most {MOST_GROWTH:.0%} after the first quarter",
            holds=bool(grown) and worst <= MOST_GROWTH,
            figure=", ".join(f"{name} {part:+.1%}" for name, part in sorted(grown.items())) or "too few samples",
        ),
    ]  # fmt: skip


def growth(record: Record) -> dict[str, float]:
    """By how much each program's memory grew between two windows: after the first quarter, and at the end.

    Only of programs whose process is the same in both.
    """
    found: dict[str, float] = {}
    windows = [(_FROM, _FROM + _WINDOW), (1 - _WINDOW, 1.0)]
    for program in {sample.program for sample in record.samples}:
        medians: list[tuple[int, float]] = []
        for begin, end in windows:
            own = [
                sample
                for sample in record.samples
                if sample.program == program and begin * record.seconds <= sample.at <= end * record.seconds
            ]
            if len(own) >= _FEWEST_SAMPLES and len({sample.pid for sample in own}) == 1:
                medians.append((own[0].pid, statistics.median(sample.mib for sample in own)))
        if len(medians) == len(windows) and medians[0][0] == medians[1][0]:
            found[program] = medians[1][1] / medians[0][1] - 1
    return found


def delays(record: Record, *, begin: float, end: float) -> list[float]:
    """Seconds from submission to the first phase, ascending, of jobs that were submitted in this part of the run."""
    span = (begin * record.seconds, end * record.seconds)
    return sorted(
        job.told - job.submitted for job in record.jobs if job.told is not None and span[0] <= job.submitted < span[1]
    )


def percentile(values: Sequence[float], *, percent: float) -> float:
    """The smallest value that at least that many percent do not exceed; 0 for no values."""
    return values[max(0, -int(-len(values) * percent // 100) - 1)] if values else 0.0
