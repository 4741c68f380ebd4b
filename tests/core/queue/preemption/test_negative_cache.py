"""What was sought in vain is not sought again, and what is remembered of it never changes who makes way for whom."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, rule

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.machine import GUESS, HOUR, NODES, QueueMachine, Run
from tests.core.queue.preemption.test_policy import BOSS, RULES, start


class Asking:
    """Asks again and again whether somebody makes way for the boss, as looks at the queue do."""

    def __init__(self, ledger: Ledger, running: list[Running]) -> None:
        self.ledger = ledger
        self.running = running
        self.rules = RULES
        self.boss = BOSS
        self.negative_cache = NegativeCache()

    def orders(self) -> set[str]:
        evictor = Evictor(running=self.running, rules=self.rules, negative_cache=self.negative_cache)
        evictor.preempt(self.boss, ledger=self.ledger, sites={}, otherwise=None)
        return set(evictor.orders)

    def is_sought(self) -> bool:
        """Whether the next time somebody was set aside to see whether there is room without."""
        before = self.ledger.changes
        self.orders()
        return self.ledger.changes > before


def asking() -> Asking:
    """Two jobs of two GPUs and a pod that stays: nothing makes room for four."""
    ledger = make_ledger(n=6)
    hold_devices(ledger, "n", 4)
    low = start(ledger, make_job("low", "2"))
    equal = start(ledger, make_job("equal", "2", priority=45))
    found = Asking(ledger, [low, equal])
    assert found.orders() == set()
    return found


def test_what_was_sought_in_vain_is_not_sought_again_while_nothing_changes() -> None:
    queue = asking()
    assert not queue.is_sought()
    queue.ledger = queue.ledger.copy()
    queue.running = [replace(each, run_seconds=each.run_seconds + 5.0) for each in queue.running]
    assert not queue.is_sought()


def test_it_is_sought_again_once_a_job_is_old_enough() -> None:
    queue = asking()
    queue.running.append(start(queue.ledger, make_job("new", "1"), run_seconds=0.0))
    assert queue.is_sought(), "something else is taken"
    assert not queue.is_sought()
    queue.running[-1] = replace(queue.running[-1], run_seconds=300.0)
    assert queue.is_sought()


def end_the_equal_one(queue: Asking) -> None:
    for key in queue.running.pop().claims:
        queue.ledger.release(key)


def ask_more_modestly(queue: Asking) -> None:
    queue.boss = replace(BOSS, ask=make_ask("2"))


def raise_its_priority(queue: Asking) -> None:
    queue.boss = replace(BOSS, priority=60)


def lower_the_gap(queue: Asking) -> None:
    queue.rules = replace(RULES, gap=5)


def add_devices(queue: Asking) -> None:
    queue.ledger.set_devices("n", devices=[make_device("n", index) for index in range(7)])


@pytest.mark.parametrize(
    "happens", [end_the_equal_one, ask_more_modestly, raise_its_priority, lower_the_gap, add_devices]
)
def test_whatever_makes_it_possible_is_noticed_at_once(happens) -> None:  # type: ignore[no-untyped-def]
    queue = asking()
    happens(queue)
    assert "uid-low" in queue.orders()


def test_others_of_the_same_number_may_be_enough() -> None:
    queue = asking()
    low, equal = queue.running
    large = replace(equal, claims=(*equal.claims, *low.claims), priority=10)
    queue.running = [replace(low, claims=()), replace(large, run_seconds=0.0)]
    assert queue.orders() == set()
    queue.running = [replace(queue.running[0], run_seconds=0.0), large]
    assert queue.orders() == {"uid-equal"}


def test_another_hour_brings_another_budget() -> None:
    queue = asking()
    queue.rules = replace(RULES, gap=5, left=1)
    assert queue.orders() == set()
    assert not queue.is_sought()
    queue.rules = replace(RULES, gap=5, left=2)
    assert queue.orders() == {"uid-low", "uid-equal"}


def test_a_node_that_a_job_may_go_to_from_now_on_is_noticed() -> None:
    ledger = make_ledger(n=4, m=2)
    low = start(ledger, make_job("low", "4"))
    negative_cache, boss = NegativeCache(), replace(BOSS, site="some")
    for nodes, made in ((["m"], set()), (["m", "n"], {"uid-low"})):
        evictor = Evictor(running=[low], rules=RULES, negative_cache=negative_cache)
        evictor.preempt(boss, ledger=ledger, sites={"some": nodes}, otherwise=None)
        assert set(evictor.orders) == made


def test_of_many_that_ask_in_vain_a_few_are_remembered() -> None:
    queue = asking()
    for number in range(100):
        queue.boss = replace(BOSS, key=f"boss-{number}")
        assert queue.is_sought()
    assert not queue.is_sought()
    queue.boss = BOSS
    assert queue.is_sought()


# --- the property ----------------------------------------------------------------------------------------------------


class InVainMachine(QueueMachine):
    """Each look is taken twice: by one that remembers all looks before, and by one that knows of none."""

    def __init__(self) -> None:
        super().__init__()
        self.negative_cache = NegativeCache()
        self.rules = Rules(gap=10, min_run_seconds=HOUR, grace_seconds=10.0, per_job=2, left=2)
        self.kept: Window | None = None
        self.made_way: dict[str, int] = {}

    @initialize(shapes=st.lists(st.sampled_from(["1", "2", "4", "0.5"]), min_size=3, max_size=6))
    def begin_with_a_full_cluster_and_one_who_waits(self, shapes: list[str]) -> None:
        for each in shapes:
            self.submit(each, workers=1, least=None, hours=None, priority=10)
        self.now += self.rules.min_run_seconds / 2
        self.submit("1", workers=2, least=None, hours=None, priority=30)
        self.submit("3", workers=1, least=None, hours=None, priority=40)

    @rule(
        shape=st.sampled_from(["1", "2", "4", "0.5", "2x0.5", "3"]),
        workers=st.integers(1, 3),
        least=st.one_of(st.none(), st.integers(1, 3)),
        hours=st.one_of(st.none(), st.integers(1, 4)),
        priority=st.sampled_from([10, 10, 20, 30, 40]),
    )
    def submit(self, shape: str, workers: int, least: int | None, hours: int | None, priority: int) -> None:
        key = f"job-{self.submitted:03d}"
        self.submitted += 1
        self.waiting[key] = Candidate(
            key=key,
            ask=make_ask(shape),
            workers=workers,
            least=None if least is None else min(least, workers),
            priority=priority,
            created=key,
            name=f"team/{key}",
            run_seconds=GUESS if hours is None else hours * HOUR,
            limited=hours is not None,
        )
        self.look()

    @rule(hours=st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    def pass_time(self, hours: float) -> None:
        self.now += hours * HOUR
        self.look()

    @rule(left=st.integers(0, 3), min_hours=st.sampled_from([0.0, 1.0]), gap=st.sampled_from([5, 10, 20]))
    def change_the_rules(self, left: int, min_hours: float, gap: int) -> None:
        self.rules = replace(self.rules, left=left, min_run_seconds=min_hours * HOUR, gap=gap)
        self.look()

    @rule(gpus=st.integers(0, 4), begins=st.sampled_from([0.0, HOUR]))
    def keep(self, gpus: int, begins: float) -> None:
        window = Window(name="w", quota="q", at_seconds=begins, until_seconds=begins + HOUR, gpus=gpus, until="then")
        self.kept = window if gpus else None
        self.look()

    @rule(name=st.sampled_from(["a", "b", "c"]), gpus=st.integers(1, 4))
    def change_a_node(self, name: str, gpus: int) -> None:
        """A device comes, goes or turns bad; those that run there stay."""
        bad = [make_device(name, index, healthy=index < gpus) for index in range(NODES.get(name, gpus))]
        if name == "c":
            add_node(self.ledger, name, gpus=gpus)
        else:
            self.ledger.set_devices(name, devices=bad)
        self.look()

    @rule()
    def make_way(self) -> None:
        """Those who were told are gone, and wait at their old age."""
        for key in self.told:
            self.waiting[key] = self.running[key].job
            self.made_way[key] = self.made_way.get(key, 0) + 1
            self.end(key)
        self.look()

    def look(self) -> None:
        anew, remembering = self.evictor(NegativeCache()), self.evictor(self.negative_cache)
        looks = [self.one_look(evictor) for evictor in (anew, remembering)]
        for job in order(self.waiting.values()):
            first, second = (look.at(job) for look in looks)
            assert first == second
            if isinstance(first, Admitted):
                self.start(job, first)
        assert anew.orders == remembering.orders
        self.told = {key: each.by.key for key, each in anew.orders.items()}

    def one_look(self, evictor: Evictor) -> SchedulingCycle:
        wanted = [] if self.kept is None else [self.kept]
        windows = Windows(reservations=placed(wanted, ledger=self.ledger, leaving=self.leaving()), wanted=wanted)
        return SchedulingCycle(self.ledger.copy(), sites={}, leaving=self.leaving(), evictor=evictor, windows=windows)

    def evictor(self, negative_cache: NegativeCache) -> Evictor:
        return Evictor(running=self.evictable({}), rules=self.rules, negative_cache=negative_cache)

    def as_running(self, run: Run) -> Running:
        return replace(super().as_running(run), preempted=self.made_way.get(run.job.key, 0))

    def no_device_is_promised_beyond_itself(self) -> None:
        """Elsewhere; here devices go while jobs are on them."""


TestInVain = InVainMachine.TestCase
TestInVain.settings = settings(max_examples=25, stateful_step_count=20, deadline=None, derandomize=True)
