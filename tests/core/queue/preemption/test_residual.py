"""A job behind the first one that does not fit, for which others make way where that does not delay the first one."""

from dataclasses import dataclass, field, replace

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.cycle import admit
from dovetail.queue.model.candidates import Candidate, Leaving, Room, commit, find_room
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Verdict
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import make_job

WEEK = 7 * 86_400.0
# What the first job waits for has the same priority, and runs for a week.
FIRST = make_job("first", "4", priority=50, site="old")
SITES = {"old": ["old"], "new": ["new"]}


@dataclass(kw_only=True)
class Queue:
    """Four GPUs of a job that makes way for nobody, and four of one that may."""

    ledger: Ledger = field(default_factory=lambda: make_ledger(old=4, new=4))
    running: list[Running] = field(default_factory=list)
    leaving: list[Leaving] = field(default_factory=list)
    evictor: Evictor = field(default_factory=lambda: Evictor(running=(), rules=Rules()))

    def runs(self, job: Candidate, *, ends: float = WEEK, **facts: object) -> None:
        found = find_room(job, ledger=self.ledger, fit_cache=FitCache(self.ledger), sites=SITES)
        assert isinstance(found, Room), job
        commit(found.claims, job=job, ledger=self.ledger)
        claims = tuple(claim.key for claim in found.claims)
        made = Running(key=job.key, priority=job.priority, run_seconds=1000.0, claims=claims)
        made = replace(made, **facts)  # type: ignore[arg-type]
        self.running.append(made)
        self.leaving += [Leaving(at_seconds=ends, key=key, job=job.key) for key in made.claims]

    def look(self, *waiting: Candidate, gap: int = 10) -> dict[str, Verdict]:
        self.evictor = Evictor(running=self.running, rules=Rules(gap=gap))
        found = admit(waiting, ledger=self.ledger.copy(), sites=SITES, leaving=self.leaving, evictor=self.evictor)
        return {verdict.key.removeprefix("uid-"): verdict for verdict in found}

    @property
    def makes_way(self) -> dict[str, str]:
        return {key.removeprefix("uid-"): order.by.name for key, order in self.evictor.orders.items()}


@pytest.fixture
def queue() -> Queue:
    queue = Queue()
    queue.runs(make_job("equal", "4", priority=50, site="old"))
    return queue


def low(name: str = "low", gpu: str = "4") -> Candidate:
    return make_job(name, gpu, priority=10)


def second(gpu: str = "4", *, hours: float | None = None) -> Candidate:
    return make_job("second", gpu, priority=40, site="new", hours=hours)


def test_a_job_sends_others_away_from_where_the_first_one_does_not_want_to_go(queue: Queue) -> None:
    queue.runs(low())
    found = queue.look(FIRST, second())
    assert queue.makes_way == {"low": "team/second"}
    kept = {name: bool(getattr(verdict, "kept", None)) for name, verdict in found.items()}
    assert kept == {"first": True, "second": True}


def test_nobody_is_sent_away_where_preemption_is_off(queue: Queue) -> None:
    queue.runs(low())
    queue.look(FIRST, second(), gap=0)
    assert queue.makes_way == {}


def test_nobody_is_sent_away_for_a_job_that_would_delay_the_first_one(queue: Queue) -> None:
    queue.runs(low())
    everything = make_job("first", "4", workers=2, priority=50)
    queue.look(everything, second())
    assert queue.makes_way == {}
    # One that ends before the first one could start delays nobody.
    queue.look(everything, second(hours=1))
    assert queue.makes_way == {"low": "team/second"}


def test_what_is_free_beside_those_who_make_way_is_kept_from_later_jobs(queue: Queue) -> None:
    queue.runs(low(gpu="2"))
    found = queue.look(FIRST, second(), make_job("third", "1", priority=5, site="new"))
    assert queue.makes_way == {"low": "team/second"}
    assert not isinstance(found["third"], Admitted)


def test_the_job_starts_once_those_have_left_who_made_way(queue: Queue) -> None:
    queue.runs(low(), yields_to="uid-second", left=True)
    found = queue.look(FIRST, second())
    assert isinstance(found["second"], Admitted)
    assert not isinstance(found["first"], Admitted)


def test_one_job_at_a_time_sends_others_away_beside_the_first_one() -> None:
    queue = Queue(ledger=make_ledger(old=4, new=8))
    queue.runs(make_job("equal", "4", priority=50, site="old"))
    queue.runs(low("a"))
    queue.runs(low("b"))
    queue.look(FIRST, second(), make_job("third", "3", priority=40, at=1, site="new"))
    assert set(queue.makes_way.values()) == {"team/second"}
