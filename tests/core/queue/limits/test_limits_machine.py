"""The queue with limits, reservations for a time, elastic jobs and preemption over time, as a state machine.

The operator's part is played by the machine: who is told to make way is gone with the next look where the proof still
holds. Beside the queue it keeps who holds what since when, whose limits are used, and nothing else.
"""

import math
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from dovetail.api.reasons.queue import GROUP
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.limits import Limit, LimitGate, Terms
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.queue.machine import GUESS, HOUR, NODES, QueueMachine

SHAPES = ["1", "2", "4", "0.5"]
RULES = Rules(gap=10, min_run_seconds=0.0, grace_seconds=10.0)
# All jobs of the quota together.
MOST_GPUS = 4


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Between these times so many GPUs are for the jobs of the quota."""

    start: float
    end: float
    gpus: int


class LimitsMachine(QueueMachine):
    """Jobs whose names begin with `own` are bound by the quota: its limit is theirs, and its reservations are."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Kept] = []
        # Who makes way for whom, as the last look said.

    # --- what happens ------------------------------------------------------------------------------------------

    @rule(
        own=st.booleans(),
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 3),
        least=st.one_of(st.none(), st.integers(1, 3)),
        hours=st.one_of(st.none(), st.integers(1, 4)),
        priority=st.sampled_from([10, 10, 20, 30]),
        cpu=st.sampled_from([None, None, None, 0.0, math.inf]),
    )
    def submit(
        self,
        own: bool,
        shape: str,
        workers: int,
        least: int | None,
        hours: int | None,
        priority: int,
        cpu: float | None,
    ) -> None:
        key = f"{'own' if own else 'other'}-{self.submitted:03d}"
        self.submitted += 1
        self.waiting[key] = Candidate(
            key=key,
            ask=make_ask(shape),
            workers=workers,
            least=None if least is None else min(least, workers),
            priority=priority,
            created=f"{self.submitted:03d}",
            name=f"team/{key}",
            run_seconds=GUESS if hours is None else hours * HOUR,
            limited=hours is not None,
            cpu_in_seconds=cpu,
        )
        self.look()

    @rule(begins=st.integers(0, 3), hours=st.integers(1, 3), gpus=st.integers(1, 6))
    def keep(self, begins: int, hours: int, gpus: int) -> None:
        if len(self.kept) < 3:
            start = self.now + begins * HOUR
            self.kept.append(Kept(start=start, end=start + hours * HOUR, gpus=gpus))
            self.look()

    @rule()
    def keep_no_more(self) -> None:
        self.kept = []
        self.look()

    @rule(hours=st.sampled_from([0.5, 1.0, 3.0]))
    def pass_time(self, hours: float) -> None:
        self.now += hours * HOUR
        for key, run in list(self.running.items()):
            if run.job.limited and run.end <= self.now:
                self.end(key)
        self.look()

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.waiting:
            del self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
            self.look()

    @rule()
    def make_way(self) -> None:
        """The time of those who were told has come: the proof is made once more, and they are gone."""
        self.look()
        if not self.told:
            return
        (by,) = set(self.told.values())
        for key in self.told:
            self.waiting[key] = self.running[key].job
            self.end(key)
        self.look(left=dict.fromkeys(self.told, by))
        assert by in self.running, "whoever others made way for starts"

    # --- the operator's part -----------------------------------------------------------------------------------

    def look(self, *, left: dict[str, str] | None = None) -> None:
        evictor = Evictor(running=self.evictable(left or {}), rules=RULES)
        look = SchedulingCycle(
            self.ledger.copy(),
            sites={},
            leaving=self.leaving(),
            gate=self.gate(),
            evictor=evictor,
            windows=self.windows(),
        )
        self.judge(look)
        self.told = {key: each.by.key for key, each in evictor.orders.items()}

    def gate(self) -> LimitGate:
        everyone = [*self.waiting.values(), *(run.job for run in self.running.values())]
        terms = {job.key: self.terms(job) for job in everyone if is_own(job)}
        used = {("quota", "", "GPUs"): sum(run.milli for run in self.running.values() if is_own(run.job))}
        return LimitGate(terms, used=used)  # type: ignore[arg-type]

    def terms(self, job: Candidate) -> Terms:
        each = int(1000 * job.gpus) // job.workers
        limit = Limit(
            counter=("quota", "", "GPUs"),
            most=MOST_GPUS * 1000,
            need=each * job.workers,
            who=GROUP(name="team"),
            each=each,
            least=None if job.least is None else each * job.least,
        )
        return Terms(start=(limit,))

    def windows(self) -> Windows:
        wanted = [
            Window(
                name=f"w{number}",
                quota="quota",
                at_seconds=max(0.0, each.start - self.now),
                until_seconds=each.end - self.now,
                until="then",
                gpus=each.gpus,
            )
            for number, each in enumerate(self.kept)
            if each.end > self.now
        ]
        own = {job.key: frozenset({"quota"}) for job in self.waiting.values() if is_own(job)}
        reservations = placed(wanted, ledger=self.ledger, leaving=self.leaving())
        return Windows(reservations=reservations, quotas_of=own, wanted=wanted)

    def start(self, job: Candidate, verdict: Admitted) -> None:
        if verdict.on_cpu:
            assert (job.cpu_in_seconds, verdict.claims) in {(0.0, ()), (math.inf, ())}
            super().start(job, verdict)
            return
        fewest = job.workers if job.least is None else job.least
        assert fewest <= len(verdict.claims) <= job.workers, "a gang starts whole, an elastic one with its fewest"
        super().start(job, verdict)
        if not is_own(job):
            self.check_kept(job)

    def check_kept(self, job: Candidate) -> None:
        """Nobody starts who would still be there while what he takes is kept: as much is free as was before."""
        end = self.now + job.run_seconds if job.limited else float("inf")
        taken = {device.uuid for claim in self.running[job.key].claims for device in claim.devices}
        for each in self.kept:
            if each.start < end and each.end > self.now:
                # Where others are until it is over anyway nothing could be kept.
                others = self.held_until(min(end, each.end), without=job.key)
                before, after = 6 - len(others), 6 - len(others | taken)
                assert after >= min(each.gpus, before) or after == before

    def held_until(self, then: float, *, without: str) -> set[str]:
        """The devices of those that are there until then at least."""
        return {
            device.uuid
            for key, run in self.running.items()
            if key != without and (not run.job.limited or run.end >= then)
            for claim in run.claims
            for device in claim.devices
        }

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def the_quota_is_kept(self) -> None:
        assert sum(run.milli for run in self.running.values() if is_own(run.job)) <= MOST_GPUS * 1000

    @invariant()
    def those_who_are_told_to_go_are_less_important_by_far(self) -> None:
        for key, by in self.told.items():
            assert self.running[key].job.priority + RULES.gap <= self.waiting[by].priority

    def teardown(self) -> None:
        """When nothing more comes and nothing is kept, every job that could ever run has its turn."""
        self.kept = []
        self.look()
        while self.running:
            self.end(min(self.running))
            self.look()
        for job in self.waiting.values():
            look = SchedulingCycle(
                make_ledger(**NODES), sites={}, gate=LimitGate({job.key: self.terms(job)} if is_own(job) else {})
            )
            assert isinstance(look.at(replace(job)), Waits)


def is_own(job: Candidate) -> bool:
    return job.key.startswith("own")


TestLimits = LimitsMachine.TestCase
# The same cases each time: a search for others is made by hand, with more of them.
TestLimits.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True)
