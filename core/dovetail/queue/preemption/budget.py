"""The hourly budget for preemption: how many jobs may still be preempted. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.queue.preemption.policy import Rules

_HOUR: Final = timedelta(hours=1)


def rules_now(rules: Rules, *, jobs: Iterable[GPUJob], now: datetime) -> Rules:
    """The rules with `left` reduced by the preemptions of the last hour. `jobs` are all GPUJobs."""
    return replace(rules, left=max(0, rules.left - _spent(jobs, now=now))) if rules.gap else rules


def _spent(jobs: Iterable[GPUJob], *, now: datetime) -> int:
    """The number of jobs that were preempted within the last hour, or are being preempted."""
    known = [job.status.preemption for job in jobs if job.status.preemption is not None]
    recent = sum(each.last_time is not None and moment(each.last_time) > now - _HOUR for each in known)
    return recent + sum(each.at is not None for each in known)
