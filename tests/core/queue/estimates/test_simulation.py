"""When waiting jobs are going to start."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.cycle import admit
from dovetail.queue.estimates.simulation import FORESEEN_JOBS, Start, foresee
from dovetail.queue.model.candidates import Candidate, Leaving, commit, order
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, LARGE, build, make_job, run, shapes, start_what_fits


def starts(*waiting: Candidate, ledger: Ledger, leaving: list[Leaving]) -> dict[str, Start]:
    seen = foresee(waiting, ledger=ledger.copy(), sites={}, leaving=leaving)
    return {start.key.removeprefix("uid-"): start for start in seen if start is not None}


def hours(found: dict[str, Start]) -> dict[str, float]:
    return {name: start.in_seconds / HOUR for name, start in found.items()}


def test_jobs_start_when_those_before_them_end() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "4", hours=3))
    waiting = [make_job(name, "4", hours=2, at=number) for number, name in enumerate("abc")]
    assert hours(starts(*waiting, ledger=ledger, leaving=leaving)) == {"a": 3, "b": 5, "c": 7}


def test_those_that_fit_now_are_not_foreseen_but_count() -> None:
    ledger = make_ledger(a=4)
    waiting = [make_job("now", "4", hours=2), make_job("next", "4", at=1)]
    assert hours(starts(*waiting, ledger=ledger, leaving=[])) == {"next": 2}


def test_a_short_job_is_foreseen_to_pass() -> None:
    ledger = make_ledger(a=4)
    leaving = [*run(ledger, make_job("r", "3", hours=3)), *run(ledger, make_job("s", "1", hours=1))]
    waiting = [LARGE, make_job("short", "1", hours=2, at=1), make_job("long", "1", hours=3, at=2)]
    assert hours(starts(*waiting, ledger=ledger, leaving=leaving)) == {"large": 3, "short": 1, "long": 27}


def test_a_job_is_foreseen_on_the_cpu_where_it_stops_waiting_for_gpus_and_the_next_has_its_place() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "4", hours=3))
    impatient = replace(make_job("impatient", "4", hours=2), cpu_in_seconds=HOUR)
    patient = replace(make_job("patient", "4", hours=2, at=2), cpu_in_seconds=9 * HOUR)
    found = starts(impatient, make_job("next", "4", hours=2, at=1), patient, ledger=ledger, leaving=leaving)
    assert hours(found) == {"impatient": 1, "next": 3, "patient": 5}
    assert found["impatient"].basis.message == "It runs on the CPU from then on"


def test_a_job_that_no_end_makes_room_for_has_no_estimate() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "4", hours=3))
    found = starts(make_job("huge", "8"), make_job("next", "4", at=1), ledger=ledger, leaving=leaving)
    assert hours(found) == {"next": 3}


@pytest.mark.parametrize(
    ("running", "basis"),
    [
        ([make_job("r", "4", hours=3)], "1 job has ended on a by then at the latest, by the time limits"),
        (
            [make_job("r", "2", hours=3), make_job("s", "2")],
            "2 jobs have ended on a by then, if 1 without a time limit run as long as is configured",
        ),
    ],
)
def test_the_basis_says_whose_end_is_counted_on(running: list[Candidate], basis: str) -> None:
    ledger = make_ledger(a=4)
    leaving = [each for job in running for each in run(ledger, job)]
    assert starts(LARGE, ledger=ledger, leaving=leaving)["large"].basis.message == basis


def test_the_basis_of_a_gang_counts_the_nodes() -> None:
    ledger = make_ledger(a=4, b=4)
    leaving = [each for name in "rs" for each in run(ledger, make_job(name, "4", hours=3))]
    basis = starts(replace(LARGE, workers=2), ledger=ledger, leaving=leaving)["large"].basis
    assert basis.message == "2 jobs have ended on 2 nodes by then at the latest, by the time limits"
    assert [each.code for each in basis.clauses] == ["EndedOnNodes", "ByTimeLimits"]


def test_only_the_first_jobs_are_foreseen() -> None:
    ledger = make_ledger(a=1)
    leaving = run(ledger, make_job("r", "1", hours=1))
    waiting = [make_job(f"j{number:03d}", "1", hours=1) for number in range(FORESEEN_JOBS + 5)]
    assert len(starts(*waiting, ledger=ledger, leaving=leaving)) == FORESEEN_JOBS


def played(waiting: list[Candidate], *, ledger: Ledger, leaving: list[Leaving]) -> dict[str, float]:
    """When each job starts if the queue looks at every end, knowing nothing of its looks before."""
    now, pending, started = 0.0, list(waiting), {}
    ends = {each.key: each for each in leaving}
    while True:
        left = [msgspec.structs.replace(each, at_seconds=each.at_seconds - now) for each in ends.values()]
        for verdict in list(admit(pending, ledger=ledger, sites={}, leaving=left)):
            if isinstance(verdict, Admitted):
                job = next(each for each in pending if each.key == verdict.key)
                pending.remove(job)
                started[job.key.removeprefix("uid-")] = now
                for each in commit(verdict.claims, job=job, ledger=ledger, at_seconds=now):
                    ends[each.key] = each
        if not pending or not ends:
            return started
        now = min(each.at_seconds for each in ends.values())
        for each in [each for each in ends.values() if each.at_seconds <= now]:
            ledger.release(ends.pop(each.key).key)


# Hours, so few that no two ends are close to each other for how far away they are.
kept_to = st.lists(st.tuples(shapes, st.integers(1, 2), st.integers(1, 3), st.integers(0, 2)), max_size=9)


@settings(max_examples=80, deadline=None)
@given(kept_to, kept_to, st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
def test_the_first_that_waits_starts_as_foreseen_when_all_keep_to_their_limits_and_the_others_start_too(
    running: list[tuple[str, int, int, int]], waiting: list[tuple[str, int, int, int]], nodes: list[int]
) -> None:
    ledger = make_ledger(**{f"n{number}": gpus for number, gpus in enumerate(nodes)})
    leaving = start_what_fits(build(running, prefix="r"), ledger=ledger)
    jobs = build(waiting, prefix="w")
    expected = played(jobs, ledger=ledger.copy(), leaving=leaving)
    foreseen = {name: start.in_seconds for name, start in starts(*jobs, ledger=ledger, leaving=leaving).items()}
    waits = [job.key.removeprefix("uid-") for job in order(jobs) if expected.get(job.key.removeprefix("uid-"), 0) > 0]
    assert set(foreseen) == set(waits)
    assert [foreseen[name] for name in waits[:1]] == [expected[name] for name in waits[:1]]
