"""The priority that GPUQuotas allow a subject, and whether it may preempt others. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api.gpuquota import GPUQuota
from dovetail.api.reasons import queue as says
from dovetail.queue.limits.subjects import Subject, binding
from dovetail.queue.model.gate import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The highest priority that a subject may have, and the name of the GPUQuota that sets it."""

    most: int
    quota: str

    def refusal(self, priority: int, *, field: str) -> Refused | None:
        """Why the priority in `field` is above the bound; None where it is not."""
        if priority <= self.most:
            return None
        return Refused.of(says.PRIORITY_ABOVE(field=field, priority=priority, quota=self.quota, most=self.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The effective priority of a job: at most what its quotas allow."""

    priority: int
    may_preempt: bool


def bound_of(quotas: Iterable[GPUQuota], *, subject: Subject) -> Bound | None:
    """The strictest bound of the quotas that bind the subject; None where none of them sets one."""
    found = [
        Bound(most=quota.spec.max_priority, quota=quota.metadata.name)
        for quota in binding(quotas, subject=subject)
        if quota.spec.max_priority is not None
    ]
    return min(found, key=lambda bound: (bound.most, bound.quota), default=None)


def may_preempt(quotas: Iterable[GPUQuota], *, subject: Subject) -> bool:
    """Whether jobs of the subject may preempt others where preemption is on.

    Each quota can forbid it.
    """
    return not any(quota.spec.preemption_policy == "Never" for quota in binding(quotas, subject=subject))


def within(priority: int, *, bound: Bound | None) -> int:
    """The effective priority."""
    return priority if bound is None else min(priority, bound.most)
