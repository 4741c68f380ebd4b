"""Whom a preemption evicts, rule by rule. No process, no HTTP."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.builtin import LabelSelector
from dovetail.api.disruption_budget import BudgetSpec, BudgetStatus, PodDisruptionBudget
from dovetail.api.meta import ObjectMeta
from dovetail_extender.decide.preempt import ENOUGH
from tests.extender.builders import make_pod, make_share
from tests.extender.desk import Desk


def on(desk: Desk, node: str, name: str, gpu: int = 4, *, priority: int = 0, start: str = "", **meta: Any) -> None:
    """A pod that holds so many whole devices of the node."""
    pod = make_pod(name, str(gpu), milli=1000 * gpu, priority=priority)
    if start:
        pod["status"] |= {"startTime": start}
    desk.bind(pod, node)
    claim = desk.ledger.claim(f"uid-{name}")
    desk.put(pod, node=node, phase="Running", **meta)
    assert claim is not None
    desk.ledger.commit(claim)


def urgent(gpu: int = 4, *, priority: int = 100) -> dict[str, Any]:
    return make_pod("urgent", str(gpu), milli=1000 * gpu, priority=priority)


@pytest.mark.parametrize(
    ("first", "second", "victim"),
    [
        pytest.param({"priority": 1}, {"priority": 2}, "first", id="the less important leaves"),
        pytest.param({"priority": 2}, {"priority": 1}, "second", id="the less important leaves, in either order"),
        pytest.param(
            {"start": "2026-01-01T00:00:00Z"}, {"start": "2026-01-02T00:00:00Z"}, "second", id="the younger leaves"
        ),
        pytest.param({"start": "2026-01-01T00:00:00Z"}, {}, "second", id="one that has not started leaves"),
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:00Z", "priority": 9},
            {},
            "first",
            id="one that leaves anyway leaves",
        ),
    ],
)
def test_of_two_that_hold_a_node_one_leaves(first: dict[str, Any], second: dict[str, Any], victim: str) -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", **first)
    on(desk, "a", "second", **second)
    assert desk.preempt(urgent(), a=[]) == {"a": [victim]}


def test_one_that_kube_scheduler_picked_leaves_before_one_that_is_less_important() -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", priority=1)
    on(desk, "a", "second", priority=2)
    assert desk.preempt(urgent(), a=["second"]) == {"a": ["second"]}


@pytest.mark.parametrize(("priority", "victims"), [(101, {}), (100, {}), (99, {"a": ["first"]})])
def test_only_a_lower_priority_is_evicted(priority: int, victims: dict[str, list[str]]) -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", 8, priority=priority)
    assert desk.preempt(urgent(), a=["first"]) == victims


def test_a_pod_without_devices_leaves_only_where_it_was_picked() -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", 8)
    plain = make_pod("plain", limits={"cpu": "1"})
    desk.put(plain, node="a", phase="Running")
    assert desk.preempt(urgent(), a=["first"]) == {"a": ["first"]}
    desk.clock.now += 60
    assert sorted(desk.preempt(urgent(), a=["first", "plain"])["a"]) == ["first", "plain"]


def budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    selector = LabelSelector(match_labels=labels)
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=BudgetSpec(selector=selector),
        status=BudgetStatus(disruptions_allowed=allowed),
    )


WEB: dict[str, Any] = {"labels": {"app": "web"}}


@pytest.mark.parametrize(
    ("allowed", "gpus", "victims"),
    [
        pytest.param(0, 2, {"b"}, id="one whose budget lets no pod end stays, although it comes first"),
        pytest.param(1, 2, {"a"}, id="one whose budget lets it end leaves"),
        pytest.param(1, 4, {"b", "a"}, id="one of two that one budget covers leaves"),
        pytest.param(1, 6, None, id="where only both would do, the node is left out"),
        pytest.param(2, 6, {"a", "b", "c"}, id="both leave where both may"),
    ],
)
def test_victims_are_within_their_budgets(allowed: int, gpus: int, victims: set[str] | None) -> None:
    desk = Desk(a=6)
    on(desk, "a", "a", 2, **WEB)
    on(desk, "a", "c", 2, priority=1, **WEB)
    on(desk, "a", "b", 2, priority=2)
    desk.budgets.append(budget(allowed, app="web"))
    found = desk.preempt(urgent(gpus), a=["a", "c"]).get("a")
    assert (None if found is None else set(found)) == victims


def test_one_that_leaves_already_costs_its_budget_nothing() -> None:
    desk = Desk(a=4)
    on(desk, "a", "a", 4, deletionTimestamp="2026-01-01T00:00:00Z", **WEB)
    desk.budgets.append(budget(0, app="web"))
    assert desk.preempt(urgent(4), a=["a"]) == {"a": ["a"]}


def test_a_node_on_which_all_leaving_is_not_enough_is_left_out() -> None:
    desk = Desk(a=8, b=8)
    on(desk, "a", "low", 4)
    on(desk, "a", "high", 4, priority=100)
    on(desk, "b", "other", 8)
    assert desk.preempt(urgent(8), a=["low"], b=["other"]) == {"b": ["other"]}


def test_a_question_changes_no_promise() -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", 8)
    before = {claim.key: claim for claim in desk.ledger.claims()}
    desk.preempt(urgent(), a=["first"])
    assert {claim.key: claim for claim in desk.ledger.claims()} == before


def test_at_most_thirty_two_nodes_are_answered_with() -> None:
    nodes = [f"n{at:02}" for at in range(ENOUGH + 2)]
    desk = Desk(**dict.fromkeys(nodes, 1))
    for node in nodes:
        on(desk, node, node, 1)
    # The node with two victims of kube-scheduler's costs more than the others.
    picked = {node: [node] for node in nodes} | {"n00": ["n00", "x"]}
    found = desk.preempt(urgent(1), **picked)
    assert len(found) == ENOUGH == 32
    assert "n00" not in found


def test_shares_leave_from_the_device_that_comes_free_with_the_fewest() -> None:
    desk = Desk(a=1)
    for name, milli in (("half", 500), ("fifth", 200)):
        pod = make_share(name, milli)
        desk.bind(pod, "a")
        claim = desk.ledger.claim(f"uid-{name}")
        desk.put(pod, node="a", phase="Running")
        assert claim is not None
        desk.ledger.commit(claim)
    urgent_share = make_share("urgent", 400, priority=100)
    assert desk.preempt(urgent_share, a=["half"]) == {"a": ["half"]}


def test_a_pod_that_asks_nothing_of_ours_evicts_nobody() -> None:
    desk = Desk(a=8)
    on(desk, "a", "first", 8)
    assert desk.preempt(make_pod("urgent", limits={"cpu": "1"}, priority=100), a=["first"]) == {}
    broken = urgent()
    broken["metadata"]["annotations"] = {names.REQUEST: "1X"}
    assert desk.preempt(broken, a=["first"]) == {}
