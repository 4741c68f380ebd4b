"""PodDisruptionBudgets, listed on a scripted API server."""

from typing import Any

from dovetail.kube.client import Client
from dovetail.kube.queries.disruption_budgets import list_disruption_budgets
from tests.core.kube.api import Answer, Api, refusal

LIST = "GET /apis/policy/v1/poddisruptionbudgets"


def budget() -> dict[str, Any]:
    """As the API server has it: with fields that are not read."""
    return {
        "metadata": {"name": "web", "namespace": "team", "uid": "u", "resourceVersion": "3"},
        "spec": {
            "minAvailable": "50%",
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
        },
        "status": {"disruptionsAllowed": 2, "currentHealthy": 4, "desiredHealthy": 2, "expectedPods": 4},
    }


async def test_budgets_are_listed(api: Api, client: Client) -> None:
    api.answer(LIST, Answer(body={"metadata": {"resourceVersion": "5"}, "items": [budget()]}))
    found = await list_disruption_budgets(client)
    assert found is not None
    (each,) = found
    assert (each.metadata.name, each.status.disruptions_allowed) == ("web", 2)
    assert each.spec.selector is not None
    assert [one.key for one in each.spec.selector.match_expressions] == ["app"]


async def test_a_list_that_is_forbidden_is_none(api: Api, client: Client) -> None:
    api.answer(LIST, refusal(403))
    assert await list_disruption_budgets(client) is None
