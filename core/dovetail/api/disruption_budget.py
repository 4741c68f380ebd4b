"""PodDisruptionBudget of policy/v1: how many pods of a set may be ended on purpose. Only what is read. Data only."""

from dovetail.api.builtin import LabelSelector
from dovetail.api.meta import Described, ObjectMeta


class BudgetSpec(Described, frozen=True, kw_only=True):
    """Whose pods it covers: those of its namespace that the selector matches. Without a selector, none."""

    selector: LabelSelector | None = None


class BudgetStatus(Described, frozen=True, kw_only=True):
    """How many of its pods may be ended now, by the disruption controller.

    `disrupted_pods` are the names of those that are about to end and are counted already, with the time.
    `observed_generation` is the spec that all of this follows from.
    """

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}
    observed_generation: int = 0


class PodDisruptionBudget(Described, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
