"""The queue over time as a state machine: jobs come, start, run for as long as they like or may, and end.

What the machine keeps beside the queue is dumb: who holds what since when, and the start that the first waiting job was
promised. That promise is kept, whatever else goes on, unless somebody more important comes or a guess was wrong.
"""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, rule

from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.verdicts import Waits
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.queue.machine import GUESS, HOUR, NODES, QueueMachine

SHAPES = ["1", "2", "3", "4", "0.5", "0.25"]


class BackfillMachine(QueueMachine):
    """Beside what runs it keeps what the first that waits was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.promised: tuple[str, float] | None = None

    @initialize(hours=st.tuples(st.integers(1, 8), st.integers(1, 8)))
    def begin_with_a_large_job_that_waits(self, hours: tuple[int, int]) -> None:
        for each in hours:
            self.submit("2", workers=1, hours=each, priority=10)
        self.submit("4", workers=1, hours=None, priority=10)

    @rule(
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 2),
        hours=st.one_of(st.none(), st.integers(1, 8)),
        priority=st.sampled_from([10, 10, 10, 11]),
    )
    def submit(self, shape: str, workers: int, hours: int | None, priority: int) -> None:
        key = f"job-{self.submitted:03d}"
        self.submitted += 1
        job = Candidate(
            key=key,
            ask=make_ask(shape),
            workers=workers,
            priority=priority,
            created=key,
            name=f"team/{key}",
            run_seconds=GUESS if hours is None else hours * HOUR,
            limited=hours is not None,
        )
        self.waiting[key] = job
        if self.promised and order([job, self.waiting[self.promised[0]]])[0] is job:
            self.promised = None
        self.look()

    @rule(hours=st.sampled_from([0.5, 1.0, 3.0]))
    def pass_time(self, hours: float) -> None:
        """To the next end by a limit at most: that is when the queue looks again."""
        ends = [run.end for run in self.running.values() if run.job.limited]
        self.now = min([self.now + hours * HOUR, *ends])
        for key, run in list(self.running.items()):
            if run.job.limited and run.end <= self.now:
                self.end(key)
        if any(run.end <= self.now for run in self.running.values()):
            # A guess was wrong, and with it the promise.
            self.promised = None
        self.look()

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.waiting:
            key = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[key]
            if self.promised and self.promised[0] == key:
                self.promised = None
            self.look()

    def look(self) -> None:
        look = SchedulingCycle(self.ledger.copy(), sites={}, leaving=self.leaving())
        self.judge(look)
        self.check_promise(look)

    def check_promise(self, look: SchedulingCycle) -> None:
        if self.promised and self.promised[0] in self.waiting:
            assert look.reservation is not None
            assert look.reservation.job.key == self.promised[0]
            assert self.now + look.reservation.at_seconds <= self.promised[1] + 1e-6
        reserved = look.reservation
        self.promised = (reserved.job.key, self.now + reserved.at_seconds) if reserved else None

    def teardown(self) -> None:
        """When nothing more comes and everything ends, every job that could ever run has its turn."""
        self.look()
        while self.running:
            self.end(min(self.running, key=lambda key: self.running[key].end))
            self.promised = None
            self.look()
        for job in self.waiting.values():
            alone = SchedulingCycle(make_ledger(**NODES), sites={})
            assert isinstance(alone.at(replace(job)), Waits)


TestBackfill = BackfillMachine.TestCase
TestBackfill.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
