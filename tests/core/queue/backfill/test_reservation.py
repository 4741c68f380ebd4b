"""When the first job that does not fit is going to start, and what has to stay free for it until then."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.devices import AllocatedDevice
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.reservation import Reservation, beyond, kept_now, reserve
from dovetail.queue.backfill.residual import ResidualCapacity
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job, run


@pytest.mark.parametrize("gpus", range(1, 9))
def test_a_job_starts_with_the_end_that_makes_room_for_all_of_it(gpus: int) -> None:
    """Eight jobs of one GPU each end hour by hour: the job of k GPUs starts when the k-th has ended."""
    ledger = make_ledger(a=8)
    leaving = [end for hour in range(1, 9) for end in run(ledger, make_job(f"r{hour}", "1", hours=hour))]
    found = reserve(make_job("x", str(gpus)), ledger=ledger, sites={}, leaving=leaving)
    assert found is not None
    assert (found.at_seconds, found.devices) == (gpus * HOUR, gpus)
    assert ledger.totals().promised_milli == 8000, "the ledger is as before"


def test_no_end_makes_room_for_more_than_all_that_end() -> None:
    ledger = make_ledger(a=8)
    run(ledger, make_job("stays", "1"))
    leaving = run(ledger, make_job("r", "2", hours=1))
    assert reserve(make_job("x", "8"), ledger=ledger, sites={}, leaving=leaving) is None
    assert reserve(make_job("x", "8"), ledger=ledger, sites={}, leaving=[]) is None


def test_whom_devices_are_kept_for_is_said_in_its_namespace_alone() -> None:
    ledger = make_ledger(a=1)
    found = reserve(make_job("large"), ledger=ledger, sites={}, leaving=run(ledger, make_job("r", hours=1)))
    assert found is not None
    others = [replace(make_job("a"), name=name) for name in ("team/a", "team-b/a", "tea/a", "b/team")]
    assert ["large" in str(found.words_for(each)) for each in others] == [True, False, False, False]


SHAPES = ["1", "2", "3", "4", "0.5", "0.3", "2x4G,0.5"]


@st.composite
def full_clusters(draw: st.DrawFn) -> tuple[Ledger, list[Leaving]]:
    """Two nodes with as many jobs as fit, and their ends in any order; some stay."""
    ledger, leaving = make_ledger(a=4, b=3), []
    for number, shape in enumerate(draw(st.lists(st.sampled_from(SHAPES), min_size=3, max_size=12))):
        job = make_job(f"r{number}", shape, hours=draw(st.integers(1, 6)))
        if isinstance(find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={}), Room):
            ends = run(ledger, job)
            leaving += ends if draw(st.integers(0, 9)) else []
    return ledger, leaving


def is_room_after(count: int, *, job: Candidate, ledger: Ledger, leaving: Sequence[Leaving], sites: Sites) -> bool:
    later = ledger.copy()
    for end in sorted(leaving)[:count]:
        later.release(end.key)
    return isinstance(find_room(job, ledger=later, fit_cache=FitCache(later), sites=sites), Room)


@given(full_clusters(), st.sampled_from(SHAPES), st.integers(1, 3), st.sampled_from(["", "b"]), st.booleans())
@settings(deadline=None, max_examples=150)
def test_the_earliest_start_is_that_of_a_search_end_by_end(
    cluster: tuple[Ledger, list[Leaving]], shape: str, workers: int, site: str, has_another: bool
) -> None:
    """Counts of free devices only say where the search begins."""
    (ledger, leaving), sites = cluster, {"b": ["b"]}
    job = make_job("x", shape, workers=workers, site=site)
    job = replace(job, others=(make_ask("1"),) if has_another else ())
    if is_room_after(0, job=job, ledger=ledger, leaving=leaving, sites=sites):
        return
    found = reserve(job, ledger=ledger, sites=sites, leaving=leaving)
    counts = range(1, len(leaving) + 1)
    first = next(
        (each for each in counts if is_room_after(each, job=job, ledger=ledger, leaving=leaving, sites=sites)), None
    )
    assert (found and found.at_seconds) == (None if first is None else sorted(leaving)[first - 1].at_seconds)


def test_a_reservation_for_whole_gpus_takes_one_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_ledger(a=8, b=8)
    leaving = [end for hour in range(1, 17) for end in run(ledger, make_job(f"r{hour}", "1", hours=hour))]
    placements = []
    monkeypatch.setattr(
        "dovetail.queue.backfill.reservation.find_room",
        lambda *args, **more: placements.append(1) or find_room(*args, **more),
    )
    found = reserve(make_job("x", "8"), ledger=ledger, sites={}, leaving=leaving)
    assert found is not None
    assert len(placements) == 1


def share(*amounts: int, memory_mib: int = 0, key: str = "c", **facts: int) -> Claim:
    """A claim on devices d0, d1, … of node a."""
    devices = tuple(
        AllocatedDevice(index=at, uuid=f"d{at}", share_milli=milli, memory_mib=memory_mib)
        for at, milli in enumerate(amounts)
    )
    return Claim(key=key, node="a", mode="Fractional", devices=devices, **facts)


@pytest.mark.parametrize(
    ("wanted", "given", "left"),
    [
        (share(500), [], share(500)),
        (share(500), [share(300, key="g")], share(200)),
        (share(500), [share(500, key="g")], share()),
        (share(500), [share(900, key="g")], share()),
        (share(0, memory_mib=512), [share(0, memory_mib=200, key="g")], share(0, memory_mib=312)),
        (share(cpu_milli=800, memory_mib=0), [share(cpu_milli=300, key="g")], share(cpu_milli=500)),
        (share(unnamed=3), [share(unnamed=2, key="g")], share(unnamed=1)),
        (share(500), [replace(share(500, key="g"), node="b", devices=())], share(500)),
    ],
    ids=[
        "nothing is given back", "a part", "all of it", "more than all of it", "memory", "CPU",
        "devices of a vendor\'s node", "another node\'s",
    ],
)  # fmt: skip
def test_what_is_not_given_back_has_to_stay_free(wanted: Claim, given: list[Claim], left: Claim) -> None:
    assert beyond([wanted], given=given) == [left]


def test_what_is_given_back_is_counted_against_one_claim_only() -> None:
    first, second = share(300, cpu_milli=100, key="one"), share(300, cpu_milli=100, key="two")
    given = share(400, cpu_milli=150, key="g")
    assert beyond([first, second], given=[given]) == [
        share(key="one"),
        share(200, cpu_milli=50, key="two"),
    ]


@pytest.mark.parametrize(
    ("ends_at", "assumed", "words", "kept"),
    [
        (60.0, False, "", 0), (60.1, False, "", 1), (59.0, True, "", 0), (59.0, True, "for a class", 1),
        (60.0, False, "for a class", 0),
    ],
    ids=[
        "who ends in time gives it back", "who ends too late does not", "a job counts on a guess",
        "what is kept for a time counts on no guess", "but on a limit",
    ],
)  # fmt: skip
def test_on_whose_end_is_counted(ends_at: float, assumed: bool, words: str, kept: int) -> None:
    ledger = make_ledger(a=1)
    (end,) = run(ledger, make_job("r", "1", hours=1))
    claim = ledger.claim(end.key)
    assert claim is not None
    leaving = [Leaving(at_seconds=ends_at, key=end.key, job="r", assumed=assumed)]
    made = Reservation(
        job=make_job("x", "1"),
        at_seconds=60.0,
        claims=(replace(claim, key="x/0"),),
        words=Sentence(message=words) if words else None,
    )
    assert sum(len(each.devices) for each in kept_now(made, ledger=ledger, leaving=leaving)) == kept


def test_of_two_ends_of_one_claim_the_earlier_one_counts() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="x")
    ends = [Leaving(at_seconds=seconds, key="x", job="x") for seconds in (300.0, 100.0, 200.0)]
    found = reserve(make_job("it"), ledger=ledger, sites={}, leaving=ends)
    assert found is not None
    assert found.at_seconds == 100


def test_what_reservations_leave_is_looked_at_again_once_a_claim_has_ended() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, 1, key="x")
    kept = Reservation(job=make_job("first"), at_seconds=900.0, claims=())
    residual, job = ResidualCapacity(ledger, sites={}), make_job("it")
    assert isinstance(residual.room(job, kept=[kept], leaving=[]), Shortage)
    ledger.release("x")
    assert isinstance(residual.room(job, kept=[kept], leaving=[]), Shortage), "room only shrinks within a cycle"
    residual.forget()
    assert isinstance(residual.room(job, kept=[kept], leaving=[]), Room)
