"""The summary of a campaign: for people and for programs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.answers.questions import Finding
from dovetail.formats.durations import brief
from dovetail.gpu.request import WHOLE_MILLI
from dovetail_cli.replay.campaign import Ended
from dovetail_cli.replay.tally import HOPELESS, Tally, is_waiting, quantile
from dovetail_cli.ui import output

_MOST_LISTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that has no place at the end, and why."""

    name: str
    reason: str
    message: str

    @property
    def reason_text(self) -> str:
        """The reason, and the sentence where there is one."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The results of a campaign.

    jobs                  jobs of the campaign
    gpus                  devices of the cluster
    seconds               duration of the campaign
    placed                jobs that had a place
    succeeded             jobs that ended with success
    failed                jobs that ended otherwise
    waiting               jobs that still wait at the end
    submitted_per_second  mean rate of submission
    placed_per_second     mean rate of placement
    peak_allocation       highest allocation, as a ratio from 0 to 1 of all devices' compute
    mean_allocation       mean allocation, as such a ratio
    wait_p50_seconds      median time from submission to a place; None without a placed job
    wait_p95_seconds      95th percentile of that time
    audits                audits that ran
    findings              what the audits found
    problem               why the campaign ended early; empty if it did not
    """

    jobs: int
    gpus: int
    seconds: float
    placed: int
    succeeded: int
    failed: int
    waiting: Sequence[Waiting]
    submitted_per_second: float
    placed_per_second: float
    peak_allocation: float
    mean_allocation: float
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    audits: int
    findings: Sequence[Finding]
    problem: str

    @property
    def good(self) -> bool:
        """Whether each job succeeded or has a reason that time cannot resolve, and audits are clean."""
        hopeless = all(job.reason in HOPELESS for job in self.waiting)
        return not (self.problem or self.failed or self.findings) and hopeless

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {**msgspec.to_builtins(self), "good": self.good}

    def text(self, *, title: str) -> str:
        """For people."""
        lines = [
            f"{title}: {self.jobs} jobs on {self.gpus} GPUs in {brief(self.seconds)}",
            f"  placed      {self.placed} of {self.jobs}, {self.placed_per_second:.1f} pods/s",
            f"  submitted   {self.submitted_per_second:.0f}/s",
            f"  ended       {self.succeeded} succeeded, {self.failed} failed",
            f"  waiting     {self._waiting_by_reason()}",
            f"  allocation  peak {self.peak_allocation:.0%}, mean {self.mean_allocation:.0%} of the GPUs' compute",
            f"  waits       {self._waits()}",
            f"  audit       {self._audit()}",
        ]
        if self.problem:
            lines.append(output.paint(f"  ended early: {self.problem}", colour="red"))
        listed = [f"    {job.name}  {job.reason_text}" for job in self.waiting[:_MOST_LISTED]]
        if len(self.waiting) > _MOST_LISTED:
            listed.append(f"    and {len(self.waiting) - _MOST_LISTED} more")
        return "\n".join([*lines, *(["  never placed:", *listed] if listed else [])])

    def _waiting_by_reason(self) -> str:
        counts: dict[str, int] = {}
        for job in self.waiting:
            counts[job.reason] = counts.get(job.reason, 0) + 1
        text = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        return f"{len(self.waiting)} ({text})" if text else "0"

    def _waits(self) -> str:
        if self.wait_p50_seconds is None or self.wait_p95_seconds is None:
            return "none was placed"
        return f"p50 {brief(self.wait_p50_seconds)}, p95 {brief(self.wait_p95_seconds)}"

    def _audit(self) -> str:
        if not self.findings:
            return output.paint(f"clean ({self.audits} {'look' if self.audits == 1 else 'looks'})", colour="green")
        first = self.findings[0]
        text = f"{len(self.findings)} findings, the first: {first.kind} {first.subject}: {first.message}"
        return output.paint(text, colour="red")


def summarise(ended: Ended) -> Summary:
    """The summary of a campaign that is over."""
    tally = ended.tally
    standing = tally.counts()
    waits = tally.waits_seconds
    return Summary(
        jobs=tally.jobs,
        gpus=tally.device_milli // WHOLE_MILLI,
        seconds=round(ended.seconds, 1),
        placed=len(tally.placed_at),
        succeeded=standing.succeeded,
        failed=standing.failed,
        waiting=_waiting(tally),
        submitted_per_second=_rate(list(tally.submitted_at.values())),
        placed_per_second=_rate(list(tally.placed_at.values())),
        peak_allocation=round(tally.peak_ratio, 4),
        mean_allocation=round(tally.mean_ratio, 4),
        wait_p50_seconds=quantile(waits, ratio=0.5),
        wait_p95_seconds=quantile(waits, ratio=0.95),
        audits=len(ended.audits),
        findings=tuple(sorted({finding for report in ended.audits for finding in report.items})),
        problem=ended.problem,
    )


def _waiting(tally: Tally) -> list[Waiting]:
    jobs = [job for job in tally.seen.values() if is_waiting(job)]
    return [
        Waiting(name=job.metadata.name, reason=job.status.reason or "Evaluating", message=job.status.message)
        for job in sorted(jobs, key=lambda job: job.metadata.name)
    ]


def _rate(times: Sequence[float]) -> float:
    """Events a second, from the campaign's beginning to the last of them."""
    last = max(times, default=0.0)
    return round(len(times) / last, 2) if last > 0 else 0.0
