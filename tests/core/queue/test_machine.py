"""The queue over time as a state machine: jobs come, are let go, get nodes and end, in any order.

What the machine keeps beside the queue is dumb: which device each job holds, and nothing else.
"""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.engine.model.claims import Claim
from dovetail.queue.cycle import admit
from dovetail.queue.model.candidates import Candidate, claim_on_the_way
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ask, make_ledger

SHAPES = ["1", "2", "4", "0.5", "0.25", "8G,0.5"]


class QueueMachine(RuleBasedStateMachine):
    """The operator's part is played by the rules: what was let go is on the way until a rule binds it."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = make_ledger(a=4, b=2)
        self.waiting: dict[str, Candidate] = {}
        self.let_go: dict[str, Candidate] = {}
        self.bound: dict[str, list[Claim]] = {}
        self.ended: set[str] = set()
        self.submitted: set[str] = set()

    @rule(
        target=jobs,
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 3),
        priority=st.integers(0, 2),
    )
    def submit(self, shape: str, workers: int, priority: int) -> str:
        key = f"job-{len(self.submitted):03d}"
        self.submitted.add(key)
        self.waiting[key] = Candidate(
            key=key,
            ask=make_ask(shape),
            workers=workers,
            priority=priority,
            created=f"{len(self.submitted):03d}",
            name=key,
        )
        return key

    @rule()
    def look(self) -> None:
        copy = self.ledger.copy()
        claim_on_the_way(self.let_go.values(), ledger=copy, sites={})
        verdicts = list(admit(self.waiting.values(), ledger=copy, sites={}))
        assert {verdict.key for verdict in verdicts} == set(self.waiting)
        for verdict in verdicts:
            if isinstance(verdict, Admitted):
                self.let_go[verdict.key] = self.waiting.pop(verdict.key)
            else:
                assert isinstance(verdict, Waits)
                assert verdict.message

    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        """What was let go is bound where there is room when its turn comes; kube-scheduler may have another order."""
        if not self.let_go:
            return
        job = self.let_go[data.draw(st.sampled_from(sorted(self.let_go)))]
        (verdict,) = admit([job], ledger=self.ledger.copy(), sites={})
        if isinstance(verdict, Waits):
            return
        del self.let_go[job.key]
        self.bound[job.key] = list(verdict.claims)
        for claim in verdict.claims:
            self.ledger.commit(claim)

    @rule(key=consumes(jobs))
    def end(self, key: str) -> None:
        if key in self.ended:
            return
        self.waiting.pop(key, None)
        self.let_go.pop(key, None)
        for claim in self.bound.pop(key, ()):
            self.ledger.release(claim.key)
        self.ended.add(key)

    @rule(key=jobs, priority=st.integers(0, 2))
    def prefer(self, key: str, priority: int) -> None:
        if key in self.waiting:
            self.waiting[key] = replace(self.waiting[key], priority=priority)

    @rule()
    def end_all_that_runs(self) -> None:
        """On an empty cluster the first of those that were let go has room: none of them waits for ever."""
        for key in list(self.bound):
            for claim in self.bound.pop(key):
                self.ledger.release(claim.key)
            self.ended.add(key)
        for job in self.let_go.values():
            (verdict,) = admit([job], ledger=self.ledger.copy(), sites={})
            assert isinstance(verdict, Admitted)

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        places = [*self.waiting, *self.let_go, *self.bound, *self.ended]
        assert sorted(places) == sorted(self.submitted)

    @invariant()
    def no_device_is_promised_beyond_itself(self) -> None:
        promised: dict[str, int] = {}
        for claims in self.bound.values():
            for claim in claims:
                for device in claim.devices:
                    promised[device.uuid] = promised.get(device.uuid, 0) + device.share_milli
        assert all(milli <= 1000 for milli in promised.values())


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
