"""GPUs that are kept for a time: who may have them meanwhile."""

from dataclasses import replace
from random import Random

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.queue.backfill.advance_reservation import Window, Windows, kept_of, placed
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.estimates.monte_carlo import foresee_with_range
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job, run
from tests.seeds import seeds

SOON = Window(name="class", quota="vision", at_seconds=HOUR, gpus=2, until="2026-01-01T18:00:00Z")


def decide(
    *waiting: Candidate, ledger: Ledger, leaving: tuple[Leaving, ...] = (), own: frozenset[str] = frozenset(),
    windows: tuple[Window, ...] = (SOON,),
) -> dict[str, str]:  # fmt: skip
    """Reasons by name, empty for a job that starts; `own` are the keys of the quota's own jobs."""
    reservations = placed(windows, ledger=ledger, leaving=leaving)
    guard = Windows(reservations=reservations, quotas_of=dict.fromkeys(own, frozenset({"vision"})))
    found = admit(waiting, ledger=ledger.copy(), sites={}, leaving=leaving, windows=guard)
    return {each.key.removeprefix("uid-"): each.reason if isinstance(each, Waits) else "" for each in found}


@pytest.mark.parametrize(
    ("job", "own", "reason"),
    [
        (make_job("x", "2"), False, "Reserved"),
        (make_job("x", "2", hours=0.9), False, ""),
        (make_job("x", "2", hours=1.1), False, "Reserved"),
        (make_job("x", "2"), True, ""),
        (make_job("x", "1"), False, ""),
    ],
    ids=[
        "without a limit it could run into it", "it ends before", "it ends too late", "it is kept for this one",
        "there is room beside it",
    ],
)  # fmt: skip
def test_who_may_have_what_is_kept_for_later(job: Candidate, own: bool, reason: str) -> None:
    assert decide(job, ledger=make_ledger(n=3), own=frozenset({job.key} if own else ())) == {"x": reason}


def test_whoever_is_kept_back_is_told_until_when_and_by_which_quota() -> None:
    ledger = make_ledger(n=2)
    guard = Windows(reservations=placed([SOON], ledger=ledger, leaving=()))
    (verdict,) = admit([make_job("x", "1")], ledger=ledger, sites={}, windows=guard)
    assert isinstance(verdict, Waits)
    words = "2 GPUs are kept by GPUQuota vision until 2026-01-01T18:00:00Z (reservation class)"
    assert verdict.message == f"Need 1 GPU, only 0 available; {words}"


def test_several_jobs_do_not_take_it_bit_by_bit() -> None:
    jobs = [make_job(name, "1", at=at) for at, name in enumerate("abc")]
    assert list(decide(*jobs, ledger=make_ledger(n=4)).values()) == ["", "", "Reserved"]


def test_what_is_kept_comes_from_those_who_end_before_where_that_is_known() -> None:
    ledger = make_ledger(n=4)
    leaving = tuple(run(ledger, make_job("r", "2", hours=0.5)))
    assert decide(make_job("x", "2"), ledger=ledger, leaving=leaving) == {"x": ""}


@pytest.mark.parametrize(("hours", "kept"), [(1.0, 2), (1.001, 1)])
def test_who_ends_when_the_time_comes_leaves_what_is_kept_then(hours: float, kept: int) -> None:
    ledger = make_ledger(n=2)
    leaving = run(ledger, make_job("r", "1", hours=hours))
    (found,) = placed([SOON], ledger=ledger, leaving=leaving)["vision"]
    assert found.devices == kept


@pytest.mark.parametrize(
    ("first", "second", "devices"),
    [((0.0, 2 * HOUR), (2 * HOUR, 3 * HOUR), 2), ((0.0, 2 * HOUR), (2 * HOUR - 1, 3 * HOUR), 0)],
    ids=["times that touch", "times that overlap"],
)
def test_times_that_only_touch_are_kept_on_the_same_devices(
    first: tuple[float, float], second: tuple[float, float], devices: int
) -> None:
    one = replace(SOON, name="a", at_seconds=first[0], until_seconds=first[1])
    other = replace(SOON, name="b", quota="nlp", at_seconds=second[0], until_seconds=second[1])
    found = placed([one, other], ledger=make_ledger(n=2), leaving=())
    assert sum(each.devices for each in found.get("nlp", ())) == devices


@pytest.mark.parametrize(("begins", "devices"), [(0, 2), (1, 2), (2, 0), (3, 0), (4, 2), (5, 2)])
def test_only_what_overlaps_a_reservation_of_a_pool_that_is_placed_first_is_in_its_way(
    begins: int, devices: int
) -> None:
    """An hour each; the one of the pool, from the third hour to the fourth, is placed first whenever the other is."""
    of_pool = replace(SOON, name="a", nodes=["n"], at_seconds=2 * HOUR, until_seconds=4 * HOUR)
    other = replace(SOON, name="b", quota="nlp", at_seconds=begins * HOUR, until_seconds=(begins + 1) * HOUR)
    found = placed([other, of_pool], ledger=make_ledger(n=2), leaving=())
    assert sum(each.devices for each in found.get("nlp", ())) == devices


@pytest.mark.parametrize(("hours", "kept_back"), [(1.0, False), (1.001, True)])
def test_a_job_that_ends_when_the_time_comes_may_have_what_is_kept(hours: float, kept_back: bool) -> None:
    found = decide(make_job("x", "2", hours=hours), ledger=make_ledger(n=2))
    assert found == {"x": "Reserved" if kept_back else ""}


def test_nobody_counts_on_the_end_of_a_job_without_a_limit() -> None:
    ledger = make_ledger(n=4)
    leaving = tuple(run(ledger, make_job("r", "2")))
    assert decide(make_job("x", "2"), ledger=ledger, leaving=leaving) == {"x": "Reserved"}


def test_two_reservations_are_kept_on_devices_of_their_own() -> None:
    other = replace(SOON, name="course", quota="nlp", gpus=1)
    kept = placed([SOON, other], ledger=make_ledger(n=2, m=1), leaving=())
    devices = [
        device.uuid for each in kept.values() for one in each for claim in one.claims for device in claim.devices
    ]
    assert len(devices) == len(set(devices)) == 3


def test_more_than_there_is_keeps_what_there_is() -> None:
    kept = placed([replace(SOON, gpus=9)], ledger=make_ledger(n=2), leaving=())
    assert sum(len(claim.devices) for claim in kept["vision"][0].claims) == 2


def test_only_nodes_of_its_pool_are_kept() -> None:
    kept = placed([replace(SOON, nodes=["m"])], ledger=make_ledger(n=4, m=2), leaving=())
    assert {claim.node for claim in kept["vision"][0].claims} == {"m"}


def test_what_is_free_now_of_it_is_told_for_those_who_ask_no_queue() -> None:
    ledger = make_ledger(n=2)
    leaving = run(ledger, make_job("r", "1", hours=0.5))
    kept = placed([SOON], ledger=ledger, leaving=leaving)["vision"]
    assert sum(len(claim.devices) for claim in kept_of(kept, ledger=ledger, leaving=leaving)) == 1


def test_who_may_pass_the_first_that_waits_still_keeps_off_what_is_kept_for_a_time() -> None:
    ledger = make_ledger(n=4)
    leaving = tuple(run(ledger, make_job("r", "1", hours=2)))
    passing = [make_job(name, "1", hours=1.5, at=at) for at, name in enumerate("ab", start=1)]
    found = decide(make_job("large", "4"), *passing, ledger=ledger, leaving=leaving)
    assert found == {"large": "Resources", "a": "", "b": "Reserved"}


def test_what_the_first_takes_beside_it_the_next_cannot_have() -> None:
    ledger = make_ledger(n=3)
    found = admit(
        [make_job("a", "1", at=0), make_job("b", "1", at=1)],
        ledger=ledger,
        sites={},
        windows=Windows(reservations=placed([SOON], ledger=ledger, leaving=())),
    )
    assert [isinstance(each, Admitted) for each in found] == [True, False]


# --- several at a time, and one after the other ---------------------------------------------------------------------

LATER = replace(SOON, name="late", quota="nlp", at_seconds=5 * HOUR, until_seconds=7 * HOUR)


def test_what_is_kept_at_other_times_may_be_the_same_devices() -> None:
    first = replace(SOON, until_seconds=3 * HOUR)
    kept = placed([first, LATER], ledger=make_ledger(n=2), leaving=())
    assert [len(each.claims) for found in kept.values() for each in found] == [2, 2]


def test_whose_time_comes_first_does_not_run_into_the_next() -> None:
    first = replace(SOON, until_seconds=3 * HOUR)
    own = frozenset({"uid-x"})
    ledger, windows = make_ledger(n=2), (first, LATER)
    assert decide(make_job("x", "2"), ledger=ledger, own=own, windows=windows) == {"x": "Reserved"}
    assert decide(make_job("x", "2", hours=4), ledger=ledger, own=own, windows=windows) == {"x": ""}


def test_devices_that_are_kept_for_several_times_are_told_once() -> None:
    first = replace(SOON, until_seconds=3 * HOUR)
    again = replace(LATER, quota="vision")
    ledger = make_ledger(n=2)
    kept = placed([first, again], ledger=ledger, leaving=())["vision"]
    assert sum(len(claim.devices) for claim in kept_of(kept, ledger=ledger, leaving=())) == 2


def test_a_reservation_that_any_node_serves_leaves_the_nodes_of_a_pool_to_one_that_needs_them() -> None:
    anywhere = replace(SOON, name="a", gpus=2)
    in_pool = replace(SOON, name="z", quota="nlp", gpus=2, nodes=["m"])
    kept = placed([anywhere, in_pool], ledger=make_ledger(m=2, n=2), leaving=())
    assert {quota: {claim.node for each in found for claim in each.claims} for quota, found in kept.items()} == {
        "vision": {"n"},
        "nlp": {"m"},
    }


def test_a_job_that_only_a_reservation_keeps_back_is_foreseen_to_start_when_that_is_over() -> None:
    ledger = make_ledger(n=2)
    window = replace(SOON, at_seconds=0.0, until_seconds=2 * HOUR)
    windows = Windows(reservations=placed([window], ledger=ledger, leaving=()), wanted=[window])
    starts = foresee_with_range([make_job("x", "2")], ledger=ledger, sites={}, leaving=(), windows=windows)
    assert [start.in_seconds for start in starts if start is not None] == [2 * HOUR]


@pytest.mark.parametrize(("hours", "start"), [(0.5, 0.5), (0.6, 2)], ids=["it ends before", "it would run into it"])
def test_a_job_that_starts_later_is_foreseen_with_the_end_that_it_has_then(hours: float, start: float) -> None:
    ledger = make_ledger(n=2)
    leaving = run(ledger, make_job("r", "2", hours=0.5))
    window = replace(SOON, until_seconds=2 * HOUR)
    windows = Windows(reservations=placed([window], ledger=ledger, leaving=leaving), wanted=[window])
    job = make_job("x", "2", hours=hours)
    starts = foresee_with_range([job], ledger=ledger, sites={}, leaving=leaving, windows=windows)
    assert [each.in_seconds for each in starts if each is not None] == [start * HOUR]


def test_who_is_kept_back_by_a_reservation_is_not_passed_for_ever() -> None:
    """It has its own earliest start beside what is kept, and jobs without a limit do not pass it for what ends."""
    ledger = make_ledger(n=4)
    leaving = [*run(ledger, make_job("r", "1", hours=0.5)), *run(ledger, make_job("s", "1", hours=0.6))]
    waiting = [make_job("large", "2", at=1), make_job("small", "1", at=2)]
    kept = placed([SOON], ledger=ledger, leaving=())
    windows = Windows(reservations=kept, wanted=[SOON])
    look = SchedulingCycle(ledger, sites={}, leaving=leaving, windows=windows)
    for job in waiting:
        assert isinstance(look.at(job), Waits)
    assert look.reservation is not None
    assert look.reservation.job.name == waiting[0].name
    look.advance()
    small = look.at(waiting[1])
    assert isinstance(small, Waits), "what has ended is kept for the one before"


@pytest.mark.parametrize(
    ("begun", "small"), [(True, "Reserved"), (False, "")], ids=["it has begun", "it is yet to begin"]
)
def test_a_job_that_starts_when_a_reservation_is_over_keeps_that_start(begun: bool, small: str) -> None:
    """For one that is yet to begin nothing stands idle so long before."""
    window = replace(SOON, at_seconds=0.0 if begun else HOUR, until_seconds=2 * HOUR)
    waiting = [make_job("large", "4", at=1), make_job("small", "1", at=2), make_job("short", "1", hours=1, at=3)]
    found = decide(*waiting, ledger=make_ledger(n=4), windows=(window,))
    assert found == {"large": "Reserved", "small": small, "short": ""}


def test_those_for_whom_it_is_kept_start_whoever_waits_for_its_end() -> None:
    window = replace(SOON, at_seconds=0.0, until_seconds=2 * HOUR)
    waiting = [make_job("large", "4", at=1, priority=50), make_job("theirs", "2", at=2)]
    found = decide(*waiting, ledger=make_ledger(n=4), windows=(window,), own=frozenset({"uid-theirs"}))
    assert found == {"large": "Reserved", "theirs": ""}


def test_what_a_start_rests_on_names_the_reservation_that_is_over() -> None:
    ledger = make_ledger(n=4)
    leaving = run(ledger, make_job("r", "2", hours=0.5))
    window = replace(SOON, at_seconds=0.0, until_seconds=2 * HOUR)
    windows = Windows(reservations=placed([window], ledger=ledger, leaving=leaving), wanted=[window])
    starts = foresee_with_range([make_job("x", "4")], ledger=ledger, sites={}, leaving=leaving, windows=windows)
    assert [(start.in_seconds, start.basis.message) for start in starts if start is not None] == [
        (2 * HOUR, "1 job has ended on n by then at the latest, by the time limits, and a reservation is over by then")
    ]


def test_a_limit_that_lets_a_job_use_what_is_kept_for_later_is_in_its_plan() -> None:
    ledger = make_ledger(n=2)
    guard = Windows(reservations=placed([SOON], ledger=ledger, leaving=()))
    (verdict,) = admit([make_job("x", "1", hours=0.5)], ledger=ledger, sites={}, windows=guard)
    assert isinstance(verdict, Admitted)
    assert verdict.limit_seconds == HOUR / 2


@seeds(30)
def test_what_is_kept_is_free_by_then_and_as_much_as_there_is(seed: int) -> None:
    random, ledger, ends = Random(seed), make_ledger(n=4, m=2), list[Leaving]()
    for number in range(random.randint(1, 6)):
        ends += run(ledger, make_job(f"r{number}", hours=random.choice([None, None, 0.5, 2.0])))
    windows = [
        Window(
            name=f"w{number}", quota="vision", at_seconds=at * HOUR, until_seconds=(at + 1) * HOUR, until="then",
            gpus=random.randint(1, 4), nodes=random.choice([None, ["n"]]),
        )
        for number, at in enumerate(random.sample([0.0, 0.5, 1.0, 24.0, 30.0], 2))
    ]  # fmt: skip
    found = {each.job.key: each for each in placed(windows, ledger=ledger, leaving=ends).get("vision", [])}
    taken = dict[str, set[str]]()
    for window in windows:
        # A job without a time limit is assumed to end, and may stay.
        stays = {each.key for each in ends if each.assumed or each.at_seconds > window.at_seconds}
        held = {device.uuid for key in stays for device in claim_of(ledger, key).devices}
        kept = found.get(window.key)
        mine = taken[window.key] = {device.uuid for claim in kept.claims for device in claim.devices} if kept else set()
        assert not mine & held, "it is kept on devices that nobody has to leave"
        others = {
            uuid
            for other in windows
            if other is not window and overlap(window, other) and (other.key in taken)
            for uuid in taken[other.key]
        }
        assert not mine & others, "a device is kept twice for one time"
        there = {f"{name}-{at}" for name in window.nodes or "nm" for at in range({"n": 4, "m": 2}[name])}
        if not any(overlap(window, other) for other in windows if other is not window):
            assert len(mine) == min(window.gpus, len(there - held))


def claim_of(ledger: Ledger, key: str) -> Claim:
    claim = ledger.claim(key)
    assert claim is not None
    return claim


def overlap(one: Window, other: Window) -> bool:
    return one.at_seconds < other.until_seconds and other.at_seconds < one.until_seconds
