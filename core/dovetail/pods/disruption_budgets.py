"""What PodDisruptionBudgets let end: how many pods of each, and which pods each covers. Pure."""

from collections import Counter
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


def may_end_together(covered: Iterable[Mapping[str, int]], *, allowed: Mapping[str, int]) -> list[int]:
    """Which of these sets of pods may end together, the first ones first: their places.

    Each set is the `covered_pods` of a job. The others would break a budget of those that are `allowed`.
    """
    ended, found = Counter[str](), list[int]()
    for at, pods in enumerate(covered):
        if all(ended[budget] + count <= allowed.get(budget, 0) for budget, count in pods.items()):
            ended.update(pods)
            found.append(at)
    return found
