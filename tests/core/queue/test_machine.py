"""The queue over time as a state machine: jobs come, are let go, get nodes and end, in any order.

What the machine keeps beside the queue is dumb: which device each job holds, and nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.topology import DEFAULT_LEVELS, Spread, Topology
from dovetail.engine.score.live_fragmentation import price_by
from dovetail.queue.cycle import admit
from dovetail.queue.model.candidates import Candidate, claim_on_the_way
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import add_node, make_ask, make_ledger
from tests.core.engine.gang.rules import assert_kept
from tests.core.engine.gang.topologies import RACK
from tests.core.engine.score.test_live_fragmentation import fragments_on
from tests.core.queue.machine import MIX

SHAPES = ["1", "2", "4", "0.5", "0.25", "8G,0.5"]
# Two racks with one node each, and a node in none.
RACKS = {"a": "r0", "b": "r1"}
TOPOLOGIES = [
    None,
    Topology(levels=DEFAULT_LEVELS),
    Topology(levels=DEFAULT_LEVELS, required="rack"),
    Topology(levels=DEFAULT_LEVELS, preferred="rack"),
    Topology(levels=DEFAULT_LEVELS, spreads=(Spread(label=RACK, max_skew=1),)),
]


class QueueMachine(RuleBasedStateMachine):
    """The operator's part is played by the rules: what was let go is on the way until a rule binds it."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = make_ledger(a=4, b=2, c=1)
        for name, rack in RACKS.items():
            add_node(self.ledger, name, gpus=len(self.ledger.devices(name)), labels={RACK: rack})
        price_by(fragments_on(self.ledger, *MIX), ledger=self.ledger)
        self.waiting: dict[str, Candidate] = {}
        self.let_go: dict[str, Candidate] = {}
        self.on_cpu: dict[str, Candidate] = {}
        self.now = 0.0
        # When each job falls back on the CPU, by its key: a time, never, or only where no node could ever serve it.
        self.cpu_at: dict[str, float | None] = {}
        self.bound: dict[str, list[Claim]] = {}
        self.ended: set[str] = set()
        self.submitted: set[str] = set()

    @rule(
        target=jobs,
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 3),
        priority=st.integers(0, 2),
        cpu_after=st.sampled_from([None, None, 0.0, 60.0, 600.0, math.inf]),
        topology=st.sampled_from(TOPOLOGIES),
    )
    def submit(
        self, shape: str, workers: int, priority: int, cpu_after: float | None, topology: Topology | None
    ) -> str:
        key = f"job-{len(self.submitted):03d}"
        self.submitted.add(key)
        self.cpu_at[key] = None if cpu_after is None else self.now + cpu_after
        self.waiting[key] = Candidate(
            key=key,
            ask=replace(make_ask(shape), topology=topology),
            workers=workers,
            priority=priority,
            created=f"{len(self.submitted):03d}",
            name=key,
        )
        return key

    @rule()
    def look(self) -> None:
        waiting = [replace(job, cpu_in_seconds=self._cpu_in(job.key)) for job in self.waiting.values()]
        verdicts = self._verdicts(waiting)
        assert {verdict.key for verdict in verdicts} == set(self.waiting)
        self._nobody_else_notices_who_falls_back(waiting, verdicts)
        for verdict in verdicts:
            if isinstance(verdict, Admitted) and verdict.on_cpu:
                assert not verdict.claims
                self.on_cpu[verdict.key] = self.waiting.pop(verdict.key)
            elif isinstance(verdict, Admitted):
                self._keeps_its_topology(verdict.claims, ask=self.waiting[verdict.key].ask)
                self.let_go[verdict.key] = self.waiting.pop(verdict.key)
            else:
                assert isinstance(verdict, Waits)
                assert verdict.message
                if verdict.kept is not None:
                    self._keeps_its_topology(verdict.kept.claims, ask=self.waiting[verdict.key].ask)
                self._may_wait(verdict)

    def _keeps_its_topology(self, claims: Sequence[Claim], *, ask: Ask) -> None:
        if ask.topology is not None:
            assert_kept(claims, topology=ask.topology, ledger=self.ledger)

    def _verdicts(self, waiting: list[Candidate]) -> list[Verdict]:
        copy = self.ledger.copy()
        claim_on_the_way(self.let_go.values(), ledger=copy, sites={})
        return list(admit(waiting, ledger=copy, sites={}))

    def _nobody_else_notices_who_falls_back(self, waiting: list[Candidate], verdicts: list[Verdict]) -> None:
        fell_back = {each.key for each in verdicts if isinstance(each, Admitted) and each.on_cpu}
        assert all(self.cpu_at[key] is not None for key in fell_back)
        others = [job for job in waiting if job.key not in fell_back]
        assert self._verdicts(others) == [each for each in verdicts if each.key not in fell_back]

    def _may_wait(self, verdict: Waits) -> None:
        """Who is due waits for no GPU."""
        left = self._cpu_in(verdict.key)
        assert left is None or (left > 0 and verdict.reason != "ExceedsCapacity")

    def _cpu_in(self, key: str) -> float | None:
        at = self.cpu_at[key]
        return None if at is None else max(0.0, at - self.now)

    @rule(seconds=st.sampled_from([30.0, 60.0, 600.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

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
        self.on_cpu.pop(key, None)
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
        places = [*self.waiting, *self.let_go, *self.on_cpu, *self.bound, *self.ended]
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
