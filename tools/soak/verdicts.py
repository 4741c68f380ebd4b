"""Whether a soak has passed: its requirements, judged by its record. Pure."""

import statistics
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from dovetail.answers.questions import FindingKind
from dovetail.audit.allocations import LAGGING
from tools.soak.record import AuditRecord, Disturbed, JobRecord, Record
from tools.soak.schedule import OPERATOR, Kind

QUARTERS: Final = ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
MOST_GROWTH: Final = 0.10
# Part of the whole run: where the comparison of memory begins, and how long each of its two windows is.
_FROM: Final = 0.25
_WINDOW: Final = 0.15
# With fewer samples of one process a median says little, and so does the p99 of fewer jobs.
_FEWEST_SAMPLES: Final = 5
_FEWEST_JOBS: Final = 20
# A job is undisturbed if it comes a Lease's duration after a disturbance, and some seconds before the next one.
_REST_SECONDS: Final = 15.0
_AHEAD_SECONDS: Final = 5.0
_MOST_TIMES_SLOWER: Final = 2.0
# A first status within this time is fast enough, so a p99 below it may vary freely.
_FAST_ENOUGH_SECONDS: Final = 0.5
# Pods of a job that ends for it have 30 s; a disturbance of 40 s, and the Lease of who was disturbed, may come before
# and after that.
_MOST_WAIT_SECONDS: Final = 150.0
# An audit looks twice, some seconds apart, so it may begin before the outage that it sees.
_AUDIT_SECONDS: Final = 4.0
# The operator tries a write that failed in an outage again up to this time after its end.
_RECOVERY_SECONDS: Final = 10.0
_LIVENESS: Final[frozenset[FindingKind]] = LAGGING - {"AllocationWithoutPod", "HoldsMoreThanAsked"}
# Disturbances that hit every program, and so the operator.
_OF_ALL: Final[frozenset[Kind]] = frozenset({"api-server", "clock"})


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement, whether it holds, and the figure."""

    requirement: str
    holds: bool
    figure: str


def passed(record: Record) -> bool:
    """Whether every requirement holds."""
    return all(verdict.holds for verdict in verdicts(record))


def verdicts(record: Record) -> list[Verdict]:
    """Judge a record by each requirement."""
    return [
        _none_lost(record),
        _right_ends(record),
        _no_double_promise(record),
        _liveness(record),
        _guarantees(record),
        _statuses(record),
        _memory(record),
        _reasons(record),
    ]


def _none_lost(record: Record) -> Verdict:
    ended = sum(job.ended is not None for job in record.jobs)
    return Verdict(
        requirement="No job is lost",
        holds=ended == len(record.jobs) > 0,
        figure=f"{ended} of {len(record.jobs)} ended",
    )


def _right_ends(record: Record) -> Verdict:
    wrong = [f"{job.name}: {job.wrong}" for job in record.jobs if job.wrong]
    return Verdict(
        requirement="Each job ends as its kind may, and none runs twice",
        holds=not wrong,
        figure="; ".join(wrong[:3]) or f"{len(record.jobs)} of {len(record.jobs)}",
    )


def _no_double_promise(record: Record) -> Verdict:
    made = [audit for audit in record.audits if not audit.failed]
    found = [each for audit in made for each in audit.findings if not _is_late(each) and _kind(each) not in _LIVENESS]
    return Verdict(
        requirement="Nothing is promised twice",
        holds=bool(made) and not found,
        figure="; ".join(found[:3]) or f"{len(made)} audits without such a finding",
    )


def _liveness(record: Record) -> Verdict:
    made = [audit for audit in record.audits if not audit.failed]
    found = [f"at {audit.at:.0f} s: {each}" for audit in made for each in audit.findings if _kind(each) in _LIVENESS]
    return Verdict(
        requirement="No capacity is lost and no quota exceeded",
        holds=bool(made) and not found,
        figure="; ".join(found[:3]) or f"{len(made)} audits without such a finding",
    )


def _guarantees(record: Record) -> Verdict:
    own = [job for job in record.jobs if job.guaranteed > 0]
    waits = sorted(job.started - job.submitted for job in own if job.started is not None)
    ended = sum(job.preempted for job in own)
    return Verdict(
        requirement=f"A job within a guarantee starts within {_MOST_WAIT_SECONDS:.0f} s and ends for no other",
        holds=0 < len(waits) == len(own) and waits[-1] <= _MOST_WAIT_SECONDS and not ended,
        figure=f"{len(waits)} of {len(own)} started, p50 after {percentile(waits, percent=50):.0f} s, "
        f"most {percentile(waits, percent=100):.0f} s; {ended} ended for others",
    )


def _statuses(record: Record) -> Verdict:
    made = [audit for audit in record.audits if not audit.failed]
    found, excused = [], 0
    for audit, following in zip_longest(made, made[1:]):
        for finding in filter(_is_late, audit.findings):
            if _is_excused(finding, audit=audit, following=following, record=record):
                excused += 1
            else:
                found.append(f"at {audit.at:.0f} s: {finding}")
    return Verdict(
        requirement="Each job's status names the devices of its pods, except near an outage of the operator",
        holds=bool(made) and not found,
        figure=f"{excused} late near an outage" + "".join(f"; {each}" for each in found[:3]),
    )


def _is_late(finding: str) -> bool:
    return _kind(finding) == "AllocationWithoutPod"


def _kind(finding: str) -> str:
    return finding.split(" ", 1)[0]


def _is_excused(finding: str, *, audit: AuditRecord, following: AuditRecord | None, record: Record) -> bool:
    """Whether a late status breaks no requirement: it is near an outage of the operator, and gone at the next audit."""
    gone = following is not None and finding not in following.findings
    return gone and any(_delays_status(each, at=audit.at, record=record) for each in record.disturbances)


def _delays_status(disturbance: Disturbed, *, at: float, record: Record) -> bool:
    """Whether an audit at this time may see a status that is late because of this disturbance."""
    hits_operator = disturbance.target == OPERATOR or disturbance.kind in _OF_ALL
    end = _end_of(disturbance, record=record) + _RECOVERY_SECONDS
    return hits_operator and disturbance.at - _AUDIT_SECONDS <= at <= end


def _end_of(disturbance: Disturbed, *, record: Record) -> float:
    """When a disturbance was over. A killed program is away until its next process is seen."""
    end = disturbance.at + disturbance.seconds
    if disturbance.kind != "kill":
        return end
    own = [sample for sample in record.samples if sample.program == disturbance.target]
    killed = {sample.pid for sample in own if sample.at <= disturbance.at}
    return min((sample.at for sample in own if sample.at > end and sample.pid not in killed), default=end)


def _memory(record: Record) -> Verdict:
    grown = growth(record)
    return Verdict(
        requirement=f"Memory grows by at most {MOST_GROWTH:.0%} after the first quarter",
        holds=bool(grown) and max(grown.values()) <= MOST_GROWTH,
        figure=", ".join(f"{name} {part:+.1%}" for name, part in sorted(grown.items())) or "too few samples",
    )


def _reasons(record: Record) -> Verdict:
    quarters = [delays(record, begin=begin, end=end, undisturbed=True) for begin, end in QUARTERS[1:]]
    enough = min(map(len, quarters)) >= _FEWEST_JOBS
    found = [percentile(values, percent=99) for values in quarters]
    steady = max(found) <= max(_FAST_ENOUGH_SECONDS, _MOST_TIMES_SLOWER * min(found))
    each = ", ".join(f"{seconds:.2f} s of {len(values)}" for seconds, values in zip(found, quarters, strict=True))
    return Verdict(
        requirement="The p99 of the first status is steady while nothing disturbs",
        holds=enough and steady,
        figure=f"{each} jobs in the second, third and last quarter" if enough else "too few undisturbed jobs",
    )


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


def delays(record: Record, *, begin: float, end: float, undisturbed: bool = False) -> list[float]:
    """Seconds from submission to the first phase, ascending, of jobs that were submitted in this part of the run.

    `undisturbed`: only of those that no disturbance was near, whatever their delay.
    """
    span = (begin * record.seconds, end * record.seconds)
    return sorted(
        job.answered - job.submitted
        for job in record.jobs
        if job.answered is not None
        and span[0] <= job.submitted < span[1]
        and not (undisturbed and _is_disturbed(job, record=record))
    )


def _is_disturbed(job: JobRecord, *, record: Record) -> bool:
    return any(
        each.at - _AHEAD_SECONDS <= job.submitted <= each.at + each.seconds + _REST_SECONDS
        for each in record.disturbances
    )


def percentile(values: Sequence[float], *, percent: float) -> float:
    """The smallest value that at least that many percent do not exceed; 0 for no values."""
    return values[max(0, -int(-len(values) * percent // 100) - 1)] if values else 0.0
