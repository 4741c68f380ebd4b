"""Whose turn it is to search for victims, over several cycles."""

from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.negative_cache import SearchTurns
from tests.core.engine.builders import make_ask

KEPT = Reservation(job=Candidate(key="large", ask=make_ask("8")), at_seconds=60, claims=())


def test_who_has_searched_waits_until_all_that_missed_their_turn_had_it() -> None:
    turns = SearchTurns()
    turns.failed("first")
    assert turns.may_search("first"), "so far no job has missed its turn"
    turns.end_cycle(missed=True, skipped=False)
    assert [turns.may_search(job) for job in ("first", "second")] == [False, True]
    turns.failed("second")
    turns.end_cycle(missed=True, skipped=True)
    assert [turns.may_search(job) for job in ("first", "second", "third")] == [False, False, True]
    turns.end_cycle(missed=False, skipped=True)
    assert [turns.may_search(job) for job in ("first", "second", "third")] == [True, True, True]


def test_another_cycle_is_due_as_long_as_a_job_has_missed_or_skipped_its_turn() -> None:
    turns = SearchTurns()
    assert not turns.is_behind
    for missed, skipped, behind in ((True, False, True), (False, True, True), (False, False, False)):
        turns.end_cycle(missed=missed, skipped=skipped)
        assert turns.is_behind == behind


def test_what_the_last_search_found_is_known_for_this_round_and_the_next_one() -> None:
    turns = SearchTurns()
    turns.failed("x", kept=KEPT)
    for _ in range(3):
        assert (turns.has_failed("x"), turns.kept_back("x")) == (True, KEPT)
        turns.end_cycle(missed=True, skipped=False)
    turns.end_cycle(missed=False, skipped=False)
    assert (turns.has_failed("x"), turns.kept_back("x")) == (True, KEPT)
    turns.failed("x")
    assert turns.kept_back("x") is None, "its later search was kept from nothing"
    turns.end_cycle(missed=False, skipped=False)
    assert turns.has_failed("x")
    turns.end_cycle(missed=False, skipped=False)
    assert (turns.has_failed("x"), turns.kept_back("x")) == (False, None)
