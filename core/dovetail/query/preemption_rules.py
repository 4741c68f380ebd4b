"""The rules of preemption and of moves as a configuration states them. Pure."""

from dovetail.config.groups import MoveRules as MovesSaid
from dovetail.config.groups import PreemptionRules
from dovetail.jobs.moves import MoveRules
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


def move_rules_of(said: MovesSaid) -> MoveRules:
    """The rules of moves that a configuration states."""
    return MoveRules(
        mode=said.mode,
        default=said.default,
        by_namespace=said.namespaces,
        after_seconds=said.after,
        patience_seconds={int(least): seconds for least, seconds in said.patience.items()},
        rest_seconds=said.rest,
        per_hour=said.per_hour,
    )
