"""The rules of preemption as a configuration states them. Pure."""

from dovetail.config.groups import PreemptionRules
from dovetail.queue.preemption.policy import Rules


def rules_of(said: PreemptionRules) -> Rules:
    """The rules that a configuration states."""
    return Rules(
        gap=said.priority_gap,
        min_run_seconds=said.min_run,
        grace_seconds=said.grace,
        per_job=said.per_job,
        left=said.per_hour,
        reclaim_grace_seconds=said.reclaim_grace,
        between_quotas=said.between_quotas == "Borrowers",
    )
