"""Computations that share the interpreter: they end when no one waits, and users take turns at their checkpoints."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from random import Random

import pytest

from dovetail.query.checkpoints import checkpoint
from dovetail_gateway.cluster.pacing import BURST_SECONDS, SHARE, AbandonedError, Pacing


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def work_for(cpu_seconds: float, *, then: Callable[[], None] = checkpoint) -> None:
    """Use the CPU for a while, with checkpoints."""
    end = time.thread_time() + cpu_seconds
    while time.thread_time() < end:
        then()


def test_a_computation_that_is_abandoned_ends_at_its_next_checkpoint() -> None:
    computation, steps = Pacing().computation("rita"), list[int]()

    def compute() -> None:
        for step in range(1000):
            steps.append(step)
            if step == 3:
                computation.abandon()
            checkpoint()

    with pytest.raises(AbandonedError):
        computation.run(compute)
    assert steps == [0, 1, 2, 3]


def test_one_that_is_abandoned_before_it_begins_does_nothing() -> None:
    computation = Pacing().computation("rita")
    computation.abandon()
    with pytest.raises(AbandonedError):
        computation.run(pytest.fail)


def test_the_value_and_the_error_of_a_computation_are_passed_on_and_nothing_is_left() -> None:
    pacing = Pacing()
    assert pacing.computation("rita").run(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        pacing.computation("rita").run(lambda: 1 // 0)
    assert not pacing._running


def test_a_checkpoint_outside_of_a_computation_does_nothing() -> None:
    checkpoint()


def test_one_of_a_user_who_had_a_lot_waits_for_one_of_a_user_who_had_nothing() -> None:
    pacing, order = Pacing(clock=Clock()), list[str]()
    light_is_there, heavy_goes_on = threading.Event(), threading.Event()
    pacing.computation("heavy").run(lambda: work_for(0.1))

    def heavy() -> None:
        light_is_there.wait()
        heavy_goes_on.set()
        work_for(0.01)
        order.append("heavy")

    def light() -> None:
        light_is_there.set()
        heavy_goes_on.wait()
        work_for(0.02)
        order.append("light")

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(pacing.computation(each.__name__).run, each) for each in (heavy, light)]
        for each in running:
            each.result(timeout=20)
    assert order == ["light", "heavy"]


def test_one_that_waits_goes_on_once_the_other_has_had_as_much() -> None:
    pacing = Pacing(clock=Clock())
    pacing.computation("heavy").run(lambda: work_for(0.05))
    both, heavy_ended = threading.Barrier(2), threading.Event()

    def heavy() -> None:
        both.wait(timeout=20)
        work_for(0.01)
        heavy_ended.set()

    def light() -> None:
        both.wait(timeout=20)
        while not heavy_ended.is_set():
            checkpoint()

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(pacing.computation(each.__name__).run, each) for each in (heavy, light)]
        for each in running:
            each.result(timeout=20)


def test_one_that_waits_for_its_turn_ends_when_it_is_abandoned() -> None:
    pacing = Pacing(clock=Clock())
    pacing.computation("heavy").run(lambda: work_for(0.1))
    both, may_end = threading.Barrier(2), threading.Event()
    waiting = pacing.computation("heavy")

    def heavy() -> None:
        both.wait(timeout=20)
        work_for(10.0)

    def light() -> None:
        both.wait(timeout=20)
        may_end.wait(timeout=20)

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(waiting.run, heavy)
        other = threads.submit(pacing.computation("light").run, light)
        waiting.abandon()
        with pytest.raises(AbandonedError):
            running.result(timeout=20)
        may_end.set()
        other.result(timeout=20)


def test_a_user_who_has_used_its_burst_has_its_share_and_others_go_on() -> None:
    clock = Clock()
    pacing = Pacing(clock=clock)
    pacing.begin(first := pacing.computation("heavy"), user="heavy")
    pacing.end(first, seconds=BURST_SECONDS + 1)
    assert pacing.debt("heavy") == (BURST_SECONDS + 1) / SHARE
    waiting = pacing.computation("heavy")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(waiting.run, lambda: "done")
        assert pacing.computation("light").run(lambda: "at once") == "at once"
        assert not running.done()
        clock.now = 1 / SHARE
        pacing.wake()
        assert running.result(timeout=20) == "done"


def test_what_one_service_account_computes_is_owed_by_all_of_its_namespace() -> None:
    pacing = Pacing(clock=lambda: 0.0)
    accounts = [pacing.computation(f"system:serviceaccount:{each}") for each in ("red:a", "red:b", "blue:a")]
    pacing.begin(accounts[0], user=accounts[0]._user)
    pacing.end(accounts[0], seconds=BURST_SECONDS)
    assert [pacing.debt(each._user) for each in accounts] == [BURST_SECONDS / SHARE] * 2 + [0.0]


def test_a_computation_rests_at_a_checkpoint_once_its_user_owes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_gateway.cluster.pacing.BURST_SECONDS", 0.01)
    clock = Clock()
    pacing = Pacing(clock=clock)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(pacing.computation("heavy").run, lambda: work_for(0.05))
        while not running.done():
            if pacing.debt("heavy") > 0.01 / SHARE:
                clock.now += 0.01
                pacing.wake()
        running.result()
    assert clock.now >= 0.04 / SHARE - 0.04, "it has had its share of the time that went by"


def test_one_that_rests_ends_when_it_is_abandoned() -> None:
    pacing = Pacing(clock=Clock())
    pacing.begin(first := pacing.computation("heavy"), user="heavy")
    pacing.end(first, seconds=1000.0)
    resting = pacing.computation("heavy")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(resting.run, pytest.fail)
        resting.abandon()
        with pytest.raises(AbandonedError):
            running.result(timeout=20)
    assert not pacing._running


def test_what_a_user_owes_is_forgotten_once_it_is_paid() -> None:
    clock = Clock()
    pacing = Pacing(clock=clock)
    pacing.computation("heavy").run(lambda: work_for(0.05))
    assert pacing.debt("heavy") >= 0.05 / SHARE
    clock.now = 200.0
    pacing.computation("other").run(lambda: work_for(0.01))
    assert set(pacing._paid_at) == {"other"}


class Stepped:
    """A computation in a thread of its own that does one step of a walk after the other."""

    def __init__(self, pacing: Pacing, *, user: str) -> None:
        self.user = user
        self.computation = pacing.computation(user)
        # When it last began to do something, whether it has gone on since, and whether it has ended.
        self.waits = True
        self.has_ended = False
        self.steps = SimpleQueue[Callable[[], None] | None]()
        self._pacing = pacing
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def turn(self, seconds: float) -> None:
        self.waits = True
        self.steps.put(lambda: self._pacing.turn(self.computation, seconds=seconds))

    def end(self) -> None:
        self.waits = True
        self.steps.put(None)

    def _run(self) -> None:
        try:
            self._pacing.begin(self.computation, user=self.user)
            self.waits = False
            while (step := self.steps.get()) is not None:
                step()
                self.waits = False
        except AbandonedError:
            pass
        finally:
            self._pacing.end(self.computation, seconds=0.01)
            self.has_ended, self.waits = True, False


@pytest.mark.parametrize("seed", range(6))
def test_after_each_change_only_those_wait_that_have_to(seed: int) -> None:
    """Nothing but the changes themselves wakes who waits: the clock stands still between them."""
    rng, clock = Random(seed), Clock()
    pacing = Pacing(clock=clock)
    there: list[Stepped] = []
    for _ in range(200):
        idle = [each for each in there if not each.waits]
        match rng.randrange(8):
            case 0 | 1 if len(there) < 7:
                there.append(Stepped(pacing, user=rng.choice(["ada", "bob", "eve"])))
            case 2 if there:
                rng.choice(there).computation.abandon()
            case 3 | 4 if idle:
                min(idle, key=lambda each: pacing.debt(each.user)).end()
            case 5:
                clock.now += rng.choice([0.1, 1.0, 8.0])
                pacing.wake()
            case _ if idle:
                rng.choice(idle).turn(rng.choice([0.01, 0.2, 0.4, 2.5]))
        _until_settled(pacing, there=there)
        there = [each for each in there if not each.has_ended]
    for each in there:
        each.computation.abandon()
        each.end()
    for each in there:
        each.thread.join(timeout=60)
        assert not each.thread.is_alive()


def _until_settled(pacing: Pacing, *, there: list[Stepped]) -> None:
    """Each that waits is of a user who owes too much, or more than one whose computation is there."""
    end = time.monotonic() + 60
    while True:
        with pacing._changed:
            owed = {each.user: pacing.debt(each.user) for each in there}
            running = [owed[each.user] for each in there if each.computation in pacing._running]
            waiting = [each for each in there if each.waits]
            wrong = [
                each.user
                for each in waiting
                if each.computation.is_abandoned
                or not (
                    owed[each.user] > BURST_SECONDS / SHARE
                    if each.computation not in pacing._running
                    else owed[each.user] > min(running) + 0.1
                )
            ]
        if not wrong:
            return
        assert time.monotonic() < end, f"computations of {wrong} wait although it is their turn: {owed}"
        time.sleep(0.001)


def test_a_user_who_computed_nothing_for_an_hour_has_saved_nothing_up() -> None:
    now = [0.0]
    pacing = Pacing(clock=lambda: now[0])
    for began in (0.0, 3600.0):
        now[0] = began
        computation = pacing.computation("rita")
        pacing.begin(computation, user="rita")
        pacing.end(computation, seconds=1.0)
        assert pacing.debt("rita") == 1.0 / SHARE
