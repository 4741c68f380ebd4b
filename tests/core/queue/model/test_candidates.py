"""Jobs as the queue sees them: their order, their shapes, the ends of what they are given."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.engine.model.claims import Ask
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.model.candidates import (
    Candidate,
    ClaimCache,
    Leaving,
    NoRoom,
    Room,
    claim_on_the_way,
    commit,
    find_room,
    helps,
    order,
)
from tests.core.engine.builders import hold_devices, make_ask, make_ledger


def make_job(name: str = "j", gpu: str = "1", **facts: Any) -> Candidate:
    return Candidate(key=f"uid-{name}", ask=make_ask(gpu), name=name, **facts)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 2, "share": 9.0, "created": "2026-02"}, {"priority": 1, "share": 0.0, "created": "2026-01"}),
        ({"share": 0.5, "created": "2026-02"}, {"share": 1.0, "created": "2026-01"}),
        ({"created": "2026-01", "number": 9}, {"created": "2026-02", "number": 1}),
        ({"created": "2026-01", "number": 1, "name": "z"}, {"created": "2026-01", "number": 2, "name": "a"}),
        ({"number": 1, "name": "a", "key": "z"}, {"number": 1, "name": "b", "key": "a"}),
        ({"name": "a", "key": "a"}, {"name": "a", "key": "b"}),
    ],
    ids=["the higher priority", "the smaller share", "the older", "the smaller number", "the name", "the key"],
)
def test_what_decides_the_order_and_only_then_what_comes_after_it(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    one, other = (replace(make_job(), **facts) for facts in (first, second))
    assert order([other, one]) == order([one, other]) == (one, other)


@pytest.mark.parametrize(("gpu", "workers", "gpus"), [("2", 3, 6.0), ("0.25", 2, 0.5), ("2x0.5", 1, 1.0)])
def test_a_share_counts_as_such_and_every_worker_counts(gpu: str, workers: int, gpus: float) -> None:
    assert make_job(gpu=gpu, workers=workers).gpus == gpus
    assert replace(make_job(workers=workers), ask=Ask(gpu=None)).gpus == 0.0


@pytest.mark.parametrize(
    "other",
    [
        {"ask": make_ask("2")},
        {"others": (make_ask("2"),)},
        {"workers": 2},
        {"least": 1},
        {"site": "elsewhere"},
    ],
    ids=["what is asked", "another way", "the workers", "the fewest workers", "the site"],
)
def test_jobs_of_one_shape_ask_the_same_of_the_same_nodes(other: dict[str, Any]) -> None:
    job = make_job()
    assert job.shape is make_job("k", priority=5, created="2026-01", run_seconds=1.0).shape
    assert job.shape is not replace(make_job("k"), **other).shape


def test_an_end_is_expected_when_it_is_likely_and_else_when_it_is_due() -> None:
    end = Leaving(at_seconds=90.0, key="c", job="j")
    assert end.expected_seconds == 90.0
    assert Leaving(at_seconds=90.0, key="c", job="j", likely_seconds=30.0).expected_seconds == 30.0
    assert Leaving(at_seconds=90.0, key="c", job="j", likely_seconds=0.0).expected_seconds == 0.0


def test_what_a_job_holds_ends_after_its_run_time_counted_from_its_start() -> None:
    job = make_job(gpu="2", run_seconds=100.0, limited=True, likely_seconds=40.0, likely_range=(10.0, 70.0))
    ledger = make_ledger(a=4)
    found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    (end,) = commit(found.claims, job=job, ledger=ledger, at_seconds=1000.0)
    assert (end.at_seconds, end.likely_seconds, end.likely_range) == (1100.0, 1040.0, (1010.0, 1070.0))
    assert (end.key, end.job, end.assumed) == ("uid-j/0", "uid-j", False)
    assert ledger.claim("uid-j/0") is not None


def test_the_end_of_a_job_without_a_limit_is_a_guess() -> None:
    ledger = make_ledger(a=4)
    job = make_job(run_seconds=100.0)
    found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    (end,) = commit(found.claims, job=job, ledger=ledger)
    assert (end.at_seconds, end.assumed, end.likely_seconds, end.likely_range) == (100.0, True, None, None)


# --- where there is room ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "helped"),
    [({"b"}, True), ({"a"}, False), ({"a", "b"}, True), ({"c"}, False), (set(), False)],
    ids=["a node with room", "a full one", "one of both", "a node of another site", "none"],
)
def test_a_node_that_was_freed_helps_a_job_that_may_go_there(nodes: set[str], helped: bool) -> None:
    ledger = make_ledger(a=1, b=1, c=1)
    hold_devices(ledger, "a", 0)
    job = make_job(site="ab")
    assert helps(job, nodes=nodes, fit_cache=FitCache(ledger), sites={"ab": ["a", "b"]}, ledger=ledger) is helped


def test_a_node_helps_a_job_in_any_of_its_ways() -> None:
    ledger = make_ledger(a=1)
    job = replace(make_job(gpu="4"), others=(make_ask("1"),))
    assert helps(job, nodes=["a"], fit_cache=FitCache(ledger), sites={}, ledger=ledger)
    assert not helps(replace(job, others=()), nodes=["a"], fit_cache=FitCache(ledger), sites={}, ledger=ledger)


def test_an_elastic_job_has_room_for_as_many_workers_as_fit() -> None:
    ledger = make_ledger(a=2, b=1)
    found = find_room(make_job(workers=5, least=2), ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    assert len(found.claims) == 3
    assert isinstance(
        find_room(make_job(workers=5, least=4), ledger=ledger, fit_cache=FitCache(ledger), sites={}), NoRoom
    )


# --- workers that are on their way -----------------------------------------------------------------------------------


def test_workers_without_a_plan_claim_what_they_can_and_no_more() -> None:
    ledger = make_ledger(a=2)
    claimed = claim_on_the_way([make_job(workers=3)], ledger=ledger, sites={})
    assert len(claimed.leaving) == len(ledger.claims()) == 2
    assert (claimed.lost, claimed.late) == ({}, set())


def test_a_job_without_gpus_claims_nothing_on_its_way() -> None:
    ledger = make_ledger(a=2)
    job = replace(make_job(nodes=("a",)), ask=Ask(gpu=None, cpu_milli=1000))
    assert claim_on_the_way([job, replace(job, nodes=())], ledger=ledger, sites={}).leaving == []
    assert ledger.claims() == []


def planned(name: str, *nodes: str) -> Candidate:
    return make_job(name, nodes=nodes, workers=len(nodes))


def test_the_first_in_order_gets_what_two_plans_count_on() -> None:
    ledger = make_ledger(a=1)
    jobs = [planned("late", "a"), replace(planned("early", "a"), priority=5)]
    claimed = claim_on_the_way(jobs, ledger=ledger, sites={})
    assert claimed.lost == {"uid-late": "a"}
    assert [each.job for each in claimed.leaving] == ["uid-early"]


def test_those_who_are_going_stay_in_the_ledger_until_they_are_gone() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="going")
    claimed = claim_on_the_way([planned("j", "a")], ledger=ledger, sites={}, going=["going"])
    assert claimed.late == {"uid-j"}
    assert {claim.key for claim in ledger.claims()} == {"going", "uid-j/0"}


def test_a_plan_that_is_late_or_lost_is_looked_for_once_more_in_the_next_look() -> None:
    """Only what every worker of a node was given for good is kept from look to look."""
    for going, lost in ((["going"], {}), ([], {"uid-j": "a"})):
        ledger = make_ledger(a=1)
        hold_devices(ledger, "a", 0, key="going")
        standing = ClaimCache(lambda _node: 1)
        claim_on_the_way([planned("j", "a")], ledger=ledger.copy(), sites={}, going=going, standing=standing)
        again = claim_on_the_way([planned("j", "a")], ledger=ledger.copy(), sites={}, going=going, standing=standing)
        assert again.lost == lost
        assert again.late == ({"uid-j"} if going else set())


def test_what_is_kept_of_a_node_is_forgotten_when_nobody_is_planned_there_any_more() -> None:
    asked: list[str] = []

    class Asked(ClaimCache):
        def keep(self, node: str, workers: Any, claims: Any) -> None:
            asked.append(node)
            super().keep(node, workers=workers, claims=claims)

    standing = Asked(lambda _node: 1)
    ledger = make_ledger(a=1, b=1)
    for jobs in ([planned("j", "a", "b")], [planned("j", "a", "b")], [planned("k", "b")], [planned("j", "a")]):
        claim_on_the_way(jobs, ledger=ledger.copy(), sites={}, standing=standing)
    assert asked == ["a", "b", "b", "a"]
