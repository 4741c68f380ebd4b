"""What of the hour's budget for preemption is left. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.queue.preemption.policy import Rules

_HOUR: Final = timedelta(hours=1)


def rules_now(rules: Rules, jobs: Iterable[GPUJob], *, now: datetime) -> Rules:
    """The rules with as many jobs left as may still be told to make way within the hour; `jobs` are all there are."""
    return replace(rules, left=max(0, rules.left - _spent(jobs, now=now))) if rules.gap else rules


def _spent(jobs: Iterable[GPUJob], *, now: datetime) -> int:
    """How many jobs were told to make way within the hour, or are told so now."""
    known = [job.status.preemption for job in jobs if job.status.preemption is not None]
    recent = sum(each.last_time is not None and moment(each.last_time) > now - _HOUR for each in known)
    return recent + sum(each.at is not None for each in known)
