"""A queue over time: jobs arrive, the queue decides, jobs run for their real time.

Pure; time is simulated.

The policy that decides which jobs start is an argument, so that other queues can run on the same jobs.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Protocol

import msgspec

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, InOrder, Leaving, Sites, order, seconds_left
from dovetail.queue.verdicts import Admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """`job` is submitted `at_seconds` and really runs for `ran_seconds`."""

    job: Candidate
    at_seconds: float
    ran_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that has run since `since_seconds` with `claims`."""

    of: Submission
    since_seconds: float
    claims: tuple[Claim, ...]

    @property
    def end_seconds(self) -> float:
        """When it really ends, in seconds."""
        return self.since_seconds + self.of.ran_seconds

    def leaving(self, *, now: float) -> list[Leaving]:
        """The expected ends of its claims, as the queue knows them."""
        job = self.of.job
        at_seconds = seconds_left(job.run_seconds, ran=now - self.since_seconds, limited=job.limited)
        assumed = not job.limited
        return [
            Leaving(key=claim.key, job=claim.key.rpartition("/")[0], at_seconds=at_seconds, assumed=assumed)
            for claim in self.claims
        ]


@dataclass(slots=True, kw_only=True)
class Scene:
    """The queue at one moment. `ledger` has the claims of running jobs, `ends` a heap of when they really end."""

    ledger: Ledger
    now: float = 0.0
    waiting: dict[str, Submission] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)

    def candidates(self) -> InOrder:
        """The waiting jobs, in the queue's order."""
        return order(each.job for each in self.waiting.values())

    def leaving(self) -> list[Leaving]:
        """The expected ends of the running jobs."""
        return [each for run in self.running.values() for each in run.leaving(now=self.now)]

    @property
    def next_end_seconds(self) -> float:
        """When the next job ends; infinity while none runs."""
        return self.ends[0][0] if self.ends else inf

    def end_due(self) -> Iterator[Running]:
        """End the jobs that are over by now, one by one."""
        while self.next_end_seconds <= self.now:
            run = self.running.pop(heapq.heappop(self.ends)[1])
            for claim in run.claims:
                self.ledger.release(claim.key)
            yield run

    def start(self, key: str, *, claims: Sequence[Claim]) -> Running:
        """Start a waiting job."""
        run = Running(of=self.waiting.pop(key), since_seconds=self.now, claims=tuple(claims))
        self.ledger.commit_all(run.claims)
        self.running[key] = run
        heapq.heappush(self.ends, (run.end_seconds, key))
        return run


class Policy(Protocol):
    """Decides which waiting jobs start now. It changes nothing."""

    def __call__(self, scene: Scene) -> Iterable[tuple[str, Sequence[Claim]]]: ...


def easy_backfill(scene: Scene, *, sites: Sites = MappingProxyType({})) -> Iterable[tuple[str, Sequence[Claim]]]:
    """Dovetail's own queue."""
    look = SchedulingCycle(scene.ledger.copy(), sites=sites, leaving=scene.leaving())
    for job in scene.candidates():
        verdict = look.at(job)
        if isinstance(verdict, Admitted):
            yield job.key, verdict.claims


def play(
    submissions: Iterable[Submission],
    *,
    ledger: Ledger,
    policy: Policy = easy_backfill,
    came: Callable[[Scene, Submission], None] = lambda _scene, _submission: None,
    watch: Callable[[Scene], None] = lambda _scene: None,
    started: Callable[[Scene, Running], None] = lambda _scene, _run: None,
    ended: Callable[[Running], None] = lambda _run: None,
) -> dict[str, float]:
    """Simulate the queue.

    Returns when each job started, by key; jobs that never start are left out.

    Uses up `ledger`. `came` gets each submission, `watch` the queue after each cycle, `started` and `ended` each run.
    """
    scene, starts = Scene(ledger=ledger), {}
    coming = sorted(submissions, key=lambda each: each.at_seconds, reverse=True)
    while coming or scene.running:
        scene.now = min(coming[-1].at_seconds if coming else inf, scene.next_end_seconds)
        for run in scene.end_due():
            ended(run)
        while coming and coming[-1].at_seconds <= scene.now:
            each = coming.pop()
            scene.waiting[each.job.key] = each
            came(scene, each)
        for key, claims in list(policy(scene)):
            starts[key] = scene.now
            started(scene, scene.start(key, claims=claims))
        watch(scene)
    return starts


Range = tuple[float, ...] | None


def likely(
    scene: Scene,
    *,
    ran: Callable[[Candidate, float], float],
    within: Callable[[Candidate, float], Range] = lambda _job, _so_far: None,
) -> tuple[list[Candidate], list[Leaving]]:
    """The waiting jobs and the expected ends, with likely run times.

    `ran(job, so_far)` returns how long a job runs in total, and `within(job, so_far)` its equally likely run times.
    """
    waiting = [replace(job, likely_seconds=ran(job, 0.0), likely_range=within(job, 0.0)) for job in scene.candidates()]
    leaving = []
    for run in scene.running.values():
        so_far, job = scene.now - run.since_seconds, run.of.job
        in_all, reach = ran(job, so_far), within(job, so_far)
        for each in run.leaving(now=scene.now):
            left = _left(in_all, so_far=so_far, at_most=each.at_seconds)
            ends = (
                None if reach is None else tuple(_left(part, so_far=so_far, at_most=each.at_seconds) for part in reach)
            )
            leaving.append(msgspec.structs.replace(each, likely_seconds=left, likely_range=ends))
    return waiting, leaving


def _left(in_all: float, *, so_far: float, at_most: float) -> float:
    """The seconds that remain of a run with this total."""
    return min(max(0.0, in_all - so_far), at_most)
