"""PodDisruptionBudgets: whose end they count, and what they let end."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.pods.disruption_budgets import covered_pods, disruptions_allowed, refusing_budget
from tests.operator_.builders import make_budget


def pod(name: str, *, phase: str = "Running", namespace: str = "team", **meta: Any) -> Pod:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": {"app": "web"}, **meta}
    return msgspec.convert({"metadata": metadata, "spec": {}, "status": {"phase": phase}}, Pod)


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        pytest.param(pod("a"), True, id="a running pod"),
        pytest.param(pod("a", phase="Succeeded"), False, id="a pod that has ended"),
        pytest.param(pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), False, id="a pod that ends anyway"),
        pytest.param(pod("known"), False, id="a pod whose end is recorded"),
        pytest.param(pod("a", namespace="lab"), False, id="a pod of another namespace"),
        pytest.param(pod("a", labels={}), False, id="a pod that the selector does not match"),
    ],
)
def test_a_budget_counts_the_ends_of_pods_that_run_on(found: Pod, counts: bool) -> None:
    budget = make_budget(app="web", disrupted=["known"])
    assert covered_pods([found], budgets=[budget]) == ({"team/web": 1} if counts else {})


def test_a_budget_that_has_just_changed_lets_nothing_end() -> None:
    budget = make_budget(allowed=3)
    changed = msgspec.structs.replace(budget, metadata=msgspec.structs.replace(budget.metadata, generation=3))
    assert disruptions_allowed([budget]) == {"team/web": 3}
    assert disruptions_allowed([changed]) == {"team/web": 0}


@pytest.mark.parametrize(("allowed", "refusing"), [(1, "web"), (2, "")])
def test_the_budget_that_refuses_is_named(allowed: int, refusing: str) -> None:
    budgets = [make_budget("other", app="none", allowed=0), make_budget(app="web", allowed=allowed)]
    assert refusing_budget([pod("a"), pod("b")], budgets=budgets) == refusing
