"""Trees, loans and reclaims over time, as a state machine.

The machine plays the operator's part: jobs that were notified end with the next look where the proof still holds.
In addition to the queue it keeps who runs since when and adds up the use of each quota by itself.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, rule

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.backfill.reservation import Reservation, set_aside
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.guarantees import capacity_of, loans_of, quota_of
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Room, find_room
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.tree import Tree
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ask
from tests.core.queue.machine import GUESS, HOUR, QueueMachine, Run
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import CheckedCycle

SHAPES = ["1", "2", "0.5"]
TEAMS = ("vision", "speech", "search", "guest")
RULES = Rules(reclaim_grace_seconds=0.0)


class TreeMachine(QueueMachine):
    """Six GPUs on two nodes, two departments with two and one teams, and guests outside the tree."""

    preemption = RULES
    cycle = SchedulingCycle

    def __init__(self) -> None:
        super().__init__()
        self.quotas: list[GPUQuota] = []
        self.team: dict[str, str] = {}
        self.firm: set[str] = set()
        # Pairs of jobs: the first was ended for the second.
        self.ended_for: list[tuple[str, str]] = []
        # Of the last look: the jobs that started, and the job whose start is reserved.
        self.started: set[str] = set()
        self.reserved: Reservation | None = None

    @initialize(
        research=st.one_of(st.none(), st.integers(0, 4)),
        limit=st.one_of(st.none(), st.integers(3, 6)),
        amounts=st.tuples(*[st.integers(0, 3)] * 3),
    )
    def plant(self, research: int | None, limit: int | None, amounts: tuple[int, int, int]) -> None:
        most = {} if limit is None else {"limit": {"gpus": limit}}
        self.quotas = [
            make_quota("research", guaranteed=research, parents_only=True, **most),
            make_quota("vision", parent="research", guaranteed=amounts[0]),
            make_quota("speech", parent="research", guaranteed=amounts[1], shares=2),
            make_quota("search", guaranteed=amounts[2]),
        ]

    # --- what happens --------------------------------------------------------------------------------------------

    @rule(
        team=st.sampled_from(TEAMS),
        shape=st.sampled_from(SHAPES),
        workers=st.integers(1, 2),
        priority=st.sampled_from([10, 10, 30]),
        firm=st.sampled_from([False, False, True]),
    )
    def submit(self, team: str, shape: str, workers: int, priority: int, firm: bool) -> None:
        self.add(team, shape=shape, workers=workers, priority=priority, firm=firm)
        self.look()

    @rule(team=st.sampled_from(TEAMS), shape=st.sampled_from(["1", "2"]))
    def crowd(self, team: str, shape: str) -> None:
        """One team fills what is free, and then some."""
        for _ in range(5):
            self.add(team, shape=shape)
        self.look()

    @rule(team=st.sampled_from(TEAMS[:3]), shape=st.sampled_from(["1", "2"]))
    def claim(self, team: str, shape: str) -> None:
        """A team asks for what may be its guarantee, and all that follows happens."""
        self.add(team, shape=shape)
        self.settle()

    def add(self, team: str, *, shape: str, workers: int = 1, priority: int = 10, firm: bool = False) -> None:
        key = f"{team}-{self.submitted:03d}"
        self.submitted += 1
        self.team[key] = team
        if firm:
            self.firm.add(key)
        self.waiting[key] = Candidate(
            key=key,
            ask=make_ask(shape),
            workers=workers,
            priority=priority,
            created=f"{self.submitted:03d}",
            name=f"{team}/{key}",
            run_seconds=GUESS,
        )

    @rule(hours=st.sampled_from([0.5, 1.0, 3.0]))
    def pass_time(self, hours: float) -> None:
        self.now += hours * HOUR
        self.look()

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.waiting:
            del self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
            self.look()

    @rule()
    def settle(self) -> None:
        """Everything that was decided happens, until nothing more is decided: no circle of reclaims."""
        for _ in range(40):
            self.look()
            # A job that a look starts may end from the next one on.
            if not self.told and not self.started:
                break
            self.give_back()
        assert not self.told, "reclaims come to an end"
        self.check_no_owner_waits_in_vain()

    @rule()
    def give_back(self) -> None:
        """The notice of all is over: the proof is made once more, the jobs end, and those they ended for start."""
        self.look()
        ended = dict(self.told)
        for key, by in ended.items():
            self.check_ends(key, by=by)
        for key, by in ended.items():
            assert (by, key) not in self.ended_for[-len(ended) :], "who was ended does not take it back at once"
            self.waiting[key] = self.running[key].job
            self.end(key)
        self.ended_for += list(ended.items())
        self.look(left=ended)
        for by in set(ended.values()):
            self.check_start(by)

    def check_start(self, by: str) -> None:
        assert by in self.running, "the job for which others ended starts"

    # --- the operator's part -------------------------------------------------------------------------------------

    def look(self, *, left: dict[str, str] | None = None) -> None:
        evictor = Evictor(running=self.evictable(left or {}), rules=self.preemption)
        look = self.cycle(
            self.ledger.copy(),
            sites={},
            leaving=self.leaving(),
            gate=self.gate(),
            evictor=evictor,
            windows=self.windows(),
        )
        self.started = set()
        for job in look.in_order(self.waiting.values()):
            verdict = look.at(job)
            if isinstance(verdict, Admitted):
                self.start(job, verdict)
                self.started.add(job.key)
        look.end()
        self.reserved = look.reservation
        self.told = {key: each.by.key for key, each in evictor.orders.items()}

    def windows(self) -> Windows:
        """What is kept for a time; nothing here."""
        return Windows()

    def as_running(self, run: Run) -> Running:
        return replace(super().as_running(run), preemptible=run.job.key not in self.firm)

    def tree(self) -> Tree:
        return tree_of(self.quotas, capacity=capacity_of(self.ledger))

    def counted(self) -> list[Counted]:
        everyone = [*((job, True) for job in self.waiting.values()), *((r.job, False) for r in self.running.values())]
        return [
            Counted(
                uid=job.key,
                subject=self.subject(job.key),
                milli=round(job.gpus * 1000),
                queued=queued,
                preemptible=job.key not in self.firm,
            )
            for job, queued in everyone
        ]

    def subject(self, key: str) -> Subject:
        return Subject(namespace=self.team[key], user="ada")

    def gate(self) -> LimitGate:
        counted = self.counted()
        loans = loans_of(
            self.tree(), counted=counted, pods=(), quota_of=lambda subject: quota_of(self.quotas, subject=subject),
            recent={},
        )  # fmt: skip
        terms = {
            each.uid: limits_of(self.quotas, subject=each.subject, takes=Takes(milli=each.milli)) for each in counted
        }
        return LimitGate(terms, running=list(self.running), loans=loans)

    # --- what is checked, from numbers of its own ----------------------------------------------------------------

    def path(self, key: str) -> list[str]:
        """The quotas above a job, the nearest first."""
        return {"vision": ["vision", "research"], "speech": ["speech", "research"], "search": ["search"]}.get(
            self.team[key], []
        )

    def used(self, quota: str, *, without: frozenset[str] = frozenset()) -> int:
        return sum(run.milli for key, run in self.running.items() if quota in self.path(key) and key not in without)

    def guaranteed(self, quota: str) -> int:
        tree = self.tree()
        return tree.nodes[tree.by_name[quota]].guaranteed_milli

    def owner(self, key: str, *, without: frozenset[str] = frozenset()) -> str | None:
        need = round(self.waiting[key].gpus * 1000)
        return next(
            (each for each in self.path(key) if self.used(each, without=without) + need <= self.guaranteed(each)), None
        )

    def check_ends(self, key: str, *, by: str) -> None:
        """A job ends for an owner alone, and no quota that the two do not share falls below its guarantee."""
        ended = frozenset(self.told)
        # Those for which others end take their place in the quotas above both.
        coming = {each for each in self.told.values() if each != by}
        assert key not in self.firm
        own = self.path(by)
        assert self.owner(by, without=ended) is not None, "only a quota below its guarantee takes"
        for quota in self.path(key):
            if quota in own:
                break
            comes = sum(round(self.waiting[each].gpus * 1000) for each in coming if quota in self.path(each))
            assert self.used(quota, without=ended) + comes >= self.guaranteed(quota), (
                f"{quota} loses below its guarantee"
            )

    def check_no_owner_waits_in_vain(self) -> None:
        """Where an owner waits, no set of borrowers' jobs starts it without taking from a guarantee.

        The first job that waits keeps the start that is reserved for it.
        """
        for key in list(self.waiting):
            owner = self.owner(key)
            if owner is None:
                continue
            for victims in self.possible_victims(key, owner=owner):
                keys = [claim.key for each in victims for claim in self.running[each].claims]
                with self.ledger.without(keys):
                    left = self.left_by_reservation(key, ended=victims)
                    found = find_room(self.waiting[key], ledger=left, fit_cache=FitCache(left), sites={})
                limited = not self.gate().allows_without(self.waiting[key], ended=victims)
                assert limited or not isinstance(found, Room), f"{key} waits, and {victims} could be asked"

    def left_by_reservation(self, key: str, *, ended: tuple[str, ...]) -> Ledger:
        """What the reservation of another job leaves."""
        if self.reserved is None or self.reserved.job.key == key:
            return self.ledger
        leaving = [each for each in self.leaving() if each.job not in ended]
        return set_aside(self.reserved, ledger=self.ledger, leaving=leaving)

    def possible_victims(self, key: str, *, owner: str) -> Iterator[tuple[str, ...]]:
        own = self.path(key)
        inside = own[: own.index(owner) + 1]
        may = [
            each
            for each in self.running
            if each not in self.firm and not any(quota in inside for quota in self.path(each))
        ]
        for size in range(1, min(4, len(may)) + 1):
            for victims in combinations(may, size):
                ended = frozenset(victims)
                apart = {quota for each in victims for quota in self.path(each) if quota not in own}
                if all(self.used(quota, without=ended) >= self.guaranteed(quota) for quota in apart):
                    yield victims

    @invariant()
    def a_job_that_may_not_be_preempted_is_within_a_guarantee(self) -> None:
        for quota in ("vision", "speech", "search"):
            firm = sum(run.milli for key, run in self.running.items() if key in self.firm and quota in self.path(key))
            assert not self.quotas or firm <= self.guaranteed(quota)


class WindowsMachine(TreeMachine):
    """The same with advance reservations of one team, small jobs before those for whom others end, and preemption."""

    cycle = CheckedCycle
    preemption = replace(RULES, gap=10, min_run_seconds=0.0, grace_seconds=0.0, per_job=1000, left=1000)

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[float, float, int]] = []

    @rule(begins=st.integers(0, 2), hours=st.integers(1, 6), gpus=st.integers(1, 2))
    def keep(self, begins: int, hours: int, gpus: int) -> None:
        start = self.now + begins * HOUR
        self.kept = [*self.kept[-1:], (start, start + hours * HOUR, gpus)]
        self.look()

    @rule(teams=st.tuples(st.sampled_from(TEAMS), st.sampled_from(TEAMS)), shape=st.sampled_from(["0.5", "1"]))
    def two(self, teams: tuple[str, str], shape: str) -> None:
        """A small job comes before a larger one; what follows happens to both."""
        self.add(teams[0], shape="0.5", priority=60)
        self.add(teams[1], shape=shape, workers=2)
        self.settle()

    def windows(self) -> Windows:
        wanted = [
            Window(
                name=f"w{number}", quota="search", at_seconds=max(0.0, start - self.now), until_seconds=end - self.now,
                until="then", gpus=gpus,
            )
            for number, (start, end, gpus) in enumerate(self.kept)
            if end > self.now
        ]  # fmt: skip
        own = {key: frozenset({"search"}) for key in self.waiting if self.team[key] == "search"}
        reservations = placed(wanted, ledger=self.ledger, leaving=self.leaving())
        return Windows(reservations=reservations, quotas_of=own, wanted=wanted)

    def check_no_owner_waits_in_vain(self) -> None:
        """Windows keep owners waiting too."""

    def check_ends(self, key: str, *, by: str) -> None:
        """A job also ends for one of a higher priority."""
        if self.running[key].job.priority + self.preemption.gap > self.waiting[by].priority:
            super().check_ends(key, by=by)


TestWindows = WindowsMachine.TestCase
TestWindows.settings = settings(max_examples=12, stateful_step_count=20, deadline=None, derandomize=True)

TestTree = TreeMachine.TestCase
# The same cases each time: a search for others is made by hand, with more of them.
TestTree.settings = settings(max_examples=40, stateful_step_count=20, deadline=None, derandomize=True)


def test_jobs_that_end_for_two_owners_of_which_one_is_in_the_same_department_end_once() -> None:
    """The notice for the other one stands while the department's own job is about to take a place in it."""
    machine = TreeMachine()
    machine.plant(research=None, limit=4, amounts=(1, 3, 3))
    machine.claim(team="search", shape="1")
    machine.crowd(team="speech", shape="1")
    machine.crowd(team="search", shape="1")
    machine.add("vision", shape="1")
    machine.look()
    first = dict(machine.told)
    machine.look()
    assert sorted(first.values()) == ["search-007", "vision-011"]
    assert machine.told == first
    machine.settle()
    assert {"search-007", "vision-011"} <= machine.running.keys()


def test_a_job_that_was_ended_does_not_take_its_own_room_again() -> None:
    """It is older than the owner for whom it ended, and its turn comes first: it would be ended again and again."""
    machine = TreeMachine()
    machine.plant(research=4, limit=None, amounts=(2, 0, 0))
    machine.claim(team="speech", shape="1")
    machine.crowd(team="search", shape="2")
    machine.submit(team="speech", shape="1", workers=1, priority=30, firm=True)
    machine.submit(team="vision", shape="2", workers=2, priority=30, firm=False)
    machine.crowd(team="guest", shape="1")
    machine.pass_time(hours=3.0)
    machine.submit(team="speech", shape="1", workers=2, priority=10, firm=True)
    machine.submit(team="search", shape="0.5", workers=2, priority=30, firm=False)
    machine.pass_time(hours=1.0)
    machine.submit(team="speech", shape="2", workers=1, priority=10, firm=False)
    machine.submit(team="guest", shape="0.5", workers=2, priority=10, firm=False)
    machine.claim(team="search", shape="2")
    machine.pass_time(hours=1.0)
    machine.submit(team="speech", shape="0.5", workers=1, priority=10, firm=False)
    machine.pass_time(hours=0.5)
    machine.crowd(team="speech", shape="1")
    machine.pass_time(hours=0.5)
    machine.submit(team="vision", shape="0.5", workers=2, priority=30, firm=True)
    machine.claim(team="vision", shape="1")
    machine.give_back()
    assert "speech-018" in machine.running
