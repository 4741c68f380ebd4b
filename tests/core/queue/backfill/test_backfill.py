"""Reservations and what passes them: scenarios as data, and the promise that no passer delays the reserved job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.reservation import reserve
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.model.candidates import Candidate, Leaving, Room, commit, find_room, order
from dovetail.queue.verdicts import Admitted, Kept, Verdict, Waits
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger

HOUR = 3600.0


def make_job(
    name: str,
    gpu: str = "1",
    *,
    hours: float | None = None,
    workers: int = 1,
    priority: int = 10,
    at: int = 0,
    cpu: int = 0,
    site: str = "",
) -> Candidate:
    """A job with a time limit of that many hours, or with none."""
    return Candidate(
        key=f"uid-{name}",
        ask=make_ask(gpu, cpu_milli=cpu),
        workers=workers,
        priority=priority,
        created=f"2026-01-01T00:00:{at:02d}Z",
        name=f"team/{name}",
        site=site,
        run_seconds=24 * HOUR if hours is None else hours * HOUR,
        limited=hours is not None,
        limit_seconds=None if hours is None else int(hours * HOUR),
    )


def run(ledger: Ledger, job: Candidate) -> list[Leaving]:
    """Start the job now, whatever the queue says."""
    found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
    assert isinstance(found, Room), job
    return commit(found.claims, job=job, ledger=ledger)


def decide(*waiting: Candidate, ledger: Ledger, leaving: Iterable[Leaving] = ()) -> dict[str, Verdict]:
    verdicts = admit(waiting, ledger=ledger.copy(), sites={}, leaving=leaving)
    return {verdict.key.removeprefix("uid-"): verdict for verdict in verdicts}


def admitted(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if isinstance(verdict, Admitted)}


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    nodes: dict[str, int]
    running: tuple[Candidate, ...]
    waiting: tuple[Candidate, ...]
    starts: set[str]
    reasons: tuple[str, ...] = ()


LARGE = make_job("large", "4", at=0)
CASES = (
    Case(
        says="a short job passes a large one that could not start before its end",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(LARGE, make_job("short", "1", hours=2, at=1)),
        starts={"short"},
    ),
    Case(
        says="a long job does not",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(LARGE, make_job("long", "1", hours=4, at=1)),
        starts=set(),
        reasons=("Resources", "Reserved"),
    ),
    Case(
        says="nor does one without a time limit",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=48),),
        waiting=(LARGE, make_job("free", "1", at=1)),
        starts=set(),
    ),
    Case(
        says="a job of lower priority is told that priority holds it back",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(LARGE, make_job("low", "1", priority=1)),
        starts=set(),
        reasons=("Resources", "Priority"),
    ),
    Case(
        says="a long job passes on a node that the large one does not need",
        nodes={"a": 4, "b": 2},
        running=(make_job("r", "3", hours=3),),
        waiting=(LARGE, make_job("long", "1", at=1)),
        starts={"long"},
    ),
    Case(
        says="a long job passes on a device that the large one does not need",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(make_job("large", "3", at=0), make_job("long", "1", at=1)),
        starts={"long"},
    ),
    Case(
        says="only so many pass as leave enough",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(make_job("large", "3", at=0), make_job("one", "1", at=1), make_job("two", "1", at=2)),
        starts={"one"},
        reasons=("Resources", "Reserved"),
    ),
    Case(
        says="a gang reserves all its nodes",
        nodes={"a": 2, "b": 2},
        running=(make_job("r", "2", hours=3),),
        waiting=(make_job("gang", "2", workers=2), make_job("long", "1", at=1)),
        starts=set(),
    ),
    Case(
        says="a job that can never run keeps nobody",
        nodes={"a": 4},
        running=(make_job("r", "2", hours=3),),
        waiting=(make_job("huge", "8"), make_job("long", "2", at=1)),
        starts={"long"},
    ),
    Case(
        says="the second that waits reserves nothing",
        nodes={"a": 4, "b": 4},
        running=(make_job("r", "3", hours=3), make_job("s", "3", hours=3)),
        waiting=(LARGE, make_job("second", "4", at=1), make_job("long", "1", at=2)),
        starts={"long"},
    ),
    Case(
        says="a share passes beside a share that is kept",
        nodes={"a": 1},
        running=(make_job("r", "0.5", hours=3),),
        waiting=(make_job("large", "0.6"), make_job("small", "0.3", at=1), make_job("more", "0.2", at=2)),
        starts={"small"},
    ),
    Case(
        says="a job admitted now counts for those after it",
        nodes={"a": 4},
        running=(),
        waiting=(make_job("first", "3", hours=5, at=0), make_job("large", "2", at=1), make_job("long", "1", at=2)),
        starts={"first", "long"},
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_scenario(case: Case) -> None:
    ledger = make_ledger(**case.nodes)
    leaving = [each for job in case.running for each in run(ledger, job)]
    verdicts = decide(*case.waiting, ledger=ledger, leaving=leaving)
    assert admitted(verdicts) == case.starts
    if case.reasons:
        assert tuple(each.reason for each in verdicts.values() if isinstance(each, Waits)) == case.reasons


def test_what_keeps_a_job_back_is_told_with_numbers() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "2", hours=3))
    verdict = decide(LARGE, make_job("low", "1", priority=1), ledger=ledger, leaving=leaving)["low"]
    assert isinstance(verdict, Waits)
    assert verdict.message == "Need 1 GPU, only 0 available; 4 GPUs are kept for large, of priority 10"


def test_the_name_of_a_job_of_another_namespace_is_not_told() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "2", hours=3))
    stranger = Candidate(key="uid-x", name="other/x", ask=make_ask("1"), created="2026-01-01T00:00:09Z", priority=10)
    (_, verdict) = admit([LARGE, stranger], ledger=ledger.copy(), sites={}, leaving=leaving)
    assert isinstance(verdict, Waits)
    assert verdict.message.endswith("4 GPUs are kept for a job of another namespace, which is older")


def test_pods_of_strangers_are_not_taken_to_leave() -> None:
    ledger = make_ledger(a=4)
    hold_devices(ledger, "a", 0)
    assert reserve(LARGE, ledger=ledger, sites={}, leaving=[]) is None
    assert admitted(decide(LARGE, make_job("long", "1", at=1), ledger=ledger)) == {"long"}


def test_the_earliest_start_is_found_among_many_ends() -> None:
    ledger = make_ledger(**{f"n{number}": 4 for number in range(20)})
    leaving = []
    for number in range(40):
        leaving += run(ledger, make_job(f"r{number}", "2", hours=1 + number))
    by_node: dict[str, list[float]] = {}
    for each in leaving:
        claim = ledger.claim(each.key)
        assert claim is not None
        by_node.setdefault(claim.node, []).append(each.at_seconds)
    reserved = reserve(LARGE, ledger=ledger, sites={}, leaving=leaving)
    assert reserved is not None
    assert reserved.at_seconds == min(max(ends) for ends in by_node.values())


def test_ends_on_other_nodes_do_not_count_for_a_job_s_site() -> None:
    ledger = make_ledger(a=4, b=4)
    leaving = [*run(ledger, make_job("r", "4", hours=1)), *run(ledger, make_job("s", "4", hours=2))]
    ends = {ledger.claim(each.key).node: each.at_seconds for each in leaving}  # type: ignore[union-attr]
    reserved = reserve(make_job("x", "4", site="b"), ledger=ledger, sites={"b": ["b"]}, leaving=leaving)
    assert reserved is not None
    assert reserved.at_seconds == ends["b"]


def test_cpu_that_leaves_before_is_not_counted_twice() -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=4, cpu_milli=10_000)
    leaving = run(ledger, make_job("r", "2", hours=3, cpu=5000))
    waiting = (make_job("large", "3", cpu=6000), make_job("long", "1", cpu=4000, at=1))
    assert admitted(decide(*waiting, ledger=ledger, leaving=leaving)) == {"long"}


def test_whole_devices_of_a_vendor_s_node_are_kept_by_number() -> None:
    ledger = Ledger()
    add_node(ledger, "v", gpus=4, managed=False, resource="nvidia.com/gpu", offered=4)

    def of_vendor(name: str, gpu: str, *, at: int = 0, hours: float | None = None) -> Candidate:
        job = make_job(name, gpu, at=at, hours=hours)
        return replace(job, ask=replace(job.ask, resource="nvidia.com/gpu"))

    leaving = run(ledger, of_vendor("r", "2", hours=3))
    waiting = [of_vendor("large", "3"), of_vendor("one", "1", at=1), of_vendor("two", "1", at=2)]
    assert admitted(decide(*waiting, ledger=ledger, leaving=leaving)) == {"one"}


# --- properties ------------------------------------------------------------------------------------------------------

shapes = st.sampled_from(["1", "2", "3", "4", "0.5", "0.25", "8G,0.5"])
drawn_jobs = st.lists(
    st.tuples(shapes, st.integers(1, 2), st.one_of(st.none(), st.integers(1, 5)), st.integers(0, 2)), max_size=9
)


def build(drawn: Sequence[tuple[str, int, int | None, int]], *, prefix: str) -> list[Candidate]:
    return [
        make_job(f"{prefix}{number:02d}", gpu, workers=workers, hours=hours, priority=priority, at=number)
        for number, (gpu, workers, hours, priority) in enumerate(drawn)
    ]


def start_what_fits(jobs: list[Candidate], *, ledger: Ledger) -> list[Leaving]:
    leaving = []
    for job in jobs:
        found = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={})
        if isinstance(found, Room):
            leaving += commit(found.claims, job=job, ledger=ledger)
    return leaving


@settings(max_examples=150, deadline=None)
@given(drawn_jobs, drawn_jobs, st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
def test_no_passer_delays_the_job_that_reserved(
    running: list[tuple[str, int, int | None, int]], waiting: list[tuple[str, int, int | None, int]], nodes: list[int]
) -> None:
    ledger = make_ledger(**{f"n{number}": gpus for number, gpus in enumerate(nodes)})
    leaving = start_what_fits(build(running, prefix="r"), ledger=ledger)
    look = SchedulingCycle(ledger, sites={}, leaving=leaving)
    reserved = None
    for job in order(build(waiting, prefix="w")):
        verdict = look.at(job)
        reserved = reserved or look.reservation
        if reserved is None or not isinstance(verdict, Admitted):
            continue
        later = ledger.copy()
        for each in look.leaving:
            if each.at_seconds <= reserved.at_seconds:
                later.release(each.key)
        assert isinstance(find_room(reserved.job, ledger=later, fit_cache=FitCache(later), sites={}), Room), job


@settings(max_examples=100, deadline=None)
@given(drawn_jobs, drawn_jobs)
def test_a_job_is_kept_back_only_where_it_would_delay_the_one_that_reserved(
    running: list[tuple[str, int, int | None, int]], waiting: list[tuple[str, int, int | None, int]]
) -> None:
    ledger = make_ledger(a=4, b=2)
    look = SchedulingCycle(ledger, sites={}, leaving=start_what_fits(build(running, prefix="r"), ledger=ledger))
    for job in order(build(waiting, prefix="w")):
        verdict = look.at(job)
        if isinstance(verdict, Waits) and verdict.reason in {"Reserved", "Priority"}:
            assert look.reservation is not None
            assert isinstance(find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites={}), Room)
            assert not (job.limited and job.run_seconds <= look.reservation.at_seconds)


def planned(*waiting: Candidate, ledger: Ledger, leaving: Iterable[Leaving]) -> dict[str, list[str]]:
    verdicts = decide(*waiting, ledger=ledger, leaving=leaving)
    return {
        name: [claim.node for claim in each.claims] for name, each in verdicts.items() if isinstance(each, Admitted)
    }


def test_a_passing_job_is_planned_off_the_node_where_it_would_delay_the_reserved_one() -> None:
    ledger = make_ledger(a=4, b=4)
    leaving = [*run(ledger, make_job("r", "3", hours=2)), *run(ledger, make_job("s", "3", hours=3))]
    ends = {ledger.claim(each.key).node: each.at_seconds for each in leaving}  # type: ignore[union-attr]
    late = max(ends, key=lambda node: ends[node])
    assert planned(LARGE, make_job("long", "1", at=1), ledger=ledger, leaving=leaving) == {"long": [late]}


def test_a_passing_job_may_go_to_a_node_that_leaves_enough() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "2", hours=3))
    waiting = (make_job("large", "3", at=0), make_job("long", "1", at=1))
    assert planned(*waiting, ledger=ledger, leaving=leaving) == {"long": ["a"]}


def test_a_passing_gang_is_planned_off_all_that_is_kept() -> None:
    ledger = make_ledger(a=4, b=4, c=2)
    leaving = [*run(ledger, make_job("r", "3", hours=2)), *run(ledger, make_job("s", "3", hours=3))]
    waiting = (make_job("large", "4", workers=2), make_job("pair", "1", workers=2, at=1))
    assert planned(*waiting, ledger=ledger, leaving=leaving) == {"pair": ["c", "c"]}


def kept_for(name: str, *waiting: Candidate, ledger: Ledger, leaving: Iterable[Leaving]) -> Kept | None:
    verdict = decide(*waiting, ledger=ledger, leaving=leaving)[name]
    assert isinstance(verdict, Waits)
    return verdict.kept


def test_the_first_job_that_does_not_fit_says_what_is_kept_for_it() -> None:
    ledger = make_ledger(a=4)
    leaving = [*run(ledger, make_job("r", "2", hours=3)), *run(ledger, make_job("s", "1", hours=5))]
    kept = kept_for("x", make_job("x", "3"), make_job("y", "3", at=1), ledger=ledger, leaving=leaving)
    assert kept is not None
    assert kept.at_seconds == 3 * HOUR
    assert [(claim.node, len(claim.devices)) for claim in kept.claims] == [("a", 3)]
    assert [(claim.node, len(claim.devices)) for claim in kept.now] == [("a", 1)]
    assert kept_for("y", make_job("x", "3"), make_job("y", "3", at=1), ledger=ledger, leaving=leaving) is None


def test_jobs_that_no_end_makes_room_for_do_not_take_the_next_ones_turn() -> None:
    """Whatever their shapes are and however many they are: the first that could start some day keeps its start."""
    ledger = make_ledger(n=8)
    hold_devices(ledger, "n", 0)
    leaving = run(ledger, make_job("r", "4", hours=1))
    hopeless = [make_job(f"h{number}", "8", cpu=number, at=number) for number in range(7)]
    waiting = [*hopeless, make_job("large", "6", at=8), make_job("small", "2", at=9)]
    found = list(admit(waiting, ledger=ledger, sites={}, leaving=leaving))
    assert [each.reason for each in found[-2:] if isinstance(each, Waits)] == ["Resources", "Reserved"]


@pytest.mark.parametrize(
    ("nodes", "running", "job", "limit"),
    [
        pytest.param({"a": 4}, "2", make_job("x", "1", hours=2, at=1), 2 * 3600, id="by its limit alone"),
        pytest.param({"a": 4, "b": 2}, "3", make_job("x", "2", hours=2, at=1), None, id="on a node that none needs"),
        pytest.param({"a": 4, "b": 2}, "3", make_job("x", "2", at=1), None, id="without a limit"),
    ],
)
def test_a_plan_says_whether_its_limit_let_the_job_start_where_others_wait(
    nodes: dict[str, int], running: str, job: Candidate, limit: int | None
) -> None:
    ledger = make_ledger(**nodes)
    verdict = decide(LARGE, job, ledger=ledger, leaving=run(ledger, make_job("r", running, hours=3)))["x"]
    assert isinstance(verdict, Admitted)
    assert verdict.limit_seconds == limit


def test_a_limit_lets_no_job_pass_where_nobody_waits() -> None:
    verdict = decide(make_job("x", "1", hours=2), ledger=make_ledger(a=4))["x"]
    assert isinstance(verdict, Admitted)
    assert verdict.limit_seconds is None
