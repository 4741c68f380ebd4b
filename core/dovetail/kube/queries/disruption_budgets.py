"""PodDisruptionBudgets, read where access is allowed."""

from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.resources import PODDISRUPTIONBUDGETS
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden


async def list_disruption_budgets(client: Client) -> list[PodDisruptionBudget] | None:
    """List the PodDisruptionBudgets of all namespaces; None where access is forbidden."""
    try:
        return list((await client.list(PODDISRUPTIONBUDGETS, as_type=PodDisruptionBudget)).items)
    except Forbidden:
        return None
