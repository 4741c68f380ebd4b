"""PodDisruptionBudgets: how many pods of a set may be ended on purpose. Only fields that Dovetail reads. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.pods.anti_affinity import selects
from dovetail.pods.template_types import LabelSelector


class BudgetSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose pods it covers: those of its namespace that the selector matches. Without a selector, none."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many of its pods may be ended now, by the disruption controller."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Struct, frozen=True, kw_only=True, rename="camel"):
    """A PodDisruptionBudget of policy/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def disruptions_allowed(budgets: Iterable[PodDisruptionBudget]) -> dict[str, int]:
    """How many pods may be ended now, by `namespace/name` of the budget."""
    return {key_of(each.metadata): max(0, each.status.disruptions_allowed) for each in budgets}


def covered_pods(pods: Iterable[Pod], *, budgets: Iterable[PodDisruptionBudget]) -> Mapping[str, int]:
    """How many of the pods each budget covers, by `namespace/name` of the budget; budgets of none are left out."""
    live, found = [pod for pod in pods if not is_terminated(pod)], Counter[str]()
    for each in budgets:
        found[key_of(each.metadata)] += sum(
            pod.metadata.namespace == each.metadata.namespace
            and selects(each.spec.selector, labels=pod.metadata.labels)
            for pod in live
        )
    return {budget: count for budget, count in found.items() if count}
