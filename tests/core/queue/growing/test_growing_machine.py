"""The queue over time as a state machine: gangs with topology, pools that grow, lost nodes and preemption.

The machine plays the operator, which stores each request for new nodes, and the autoscaler, which adds them one by
one. Its model is plain: the nodes that exist, what each job holds, and who ends for whom.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from dovetail.api.builtin import Node
from dovetail.api.gpujob import Provisioning
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.topology import DEFAULT_LEVELS, HOSTNAME, Spread, Topology
from dovetail.engine.score.live_fragmentation import price_by
from dovetail.formats.durations import timestamp
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.growing.growth import Growth, build_growth
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import add_node, make_ask
from tests.core.engine.gang.rules import assert_kept
from tests.core.engine.gang.topologies import RACK, ZONE
from tests.core.engine.score.test_live_fragmentation import fragments_on
from tests.core.queue.machine import GUESS, HOUR, MIX, QueueMachine

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PREEMPTION = Rules(gap=10, min_run_seconds=0.0, grace_seconds=10.0)
# Its nodes are in a zone, and in no rack.
POOL = GrowingPool(
    name="v100",
    labels={"pool": "v100", ZONE: "z0"},
    max_nodes=3,
    gpus=4,
    model="V100",
    gpu_memory_mib=32768,
    cpu_milli=64_000,
    memory_mib=262_144,
)
GROWING = GrowingRules(pools=(POOL,), after_seconds=60, give_up_seconds=900, back_off_seconds=600)
EXISTING = {
    "a": (4, {ZONE: "z0", RACK: "r0"}),
    "b": (2, {ZONE: "z0", RACK: "r0"}),
    "c": (4, {ZONE: "z1", RACK: "r0"}),
    "d": (1, {}),
}


def rules(**more: object) -> Topology:
    return Topology(levels=DEFAULT_LEVELS, **more)  # type: ignore[arg-type]


TOPOLOGIES = [
    None,
    rules(),
    rules(required="zone"),
    rules(required="rack"),
    rules(required="host"),
    rules(preferred="rack"),
    rules(required="zone", preferred="host"),
    rules(group_size=2, group_level="host"),
    rules(required="zone", group_size=2, group_level="host"),
    rules(spreads=(Spread(label=HOSTNAME, max_skew=1),)),
]


class GrowingMachine(QueueMachine):
    """`requests` is what the jobs' statuses say; `told` has the job for which each victim is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.view = ClusterView(ledger=self.ledger)
        self.requests: dict[str, Provisioning] = {}
        self.added = 0
        for name, (gpus, labels) in EXISTING.items():
            self.add(name, gpus=gpus, labels=labels)
        price_by(fragments_on(self.ledger, *MIX), ledger=self.ledger)

    # --- What happens ------------------------------------------------------------------------------------------

    @rule(
        shape=st.sampled_from(["1", "2", "4", "0.5"]),
        workers=st.sampled_from([1, 2, 2, 4, 4, 6]),
        elastic=st.booleans(),
        hours=st.one_of(st.none(), st.integers(1, 4)),
        priority=st.sampled_from([10, 10, 20]),
        topology=st.sampled_from(TOPOLOGIES),
    )
    def submit(
        self, shape: str, workers: int, elastic: bool, hours: int | None, priority: int, topology: Topology | None
    ) -> None:
        key = f"job-{self.submitted:03d}"
        self.submitted += 1
        self.waiting[key] = Candidate(
            key=key,
            ask=replace(make_ask(shape), topology=None if workers == 1 else topology),
            workers=workers,
            least=2 if elastic and workers > 2 else None,
            priority=priority,
            created=timestamp(self.time),
            number=self.submitted,
            name=f"team/{key}",
            run_seconds=GUESS if hours is None else hours * HOUR,
            limited=hours is not None,
        )
        self.look()

    @rule(seconds=st.sampled_from([30.0, 120.0, 900.0, HOUR]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for key, run in list(self.running.items()):
            if run.job.limited and run.end <= self.now:
                self.end(key)
        self.look()

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.waiting:
            key = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[key]
            self.requests.pop(key, None)
            self.look()

    @rule()
    def grow(self) -> None:
        """The autoscaler adds one of the requested nodes, if the pool may have one more."""
        if self.is_requested and self.room:
            self.added += 1
            self.add(f"new-{self.added}", gpus=POOL.gpus, labels=dict(POOL.labels))
            self.look()

    @rule(data=st.data())
    def lose_a_node(self, data: st.DataObject) -> None:
        """Jobs with a worker there start again from the queue."""
        lost = data.draw(st.sampled_from(sorted(self.view.nodes)))
        for key, run in list(self.running.items()):
            if any(claim.node == lost for claim in run.claims):
                self.waiting[key] = run.job
                self.end(key)
        del self.view.nodes[lost]
        self.ledger.drop_node(lost)
        if len(self.view.nodes) < 2:
            self.add(f"{lost}-again", gpus=2, labels={ZONE: "z0", RACK: "r1"})
        self.look()

    @rule()
    def preempt(self) -> None:
        """The grace of the victims is over: the proof is repeated, and they leave."""
        self.look()
        if not self.told:
            return
        (by,) = set(self.told.values())
        gone = dict(self.told)
        for key in gone:
            self.waiting[key] = self.running[key].job
            self.end(key)
        self.look(left=gone)
        assert by in self.running, "the job for which others end starts"

    # --- The operator's part -----------------------------------------------------------------------------------

    def look(self, *, left: dict[str, str] | None = None) -> None:
        evictor = Evictor(running=self.evictable(left or {}), rules=PREEMPTION)
        before = self.ledger.content()
        growth = self.growth()
        cycle = SchedulingCycle(self.ledger.copy(), sites={}, leaving=self.leaving(), evictor=evictor, growth=growth)
        waiting = dict(self.waiting)
        verdicts = {job.key: cycle.at(job) for job in cycle.in_order(waiting.values())}
        assert self.ledger.content() == before
        for key, verdict in verdicts.items():
            self.check(waiting[key], verdict=verdict)
        self.requests = {
            key: verdict.provisioning
            for key, verdict in verdicts.items()
            if isinstance(verdict, Waits) and verdict.provisioning is not None
        }
        self.told = {key: each.by.key for key, each in evictor.orders.items()}
        for key, verdict in verdicts.items():
            if isinstance(verdict, Admitted):
                self.start(waiting[key], verdict)

    def check(self, job: Candidate, *, verdict: Verdict) -> None:
        if isinstance(verdict, Admitted):
            assert len(verdict.claims) >= (job.least or job.workers)
            self.check_rules(job, claims=verdict.claims)
            return
        assert isinstance(verdict, Waits)
        assert verdict.message
        if verdict.kept is not None:
            self.check_rules(job, claims=verdict.kept.claims)
        if verdict.provisioning is not None and verdict.provisioning.retry_time is None:
            self.check_request(job, request=verdict.provisioning)
        if verdict.reason == "ExceedsCapacity":
            assert isinstance(self.alone(job), Waits), "a job that never fits does not fit an empty cluster"

    def check_rules(self, job: Candidate, *, claims: Iterable[Claim]) -> None:
        if job.ask.topology is not None:
            assert_kept(tuple(claims), topology=job.ask.topology, ledger=self.ledger)

    def check_request(self, job: Candidate, *, request: Provisioning) -> None:
        """With the nodes that were requested for it, the job has room."""
        ledger = self.ledger.copy()
        for number in range(min(request.nodes, self.room)):
            add_node(ledger, f"promised-{number}", gpus=POOL.gpus, labels=dict(POOL.labels))
        (verdict,) = admit([job], ledger=ledger, sites={})
        assert isinstance(verdict, Admitted), (request, verdict)

    def alone(self, job: Candidate) -> Verdict:
        """The verdict on the job if nothing else ran and the pool had all its nodes."""
        ledger = Ledger()
        for name, node in self.view.nodes.items():
            add_node(ledger, name, gpus=len(self.ledger.devices(name)), labels=dict(node.metadata.labels))
        for number in range(self.room):
            add_node(ledger, f"last-{number}", gpus=POOL.gpus, labels=dict(POOL.labels))
        (verdict,) = admit([job], ledger=ledger, sites={})
        return verdict

    def growth(self) -> Growth | None:
        return build_growth(GROWING, view=self.view, requests=self.requests, gate=None, now=self.time)

    # --- The nodes ---------------------------------------------------------------------------------------------

    @property
    def time(self) -> datetime:
        return START + timedelta(seconds=self.now)

    @property
    def is_requested(self) -> bool:
        """Whether a request is under way."""
        return any(each.retry_time is None for each in self.requests.values())

    @property
    def room(self) -> int:
        """How many nodes the pool may still get."""
        return POOL.max_nodes - sum(POOL.has(node) for node in self.view.nodes.values())

    def add(self, name: str, *, gpus: int, labels: dict[str, str]) -> None:
        meta = {"name": name, "labels": labels, "creationTimestamp": timestamp(self.time)}
        self.view.nodes[name] = msgspec.convert({"metadata": meta}, Node)
        add_node(self.ledger, name, gpus=gpus, labels=labels)

    @invariant()
    def gangs_that_run_keep_their_rules(self) -> None:
        for run in self.running.values():
            self.check_rules(run.job, claims=run.claims)

    @invariant()
    def only_waiting_jobs_request_nodes(self) -> None:
        assert self.requests.keys() <= self.waiting.keys()

    def teardown(self) -> None:
        """When every job ends and every requested node comes, the jobs that could ever run have their turn."""
        for _ in range(3 * len(self.waiting) + 3):
            for key in list(self.running):
                self.end(key)
            self.now += 7 * HOUR
            self.look()
            while self.is_requested and self.room and not self.running:
                self.grow()
        for job in self.waiting.values():
            assert isinstance(self.alone(job), Waits), "a job that fits the cluster has its turn"


TestGrowing = GrowingMachine.TestCase
TestGrowing.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
