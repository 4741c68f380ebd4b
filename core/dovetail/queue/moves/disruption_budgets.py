"""What PodDisruptionBudgets let end: how many pods of each, and which pods each covers. Pure."""

from collections.abc import Iterable, Mapping

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.meta import key_of
from dovetail.pods.topology import selects


def disruptions_allowed(budgets: Iterable[PodDisruptionBudget]) -> dict[str, int]:
    """How many pods may be ended now, by `namespace/name` of the budget."""
    return {key_of(each.metadata): max(0, each.status.disruptions_allowed) for each in budgets}


def covered_pods(pods: Iterable[Pod], *, budgets: Iterable[PodDisruptionBudget]) -> Mapping[str, int]:
    """How many of the pods each budget covers, by `namespace/name` of the budget; budgets of none are left out."""
    live = [pod for pod in pods if not is_terminated(pod)]
    found = {
        key_of(each.metadata): sum(
            pod.metadata.namespace == each.metadata.namespace
            and selects(each.spec.selector, labels=pod.metadata.labels)
            for pod in live
        )
        for each in budgets
    }
    return {budget: count for budget, count in found.items() if count}
