"""The ends of pods, recorded in their PodDisruptionBudgets as the eviction API does it."""

import pytest

from dovetail.api.conversion import values_of
from dovetail.kube.client import Client
from dovetail_operator.writes.pods import DisruptionRefusedError, record_disruption
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import make_budget, make_pod

WEB = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/web"
NOW = "2026-01-01T12:00:00Z"
POD = make_pod()


async def test_a_pod_is_taken_off_what_its_budget_allows_with_the_version_that_was_read(
    api: Api, client: Client
) -> None:
    budget = make_budget(allowed=2)
    api.answer(f"PATCH {WEB}/status", Answer(body=values_of(budget)))
    await record_disruption(client, pods=[POD], budgets=[budget, make_budget("other", app="x", allowed=0)], at=NOW)
    (seen,) = api.seen
    assert seen.body == {
        "metadata": {"uid": "uid-web", "resourceVersion": "5"},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {POD.metadata.name: NOW}},
    }


async def test_a_pod_that_is_recorded_costs_nothing(api: Api, client: Client) -> None:
    await record_disruption(client, pods=[POD], budgets=[make_budget(allowed=0, disrupted=[POD.metadata.name])], at=NOW)
    assert not api.seen


async def test_a_budget_that_allows_too_few_refuses_before_anything_is_recorded(api: Api, client: Client) -> None:
    with pytest.raises(DisruptionRefusedError, match="PodDisruptionBudget web does not let so many"):
        await record_disruption(client, pods=[POD], budgets=[make_budget("all"), make_budget(allowed=0)], at=NOW)
    assert not api.seen


@pytest.mark.parametrize(("allowed", "patches"), [(1, 2), (0, 1)])
async def test_a_budget_that_others_have_changed_is_read_again(
    api: Api, client: Client, allowed: int, patches: int
) -> None:
    newer = make_budget(allowed=allowed, version="6")
    api.answer(f"PATCH {WEB}/status", refusal(409), Answer(body=values_of(newer)))
    api.answer(f"GET {WEB}", Answer(body=values_of(newer)))
    try:
        await record_disruption(client, pods=[POD], budgets=[make_budget()], at=NOW)
    except DisruptionRefusedError:
        assert not allowed
    sent = api.of(f"PATCH {WEB}/status")
    assert [each.body["metadata"]["resourceVersion"] for each in sent] == ["5", "6"][:patches]


async def test_a_budget_that_is_deleted_refuses_nothing(api: Api, client: Client) -> None:
    api.answer(f"PATCH {WEB}/status", refusal(404))
    await record_disruption(client, pods=[POD], budgets=[make_budget()], at=NOW)


async def test_a_budget_that_changes_all_the_time_refuses(api: Api, client: Client) -> None:
    api.answer(f"PATCH {WEB}/status", *[refusal(409)] * 10)
    api.answer(f"GET {WEB}", *[Answer(body=values_of(make_budget()))] * 10)
    with pytest.raises(DisruptionRefusedError):
        await record_disruption(client, pods=[POD], budgets=[make_budget()], at=NOW)
