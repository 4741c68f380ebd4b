"""What PodDisruptionBudgets let end: how many pods of each, and which pods each covers. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.meta import key_of
from dovetail.pods.topology import selects


def disruptions_allowed(budgets: Iterable[PodDisruptionBudget]) -> dict[str, int]:
    """How many pods may be ended now, by `namespace/name` of the budget.

    None of one that has changed and whose status does not show that yet, as the eviction API has it.
    """
    return {
        key_of(each.metadata): max(0, each.status.disruptions_allowed)
        if each.status.observed_generation >= each.metadata.generation
        else 0
        for each in budgets
    }


def pods_covered_by(budget: PodDisruptionBudget, *, pods: Iterable[Pod]) -> list[Pod]:
    """Those of the pods whose end the budget does not count yet: they run on, and no one has recorded that they end."""
    return [
        pod
        for pod in pods
        if pod.metadata.namespace == budget.metadata.namespace
        and not is_terminated(pod)
        and pod.metadata.deletion_timestamp is None
        and pod.metadata.name not in budget.status.disrupted_pods
        and selects(budget.spec.selector, labels=pod.metadata.labels)
    ]


def covered_pods(pods: Iterable[Pod], *, budgets: Iterable[PodDisruptionBudget]) -> Mapping[str, int]:
    """How many of the pods each budget covers, by `namespace/name` of the budget; budgets of none are left out."""
    known = list(pods)
    found = {key_of(each.metadata): len(pods_covered_by(each, pods=known)) for each in budgets}
    return {budget: count for budget, count in found.items() if count}


def refusing_budget(pods: Iterable[Pod], *, budgets: Sequence[PodDisruptionBudget]) -> str:
    """The name of the first budget that the end of all these pods would break; empty if none."""
    allowed = disruptions_allowed(budgets)
    covered = covered_pods(pods, budgets=budgets)
    return next((key.partition("/")[2] for key, count in covered.items() if count > allowed[key]), "")


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
