"""Preemption keeps PodDisruptionBudgets: who may end alone, who may end together, and what has ended already."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dovetail.pods.disruption_budgets import may_end_together
from dovetail.queue.cycle import admit
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from tests.core.engine.builders import add_node, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.preemption.test_policy import start
from tests.core.queue.preemption.test_reclaim import Case, decide
from tests.core.queue.quota_tree.builders import make_quota

RULES = Rules(gap=10)


def victims(
    covered: Mapping[str, Mapping[str, int]], *, allowed: Mapping[str, int], boss: str = "4", **facts: object
) -> set[str]:
    """Who ends for a job of so many GPUs, of jobs of two GPUs each on a node of four."""
    ledger = make_ledger()
    add_node(ledger, "n", gpus=2 * len(covered))
    running: list[Running] = [
        start(ledger, make_job(name, "2"), covered_pods=pods, **facts) for name, pods in covered.items()
    ]
    evictor = Evictor(running=running, rules=RULES, allowed=allowed)
    list(admit([make_job("boss", boss, priority=50)], ledger=ledger.copy(), sites={}, evictor=evictor))
    return {key.removeprefix("uid-") for key in evictor.orders}


def test_a_job_whose_budget_lets_no_pod_end_stays() -> None:
    covered = {"a": {"team/web": 1}, "b": {}}
    assert victims(covered, allowed={"team/web": 0}, boss="2") == {"b"}
    assert victims(covered, allowed={"team/web": 0}) == set()
    assert victims(covered, allowed={"team/web": 1}) == {"a", "b"}


def test_two_jobs_of_one_budget_do_not_end_together_beyond_it() -> None:
    covered = {"a": {"team/web": 1}, "b": {"team/web": 1}, "c": {}}
    assert victims(covered, allowed={"team/web": 1}) in ({"a", "c"}, {"b", "c"})
    assert victims(covered, allowed={"team/web": 2}, boss="6") == {"a", "b", "c"}
    assert victims(covered, allowed={"team/web": 1}, boss="6") == set()


def test_many_jobs_of_one_budget_are_searched_one_by_one_too() -> None:
    """Beyond the sets that are tried one by one, victims are added until the job fits."""
    covered = {f"j{at}": {"team/web": 1} if at % 2 else {} for at in range(12)}
    found = victims(covered, allowed={"team/web": 2}, boss="16")
    assert len(found) == 8
    assert sum(bool(covered[name]) for name in found) == 2
    assert victims(covered, allowed={"team/web": 1}, boss="16") == set()


def test_a_decision_that_its_budget_no_longer_allows_is_withdrawn() -> None:
    covered = {"a": {"team/web": 1}}
    assert victims(covered, allowed={"team/web": 1}, boss="2", yields_to="uid-boss") == {"a"}
    assert victims(covered, allowed={"team/web": 0}, boss="2", yields_to="uid-boss") == set()


def test_what_is_to_end_for_one_job_counts_for_the_next() -> None:
    ledger = make_ledger()
    for node in ("m", "n"):
        add_node(ledger, node, gpus=2)
    running = [start(ledger, make_job(name, "2"), covered_pods={"team/web": 1}) for name in ("a", "b")]
    bosses = [make_job(name, "2", priority=50) for name in ("first", "second")]
    evictor = Evictor(running=[replace(each) for each in running], rules=RULES, allowed={"team/web": 1})
    list(admit(bosses, ledger=ledger.copy(), sites={}, evictor=evictor))
    assert len(evictor.orders) == 1


@pytest.mark.parametrize(("allowed", "ends"), [(0, 0), (1, 1), (2, 2)])
def test_what_comes_back_to_an_owner_keeps_budgets_too(allowed: int, ends: int) -> None:
    covered: dict[str, object] = {"covered_pods": {"lab/web": 1}}
    case = Case(
        says="two borrowers of one budget",
        quotas=(make_quota("team", guaranteed=4), make_quota("lab", guaranteed=0)),
        running=tuple((name, "lab", "2", covered) for name in "ab"),
        waiting=tuple((name, "team", "2") for name in "yz"),
        ends={},
        nodes={"n": 4},
    )
    assert len(decide(case, allowed={"lab/web": allowed})[0]) == ends


@pytest.mark.parametrize(
    ("covered", "allowed", "may"),
    [
        ([{"a": 1}, {"a": 1}, {"b": 1}], {"a": 1, "b": 1}, [0, 2]),
        ([{"a": 2}, {"a": 1}], {"a": 1}, [1]),
        ([{}, {"unknown": 1}], {}, [0]),
        ([{"a": 1, "b": 1}, {"b": 1}], {"a": 1, "b": 1}, [0]),
    ],
)
def test_the_first_ones_that_fit_their_budgets_may_end(
    covered: list[Mapping[str, int]], allowed: Mapping[str, int], may: list[int]
) -> None:
    assert may_end_together(covered, allowed=allowed) == may
