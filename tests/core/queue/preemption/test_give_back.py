"""Whose jobs end for a reserve: scenarios of one cycle each, beside the cycle's twin."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Windows, placed
from dovetail.queue.limits.guarantees import capacity_of, loans_of, quota_of
from dovetail.queue.limits.limits import LimitGate
from dovetail.queue.limits.quota_reservations import reserve_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving, Room, commit, find_room
from dovetail.queue.preemption.policy import Evictor, Order, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import CheckedCycle

RESERVE = "reserve/chat"


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A running job: its namespace, the GPUs of its one worker, and how long its pods take to end."""

    name: str
    namespace: str = "train"
    gpus: str = "4"
    leaves: float | None = 600.0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    running: tuple[Runs, ...]
    ends: dict[str, str]
    quotas: tuple[GPUQuota, ...] = ()
    waiting: tuple[tuple[str, str, str], ...] = ()
    starts: tuple[str, ...] = ()
    nodes: dict[str, int] = field(default_factory=lambda: {"n": 8})


def chat(guaranteed: int = 8, *, gpus: int = 4, each: int = 1, within: int = 60) -> GPUQuota:
    reserve = {"gpus": gpus, "gpusPerReplica": each, "leaveWithinSeconds": within}
    return make_quota("chat", guaranteed=guaranteed, reserve=reserve)


CASES = (
    Case(
        says="a job that leaves in time keeps its GPUs",
        quotas=(chat(),),
        running=(Runs(name="x", gpus="8", leaves=30.0),),
        ends={},
    ),
    Case(
        says="one that would not leaves the reserve, the least lost work first",
        quotas=(chat(),),
        running=(Runs(name="x", facts={"run_seconds": 500.0}), Runs(name="y", facts={"run_seconds": 100.0})),
        ends={"y": RESERVE},
    ),
    Case(
        says="beside one that leaves in time, none has to end",
        quotas=(chat(),),
        running=(Runs(name="x"), Runs(name="y", leaves=30.0)),
        ends={},
    ),
    Case(
        says="free GPUs are ready",
        quotas=(chat(),),
        running=(Runs(name="x"),),
        ends={},
    ),
    Case(
        says="what the quota uses of its guarantee, its reserve does not ask for again",
        quotas=(chat(8, gpus=8),),
        running=(Runs(name="mine", namespace="chat"), Runs(name="x")),
        ends={"x": RESERVE},
    ),
    Case(
        says="beyond its guarantee nothing is kept ready",
        quotas=(chat(4, gpus=4),),
        running=(Runs(name="mine", namespace="chat"), Runs(name="x")),
        ends={},
    ),
    Case(
        says="a borrower keeps its own guarantee",
        quotas=(chat(4), make_quota("train", guaranteed=4)),
        running=(Runs(name="x"), Runs(name="y", namespace="other")),
        ends={"y": RESERVE},
    ),
    Case(
        says="jobs that leave in time count together, as far as their quota keeps its guarantee",
        quotas=(chat(4), make_quota("train", guaranteed=4)),
        running=(Runs(name="x", leaves=30.0), Runs(name="y", leaves=30.0)),
        ends={},
    ),
    Case(
        says="nothing ends for a reserve that it does not make ready",
        quotas=(chat(gpus=4, each=4),),
        running=(Runs(name="firm", gpus="5", leaves=None, facts={"preemptible": False}), Runs(name="x", gpus="3")),
        ends={},
    ),
    Case(
        says="as much as can be ready comes back",
        quotas=(chat(gpus=8, each=4),),
        running=(Runs(name="firm", leaves=None, facts={"preemptible": False}), Runs(name="x")),
        ends={"x": RESERVE},
    ),
    Case(
        says="replicas of two GPUs need them on one node",
        quotas=(chat(2, gpus=2, each=2),),
        running=(Runs(name="x", gpus="1"), Runs(name="y", gpus="1"), Runs(name="z", gpus="1")),
        nodes={"n": 2, "m": 2},
        ends={"z": RESERVE},
    ),
    Case(
        says="who was told to leave is the one that leaves",
        quotas=(chat(),),
        running=(
            Runs(name="x", facts={"run_seconds": 500.0, "yields_to": RESERVE}),
            Runs(name="y", facts={"run_seconds": 100.0}),
        ),
        ends={"x": RESERVE},
    ),
    Case(
        says="who no longer has to leave is told so",
        quotas=(chat(),),
        running=(Runs(name="x", facts={"yields_to": RESERVE}), Runs(name="y", leaves=30.0)),
        ends={},
    ),
    Case(
        says="a job of the quota starts in the reserve",
        quotas=(chat(),),
        running=(Runs(name="x", leaves=30.0),),
        waiting=(("replica", "chat", "4"),),
        starts=("replica",),
        ends={},
    ),
    Case(
        says="for a job of the quota those end that leave in time, whatever they lose",
        quotas=(chat(),),
        running=(
            Runs(name="x", leaves=30.0, facts={"run_seconds": 900.0}),
            Runs(name="y", facts={"run_seconds": 100.0}),
        ),
        waiting=(("replica", "chat", "4"),),
        ends={"x": "replica", "y": RESERVE},
    ),
    Case(
        says="a job that would not leave in time does not start in the reserve",
        quotas=(chat(),),
        running=(Runs(name="x"),),
        waiting=(("slow", "train", "4"),),
        ends={},
    ),
    Case(
        says="a job that leaves in time does",
        quotas=(chat(),),
        running=(Runs(name="x"),),
        waiting=(("quick", "train", "4"),),
        starts=("quick",),
        ends={},
    ),
)


class Scene:
    """One cycle of a case."""

    def __init__(self, case: Case, *, grace_seconds: float = 30.0) -> None:
        self.ledger = make_ledger(**case.nodes)
        self.running: list[Running] = []
        self.counted: list[Counted] = []
        self.leaving: list[Leaving] = []
        self.quotas = case.quotas
        for each in case.running:
            self.run(each)
        waiting = [self.wait(*each) for each in case.waiting]
        gate = self.gate()
        loans = gate.loans
        assert loans is not None
        self.evictor = Evictor(running=self.running, rules=Rules(reclaim_grace_seconds=grace_seconds))
        windows = self.windows(gate)
        look = CheckedCycle(
            self.ledger, sites={}, leaving=self.leaving, gate=gate, evictor=self.evictor, windows=windows
        )
        self.verdicts: dict[str, Verdict] = {job.key: look.at(job) for job in look.in_order(waiting)}
        look.end()

    def run(self, runs: Runs) -> None:
        job = make_job(runs.name, runs.gpus)
        found = find_room(job, ledger=self.ledger, fit_cache=FitCache(self.ledger), sites={})
        assert isinstance(found, Room), runs.name
        commit(found.claims, job=job, ledger=self.ledger)
        keys = tuple(claim.key for claim in found.claims)
        self.running.append(
            Running(**{"key": job.key, "priority": 0, "run_seconds": 100.0, "claims": keys} | runs.facts)
        )
        self.leaving += [Leaving(key=key, job=job.key, at_seconds=86400.0, assumed=True) for key in keys]
        self.count(job, runs.namespace, leaves=runs.leaves, preemptible=runs.facts.get("preemptible", True))

    def wait(self, name: str, namespace: str, gpus: str) -> Candidate:
        leaves = 600.0 if name == "slow" else 30.0
        job = replace(make_job(name, gpus), leave_seconds=leaves)
        self.count(job, namespace, leaves=leaves, queued=True)
        return job

    def count(
        self, job: Candidate, namespace: str, *, leaves: float | None, queued: bool = False, preemptible: bool = True
    ) -> None:
        self.counted.append(
            Counted(
                uid=job.key,
                subject=Subject(namespace=namespace, user="ada"),
                milli=round(job.gpus * 1000),
                queued=queued,
                preemptible=preemptible,
                leave_seconds=leaves,
            )
        )

    def gate(self) -> LimitGate:
        loans = loans_of(
            tree_of(self.quotas, capacity=capacity_of(self.ledger)),
            counted=self.counted,
            pods=(),
            quota_of=lambda subject: quota_of(self.quotas, subject=subject),
            recent={},
        )
        return LimitGate({}, loans=loans)

    def windows(self, gate: LimitGate) -> Windows:
        """The reserve of the first quota."""
        loans = gate.loans
        assert loans is not None
        window = reserve_of(self.quotas[0], loans=loans, leaving=self.leaving)
        wanted = [] if window is None else [window]
        own = {each.uid: frozenset({"chat"}) for each in self.counted if each.subject.namespace == "chat"}
        return Windows(
            reservations=placed(wanted, ledger=self.ledger, leaving=self.leaving), quotas_of=own, wanted=wanted
        )

    @property
    def orders(self) -> dict[str, Order]:
        return {key.removeprefix("uid-"): order for key, order in self.evictor.orders.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_give_back(case: Case) -> None:
    scene = Scene(case)
    assert {victim: order.by.key.removeprefix("uid-") for victim, order in scene.orders.items()} == case.ends
    started = {key.removeprefix("uid-") for key, verdict in scene.verdicts.items() if isinstance(verdict, Admitted)}
    assert started == set(case.starts)


def case_that(says: str) -> Case:
    return next(case for case in CASES if case.says == says)


def test_the_job_that_leaves_is_told_for_whom_and_why() -> None:
    (order,) = Scene(case_that("as much as can be ready comes back")).orders.values()
    assert order.reclaim == (
        "Is ended for GPUQuota chat: 8 GPUs of its guarantee are to be ready (reserve), and the pods of this job need "
        "more than 60 s to end"
    )
    assert order.grace_seconds == 30.0


@pytest.mark.parametrize(("grace", "notice"), [(30.0, 28.0), (10.0, 10.0)])
def test_a_job_that_leaves_in_time_gets_the_notice_that_is_left(grace: float, notice: float) -> None:
    scene = Scene(
        case_that("for a job of the quota those end that leave in time, whatever they lose"), grace_seconds=grace
    )
    assert scene.orders["x"].grace_seconds == notice


def test_a_burst_beyond_the_reserve_has_its_gpus_in_time_too() -> None:
    training = tuple(Runs(name=f"train{at}", gpus="1", leaves=30.0) for at in range(8))
    burst = tuple((f"replica{at}", "chat", "1") for at in range(8))
    case = Case(says="", quotas=(chat(gpus=2, within=45),), running=training, waiting=burst, ends={})
    orders = Scene(case).orders.values()
    assert {order.by.name for order in orders} == {f"team/replica{at}" for at in range(8)}
    assert max(order.grace_seconds for order in orders) + 30.0 <= 45.0


def test_a_job_that_the_reserve_keeps_waiting_hears_who_may_use_it() -> None:
    verdict = Scene(case_that("a job that would not leave in time does not start in the reserve")).verdicts["uid-slow"]
    assert isinstance(verdict, Waits)
    assert verdict.reason == "Reserved"
    assert verdict.message.endswith(
        "4 GPUs are kept ready for GPUQuota chat (reserve): jobs may use them whose pods end within 60 s"
    )
