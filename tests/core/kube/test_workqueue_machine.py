"""The work queue beside a plain model, and its workers over virtual time.

What was added is handled after it was added, by one worker at a time, and for no other reason; a failure waits by the
failures of its own key since the last success.
"""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.kube.retry import Backoff
from dovetail.kube.workqueue import _ONE_IN, WorkQueue
from tests import virtual_time

KEYS: Final = ("a", "b")
BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=64.0)


class NoJitter(random.Random):
    """Waits are not shortened."""

    def random(self) -> float:
        return 0.0


class WorkQueueMachine(RuleBasedStateMachine):
    """Keys that are added, taken, done, timed and forgotten; the model keeps plain sets."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=virtual_time.VirtualLoop)
        self.queue = WorkQueue()
        self.dirty: set[str] = set()
        self.first: set[str] = set()
        self.at_work: set[str] = set()
        self.due: dict[str, float] = {}
        # How many keys were taken while this one, an ordinary one, was ready.
        self.passed_by: dict[str, int] = {}
        self.came_before = False

    def teardown(self) -> None:
        try:
            self.everything_that_waits_is_handled()
        finally:
            self.runner.close()

    @property
    def now(self) -> float:
        return self.runner.get_loop().time()

    @property
    def ready(self) -> set[str]:
        return self.dirty - self.at_work

    @rule(key=st.sampled_from(KEYS), first=st.booleans())
    def added(self, key: str, first: bool) -> None:
        self._do(lambda: self.queue.add(key, first=first))
        self._becomes_dirty(key, first=first)

    @rule(key=st.sampled_from(KEYS), seconds=st.sampled_from([-1.0, 0.0, 1.0, 5.0]))
    def timed(self, key: str, seconds: float) -> None:
        due = self.now + max(0.0, seconds)
        self.due[key] = min(due, self.due.get(key, due))
        self._do(lambda: self.queue.add_later(key, seconds=seconds))

    @rule(key=st.sampled_from(KEYS))
    def forgotten(self, key: str) -> None:
        self.due.pop(key, None)
        self._do(lambda: self.queue.forget(key))

    @rule(seconds=st.sampled_from([0.5, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self._do(lambda: None, seconds=seconds)

    @precondition(lambda self: self.ready)
    @rule()
    def one_is_taken(self) -> None:
        key = self.runner.run(self.queue.get())
        assert key in self.ready
        comes_before = key not in self.first and bool(self.first & self.ready)
        assert not (comes_before and self.came_before), "two ordinary keys before one that is to come first"
        self.came_before = comes_before
        self.dirty.discard(key)
        self.first.discard(key)
        self.at_work.add(key)
        self.passed_by.pop(key, None)
        for other in self.ready - self.first:
            self.passed_by[other] = self.passed_by.get(other, 0) + 1
            # Each of the ordinary keys ahead takes a turn, and a place that a key has left takes one too.
            assert self.passed_by[other] <= 2 * _ONE_IN * len(KEYS), "an ordinary key waits for ever"

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def one_is_done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.at_work)))
        self.at_work.discard(key)
        self._do(lambda: self.queue.done(key))

    @precondition(lambda self: not self.ready)
    @rule()
    def nothing_comes(self) -> None:
        """What is at work, timed for later or gone is not taken."""

        async def take() -> None:
            taking = asyncio.ensure_future(self.queue.get())
            await _turns()
            assert not taking.done()
            taking.cancel()
            await asyncio.wait([taking])

        self.runner.run(take())

    @invariant()
    def it_counts_what_waits(self) -> None:
        assert (len(self.queue), self.queue.load) == (len(self.dirty), len(self.dirty) + len(self.at_work))
        assert {key: due for key, (due, _) in self.queue._timers.items()} == self.due
        assert self.queue._first == self.first

    def everything_that_waits_is_handled(self) -> None:
        """No key is lost: whatever happened, all that is dirty or timed comes, once."""
        for key in sorted(self.at_work):
            self.queue.done(key)
        self.at_work.clear()
        self.time_passes(100.0)
        while self.dirty:
            self.one_is_taken()
        self.nothing_comes()
        self.it_counts_what_waits()

    def _do(self, act: Callable[[], None], *, seconds: float = 0.0) -> None:
        async def step() -> None:
            act()
            await asyncio.sleep(seconds)
            await _turns()

        self.runner.run(step())
        for key in [key for key, due in self.due.items() if due <= self.now]:
            del self.due[key]
            self._becomes_dirty(key, first=False)

    def _becomes_dirty(self, key: str, *, first: bool) -> None:
        self.dirty.add(key)
        if first:
            self.first.add(key)


async def _turns() -> None:
    """As many turns of the loop as a timer that is due needs."""
    for _ in range(4):
        await asyncio.sleep(0)


class Goes(NamedTuple):
    """How a handling goes. One that forgets its key does so at its beginning: the object is gone."""

    seconds: float = 0.0
    fails: bool = False
    forgets: bool = False


class Call(NamedTuple):
    """One handling of a key."""

    key: str
    began: float
    ended: float
    went: Goes


class Plan(NamedTuple):
    """What happens to a key: it is added at these times, and each of its handlings goes so."""

    added_at: list[float]
    goes: list[Goes]


PLANS: Final = st.fixed_dictionaries(
    dict.fromkeys(
        KEYS,
        st.builds(
            Plan,
            added_at=st.lists(st.sampled_from([0.0, 0.5, 3.0, 20.0, 300.0, 300.5]), max_size=5),
            goes=st.lists(
                st.builds(
                    Goes,
                    seconds=st.sampled_from([0.0, 0.25, 2.0]),
                    fails=st.booleans(),
                    forgets=st.sampled_from([False, False, True]),
                ),
                max_size=7,
            ),
        ),
    )
)


class Workers:
    """Handles keys by their plans and writes down what happened, in virtual time."""

    def __init__(self, plans: dict[str, Plan]) -> None:
        self.plans = {key: Plan(sorted(plan.added_at), list(plan.goes)) for key, plan in plans.items()}
        self.queue = WorkQueue()
        self.calls: list[Call] = []
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.start = virtual_time.clock()

    @property
    def now(self) -> float:
        return virtual_time.clock() - self.start

    async def run(self, *, hands: int) -> None:
        serving = asyncio.ensure_future(
            self.queue.serve(self._handle, hands=hands, failed=self._failed, rng=NoJitter(), backoff=BACKOFF)
        )
        for at, key in sorted((at, key) for key, plan in self.plans.items() for at in plan.added_at):
            await asyncio.sleep(at - self.now)
            self.queue.add(key)
        await asyncio.sleep(1000.0)
        assert (self.queue.load, self.queue._timers) == (0, {})
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    async def _handle(self, key: str) -> None:
        began, goes = self.now, self.plans[key].goes
        went = goes.pop(0) if goes else Goes()
        if went.forgets:
            self.queue.forget(key)
        await asyncio.sleep(went.seconds)
        self.calls.append(Call(key, began, self.now, went))
        if went.fails:
            raise LookupError(key)

    def _failed(self, key: str, error: Exception, wait: float) -> None:
        assert str(error) == key
        self.waits[key].append(wait)


async def _served(plans: dict[str, Plan], *, hands: int) -> Workers:
    workers = Workers(plans)
    await workers.run(hands=hands)
    return workers


@given(plans=PLANS, hands=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_each_addition_and_each_failure_is_followed_by_a_handling_and_by_no_other(
    plans: dict[str, Plan], hands: int
) -> None:
    workers = virtual_time.run(_served(plans, hands=hands))
    for key, plan in workers.plans.items():
        calls = [each for each in workers.calls if each.key == key]
        waits = iter(workers.waits[key])
        failures, causes, timer = 0, list(plan.added_at), 0.0
        for call in calls:
            if call.went.forgets:
                failures, timer = 0, _forgotten(timer, at=call.began, causes=causes)
            if call.went.fails:
                wait = next(waits)
                assert wait == BACKOFF.seconds(failures, rng=NoJitter()), "by the failures since the last success"
                # A timer that is set already rings first.
                timer = call.ended + wait if timer <= call.ended else min(timer, call.ended + wait)
                causes.append(timer)
            failures = failures + 1 if call.went.fails else 0
        assert next(waits, None) is None
        for cause in causes:
            assert any(call.began >= cause for call in calls), "nothing that was added is lost"
        for before, call in zip([Call(key, -1.0, -1.0, Goes()), *calls], calls, strict=False):
            assert any(before.began <= cause <= call.began for cause in causes), "handled without a cause"
            assert before.ended <= call.began, "in two hands"
    for call in workers.calls:
        at_once = [each for each in workers.calls if each.began <= call.began < each.ended]
        assert len(at_once) <= hands


def _forgotten(timer: float, *, at: float, causes: list[float]) -> float:
    """Without the timer that had not rung."""
    if timer > at:
        causes.remove(timer)
    return 0.0


TestWorkQueueMachine = WorkQueueMachine.TestCase
TestWorkQueueMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
