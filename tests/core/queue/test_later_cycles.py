"""What one decision leaves to the next ones: in the same cycle, and in simulated cycles at later ends."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving, Room, commit, find_room
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job, run
from tests.core.queue.growing import test_growth as growing
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import CheckedCycle

RULES = Rules(gap=10, min_run_seconds=0.0)


def test_all_that_ends_at_once_gives_its_limits_back() -> None:
    ledger, quotas = make_ledger(n=4), [make_quota("team", limit={"gpus": 2})]
    both, last = [make_job(name, "1", hours=1.0) for name in "ab"], make_job("c", "2")
    leaving = [each for job in both for each in run(ledger, job)]
    subject = Subject(namespace="team", user="ada")
    terms = {
        job.key: limits_of(quotas, subject=subject, takes=Takes(milli=round(1000 * job.gpus))) for job in (*both, last)
    }
    look = SchedulingCycle(ledger, sites={}, leaving=leaving, gate=LimitGate(terms, running=[job.key for job in both]))
    waits = look.at(last)
    assert isinstance(waits, Waits)
    assert waits.reason == "Quota"
    look.advance()
    assert isinstance(look.at(last), Admitted)


def test_a_job_that_falls_back_to_the_cpu_later_keeps_nothing_reserved() -> None:
    ledger = make_ledger(n=2)
    leaving = [*run(ledger, make_job("r", "1", hours=0.1)), *run(ledger, make_job("s", "1", hours=2.0))]
    first, second = replace(make_job("first", "2"), cpu_in_seconds=60.0), make_job("second", "1", at=1)
    look = SchedulingCycle(ledger, sites={}, leaving=leaving)
    assert isinstance(look.at(first), Waits)
    assert isinstance(look.at(second), Waits)
    look.advance()
    fallen = look.at(first)
    assert isinstance(fallen, Admitted)
    assert fallen.on_cpu
    assert isinstance(look.at(second), Admitted)


def test_an_end_before_its_limit_may_bring_the_reserved_start_forward() -> None:
    ledger = make_ledger(n=4, m=4)
    early = [with_likely_end(each, likely_seconds=100.0) for each in run(ledger, make_job("early", "2", hours=3.0))]
    leaving = [*early, *run(ledger, make_job("r", "2", hours=1.0)), *run(ledger, make_job("s", "4", hours=2.0))]
    job = make_job("first", "4")
    look = SchedulingCycle(ledger, sites={}, leaving=leaving)
    look.at(job)
    assert look.reservation is not None
    assert look.reservation.at_seconds == 2 * HOUR
    look.advance()
    look.at(job)
    assert look.reservation is not None
    assert look.reservation.at_seconds == HOUR


def with_likely_end(leaving: Leaving, *, likely_seconds: float) -> Leaving:
    return Leaving(at_seconds=leaving.at_seconds, key=leaving.key, job=leaving.job, likely_seconds=likely_seconds)


def test_the_room_of_a_second_job_for_which_others_end_is_kept_from_later_ones() -> None:
    ledger = make_ledger(m=8, n=4)
    leaving = run(ledger, make_job("firm", "8", hours=10.0))
    victim = make_job("victim", "3", priority=0)
    found = find_room(victim, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    leaving += commit(found.claims, job=victim, ledger=ledger)
    claims = tuple(claim.key for claim in found.claims)
    evictor = Evictor(running=[Running(key=victim.key, priority=0, run_seconds=1.0, claims=claims)], rules=RULES)
    waiting = [make_job("first", "8", priority=60), make_job("second", "4", priority=50), make_job("third", "1")]
    look = CheckedCycle(ledger, sites={}, leaving=leaving, evictor=evictor)
    verdicts = [look.at(job) for job in look.in_order(waiting)]
    look.end()
    assert {order.by.key for order in evictor.orders.values()} == {"uid-second"}
    assert not any(isinstance(verdict, Admitted) for verdict in verdicts)


def test_a_job_that_gets_the_room_of_others_requests_no_nodes() -> None:
    ledger, held = make_ledger(n=4), Candidate(key="held", ask=make_job("held", "4").ask, name="team/held")
    found = find_room(held, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room)
    commit(found.claims, job=held, ledger=ledger)
    claims = tuple(claim.key for claim in found.claims)
    evictor = Evictor(running=[Running(key="held", priority=0, run_seconds=1.0, claims=claims)], rules=RULES)
    job = growing.make_job("boss", "4", priority=50)
    (verdict,) = admit([job], ledger=ledger, sites={}, evictor=evictor, growth=growing.make_growth())
    assert isinstance(verdict, Waits)
    assert evictor.orders
    assert verdict.provisioning is None


def test_rooms_that_come_back_to_jobs_are_those_of_one_cycle() -> None:
    ledger = make_ledger(a=2)
    leaving = run(ledger, make_job("ends", "2", hours=1))
    claims = tuple(claim for claim in ledger.claims_on("a"))
    look = SchedulingCycle(ledger, sites={}, leaving=leaving)
    look._owed = [Reservation(job=make_job("other", "2"), at_seconds=60.0, claims=claims)]
    job = make_job("it", "2")
    assert isinstance(look.at(job), Waits)
    look.advance()
    assert isinstance(look.at(job), Admitted)


LATER_JOBS = st.tuples(
    st.sampled_from(["1", "2", "4", "0.5"]), st.sampled_from([None, 1.0, 3.0, 9.0]), st.sampled_from([10, 20])
)


@given(st.lists(LATER_JOBS, min_size=4, max_size=10), st.lists(LATER_JOBS, min_size=1, max_size=8), st.data())
@settings(deadline=None, max_examples=120)
def test_reservations_that_are_made_when_they_are_read_start_the_same_jobs(
    running: list[tuple[str, float | None, int]], waiting: list[tuple[str, float | None, int]], data: st.DataObject
) -> None:
    """The twin of a checked cycle makes each reservation at once."""
    ledger, leaving = make_ledger(a=4, b=4), []
    for number, (shape, hours, _) in enumerate(running):
        job = make_job(f"r{number}", shape, hours=hours)
        if isinstance(find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={}), Room):
            leaving += run(ledger, job)
    parts = data.draw(st.lists(st.sampled_from([0.1, 0.5, 1.0]), min_size=len(leaving), max_size=len(leaving)))
    ends = [
        with_likely_end(each, likely_seconds=part * each.at_seconds) for each, part in zip(leaving, parts, strict=True)
    ]
    jobs = [
        make_job(f"w{number}", shape, hours=hours, priority=priority, at=number)
        for number, (shape, hours, priority) in enumerate(waiting)
    ]
    look = CheckedCycle(ledger, sites={}, leaving=ends)
    left = [job for job in look.in_order(jobs) if not isinstance(look.at(job), Admitted)]
    while left and look.advance() is not None:
        left = [job for job in left if not isinstance(look.at(job), Admitted)]
    assert not left, "all ends are known, and each job fits on an empty cluster"


def test_a_simulated_cycle_makes_no_reservation_that_no_job_has_to_respect(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_ledger(n=4)
    early = [with_likely_end(each, likely_seconds=HOUR) for each in run(ledger, make_job("r", "1", hours=2.0))]
    leaving = [*early, *run(ledger, make_job("s", "3", hours=9.0))]
    waiting = [make_job("first", "4"), make_job("second", "2", at=1)]
    look = SchedulingCycle(ledger, sites={}, leaving=leaving)
    monkeypatch.setattr("dovetail.queue.cycle.reserve_around", pytest.fail)
    look.advance()
    assert not any(isinstance(look.at(job), Admitted) for job in waiting)
