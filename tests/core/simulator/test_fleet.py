"""Several clusters that are played over time."""

from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.model.candidates import Candidate
from dovetail.simulator import fleet, queue_replay
from dovetail.simulator.dispatch import EarliestStart, first_to_admit, least_loaded, to_home
from dovetail.simulator.fleet import Arrival, Dispatcher, Started
from dovetail.simulator.queue_replay import Submission, easy_backfill
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job

DISPATCHERS: dict[str, Dispatcher] = {
    "to home": to_home,
    "least loaded": least_loaded,
    "earliest start": EarliestStart(),
    "first to admit": first_to_admit,
}


def arrive(job: Candidate, *, home: str = "east", data: Sequence[str] = (), at: float = 0, ran: float = 1) -> Arrival:
    submission = Submission(job=job, at_seconds=at * HOUR, ran_seconds=ran * HOUR)
    return Arrival(submission=submission, home=home, data=tuple(data))


def played(arrivals: Sequence[Arrival], *, dispatch: Dispatcher, **clusters: int) -> dict[str, tuple[str, float]]:
    """Cluster and hour of each start; each cluster has one node of so many GPUs."""
    ledgers = {name: make_ledger(**{f"{name}-0": gpus}) for name, gpus in clusters.items()}
    started = fleet.play(arrivals, ledgers=ledgers, dispatch=dispatch)
    return {key.removeprefix("uid-"): (each.cluster, each.at_seconds / HOUR) for key, each in started.items()}


FULL_EAST = [arrive(make_job("a", "4", hours=3), ran=3), arrive(make_job("b", "4", hours=3, at=1), at=0.5)]


@pytest.mark.parametrize(
    ("dispatch", "b"),
    [("to home", ("east", 3)), ("least loaded", ("west", 0.5)), ("earliest start", ("west", 0.5))],
)
def test_a_job_whose_home_is_full_starts_elsewhere_if_a_dispatcher_chooses(dispatch: str, b: tuple[str, float]) -> None:
    assert played(FULL_EAST, dispatch=DISPATCHERS[dispatch], east=4, west=4) == {"a": ("east", 0), "b": b}


def test_of_many_queues_the_first_that_admits_runs_the_job_and_the_others_lose_it() -> None:
    jobs = [
        arrive(make_job("east", "4", hours=9), data=["east"], ran=2),
        arrive(make_job("west", "4", hours=9), data=["west"], ran=5),
        arrive(make_job("either", "4", hours=1, at=1), at=1, ran=1),
        arrive(make_job("next", "4", hours=1, at=2), at=1, data=["west"], ran=1),
    ]
    found = played(jobs, dispatch=first_to_admit, east=4, west=4)
    assert found["either"] == ("east", 2)
    # It was behind the other in the queue of the west, until the east ran that one.
    assert found["next"] == ("west", 5)


def test_least_loaded_counts_what_waits_and_earliest_start_how_long_it_takes() -> None:
    jobs = [
        arrive(make_job("long", "4", hours=9), data=["east"], ran=9),
        arrive(make_job("short-1", "4", hours=1), data=["west"], ran=1),
        arrive(make_job("short-2", "4", hours=1, at=1), data=["west"], ran=1),
        arrive(make_job("x", "4", hours=1, at=2), at=0.5),
    ]
    assert played(jobs, dispatch=least_loaded, east=4, west=4)["x"] == ("east", 9)
    assert played(jobs, dispatch=EarliestStart(), east=4, west=4)["x"] == ("west", 2)


def test_learned_run_times_change_the_choice() -> None:
    jobs = [
        arrive(make_job("overstated", "4", hours=9), data=["east"], ran=1),
        arrive(make_job("honest", "4", hours=4), data=["west"], ran=4),
        arrive(make_job("x", "4", hours=1, at=1), at=0.5),
    ]
    known = EarliestStart(ran=lambda job, _so_far: HOUR if "overstated" in job.name else job.run_seconds)
    assert played(jobs, dispatch=EarliestStart(), east=4, west=4)["x"] == ("west", 4)
    assert played(jobs, dispatch=known, east=4, west=4)["x"] == ("east", 1)


@pytest.mark.parametrize("dispatch", ["least loaded", "earliest start", "first to admit"])
def test_no_cluster_gets_a_job_that_is_too_large_for_it(dispatch: str) -> None:
    jobs = [arrive(make_job("fills", "8", hours=2), ran=2), arrive(make_job("large", "8", hours=1, at=1), at=1)]
    assert played(jobs, dispatch=DISPATCHERS[dispatch], east=8, west=4)["large"] == ("east", 2)


@pytest.mark.parametrize("dispatch", DISPATCHERS)
def test_what_no_cluster_can_run_never_starts(dispatch: str) -> None:
    assert played([arrive(make_job("x", "9"))], dispatch=DISPATCHERS[dispatch], east=8, west=8) == {}


def test_a_long_queue_has_no_estimate_and_loses_against_one_that_has() -> None:
    waiting = [arrive(make_job(f"{at:03d}", "4", hours=1), data=["east"]) for at in range(102)]
    x = arrive(make_job("x", "4", hours=1, at=1), at=0.5)
    blocks = arrive(make_job("blocks", "4", hours=200), data=["west"], ran=200)
    assert played([*waiting, blocks, x], dispatch=EarliestStart(), east=4, west=4)["x"] == ("west", 200)


def as_one(arrivals: Sequence[Arrival], *, ledgers: Mapping[str, dict[str, int]]) -> dict[str, float]:
    """Hour of each start in one queue over clusters with these nodes."""
    jobs, ledger, sites = fleet.one_cluster(
        arrivals, ledgers={name: make_ledger(**nodes) for name, nodes in ledgers.items()}
    )
    policy = partial(easy_backfill, sites=sites)
    starts = queue_replay.play([each.submission for each in jobs], ledger=ledger, policy=policy)
    return {key.removeprefix("uid-"): at / HOUR for key, at in starts.items()}


def test_one_queue_starts_a_job_wherever_there_is_room() -> None:
    assert as_one(FULL_EAST, ledgers={"east": {"e0": 4}, "west": {"w0": 4}}) == {"a": 0, "b": 0.5}


def test_one_queue_keeps_a_gang_within_one_cluster() -> None:
    gang = arrive(make_job("gang", "8", workers=2, hours=1))
    assert as_one([gang], ledgers={"east": {"e0": 8}, "west": {"w0": 8}}) == {}
    assert as_one([gang], ledgers={"east": {"e0": 8}, "west": {"w0": 8, "w1": 8}}) == {"gang": 0}


def test_one_queue_keeps_a_job_where_its_data_is() -> None:
    jobs = [
        arrive(make_job("a", "4", hours=3), data=["east"], ran=3),
        arrive(make_job("b", "4", hours=3, at=1), data=["east"], at=0.5),
        arrive(make_job("c", "4", hours=3, at=2), at=0.5),
    ]
    assert as_one(jobs, ledgers={"east": {"e0": 4}, "west": {"w0": 4}}) == {"a": 0, "b": 3, "c": 0.5}


def test_runs_are_announced_when_they_end() -> None:
    ended: list[str] = []
    fleet.play(
        [arrive(make_job("late"), ran=2), arrive(make_job("early"), ran=1)],
        ledgers={"east": make_ledger(n=8)},
        dispatch=to_home,
        ended=lambda run: ended.append(run.of.job.name),
    )
    assert ended == ["team/early", "team/late"]


@settings(max_examples=25, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from(["1", "2", "4"]),
            st.sampled_from([1, 2]),
            st.integers(1, 6),
            st.integers(0, 6),
            st.sampled_from([(), ("east",), ("west",)]),
        ),
        max_size=12,
    ),
    dispatch=st.sampled_from(sorted(DISPATCHERS)),
)
def test_each_job_runs_once_on_one_cluster_that_has_its_data_and_room(
    drawn: list[tuple[str, int, int, int, tuple[str, ...]]], dispatch: str
) -> None:
    arrivals = [
        arrive(make_job(f"{at:02d}", gpu, workers=workers, hours=hours), at=begin, ran=hours, data=data)
        for at, (gpu, workers, hours, begin, data) in enumerate(drawn)
    ]
    if dispatch == "to home":
        arrivals = [arrive(each.submission.job, at=each.submission.at_seconds / HOUR) for each in arrivals]
    ledgers = {"east": make_ledger(e0=4, e1=4), "west": make_ledger(w0=4, w1=4)}
    started = fleet.play(arrivals, ledgers=ledgers, dispatch=DISPATCHERS[dispatch])
    assert started.keys() == {each.key for each in arrivals}
    for each in arrivals:
        start = started[each.key]
        assert each.may_use(start.cluster)
        assert start.at_seconds >= each.submission.at_seconds
        assert held(arrivals, started=started, at=start) <= 8


def held(arrivals: Sequence[Arrival], *, started: Mapping[str, Started], at: Started) -> float:
    """The GPUs that jobs hold on the cluster of a start, right after it."""
    runs = [(each.submission, started[each.key]) for each in arrivals]
    return sum(
        submission.job.gpus
        for submission, start in runs
        if start.cluster == at.cluster and start.at_seconds <= at.at_seconds < start.at_seconds + submission.ran_seconds
    )
