"""Fair queues: a free slot goes to the next user, whatever number of calls each has waiting."""

import asyncio
import random

import pytest

from dovetail_gateway.access.fair_queue import CrowdedError, FairQueue
from dovetail_gateway.access.shared_calls import SharedCalls
from tests.faults import at_each_await
from tests.seeds import seeds


class Calls:
    """Calls that wait for slots; `order` has those that got one, as `user/number`."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def ask(self, *names: str) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.ensure_future(self._call(name))
        await settled()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await settled()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await settled()

    async def _call(self, name: str) -> None:
        async with self.queue.slot(name.partition("/")[0]):
            self.order.append(name)
            await self._ends[name].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def made(*, at_once: int = 2, most_of_one: int = 1, most_waiting: int = 100) -> Calls:
    return Calls(FairQueue(at_once=at_once, most_of_one=most_of_one, most_waiting=most_waiting))


async def test_those_who_have_left_take_no_place_among_those_who_wait() -> None:
    calls = made(at_once=1, most_waiting=2)
    await calls.ask("a/1", "b/1", "b/2")
    await calls.cancel("b/1", "b/2")
    assert len(calls.queue) == 1, "the user who has the slot"
    await calls.ask("b/3", "b/4", "b/5")
    assert isinstance(calls.tasks["b/5"].exception(), CrowdedError)
    await calls.end("a/1", "b/3", "b/4")
    assert (calls.order, len(calls.queue)) == (["a/1", "b/3", "b/4"], 0)


async def test_a_user_has_one_slot_at_a_time_and_others_do_not_wait_for_it() -> None:
    calls = made()
    await calls.ask("a/1", "a/2", "b/1")
    assert calls.order == ["a/1", "b/1"]
    await calls.end("a/1")
    assert calls.order == ["a/1", "b/1", "a/2"]


async def test_slots_go_round_among_users() -> None:
    calls = made(at_once=1)
    await calls.ask("a/1", "a/2", "a/3", "b/1", "c/1", "b/2")
    for name in ("a/1", "a/2", "b/1", "c/1", "a/3"):
        await calls.end(name)
    assert calls.order == ["a/1", "a/2", "b/1", "c/1", "a/3", "b/2"]


async def test_the_service_accounts_of_a_namespace_have_the_slots_and_turns_of_one_user() -> None:
    calls = made(most_waiting=1)
    accounts = [f"system:serviceaccount:red:{at}" for at in range(5)]
    await calls.ask(*accounts, "system:serviceaccount:blue:0", "rita/1")
    await calls.end(accounts[0], "system:serviceaccount:blue:0")
    await calls.end(accounts[1], "rita/1")
    assert calls.order == [accounts[0], "system:serviceaccount:blue:0", accounts[1], "rita/1", *accounts[2:3]]
    await calls.ask(f"{accounts[4]}/again")
    assert isinstance(calls.tasks[f"{accounts[4]}/again"].exception(), CrowdedError), "each has its own bound"
    await calls.cancel(*accounts[2:])
    assert (len(calls.queue), calls.queue._waiting, calls.queue._numbers) == (0, {}, {})


async def test_one_user_alone_has_as_many_slots_as_one_may_have() -> None:
    calls = made(at_once=4, most_of_one=3)
    await calls.ask(*(f"a/{at}" for at in range(6)), "b/1")
    assert calls.order == ["a/0", "a/1", "a/2", "b/1"]


async def test_a_user_with_too_many_waiting_calls_is_refused_and_others_are_not() -> None:
    calls = made(at_once=1, most_waiting=2)
    await calls.ask("a/1", "a/2", "a/3", "a/4", "b/1")
    with pytest.raises(CrowdedError, match="2 requests of a wait"):
        await calls.tasks["a/4"]
    await calls.end("a/1", "a/2", "b/1", "a/3")
    assert calls.order == ["a/1", "a/2", "b/1", "a/3"]


async def test_who_leaves_gives_the_slot_to_the_next() -> None:
    calls = made(at_once=1)
    await calls.ask("a/1", "b/1", "c/1")
    await calls.cancel("b/1", "a/1")
    assert (calls.order, len(calls.queue)) == (["a/1", "c/1"], 1)
    await calls.end("c/1")
    assert len(calls.queue) == 0


async def test_a_slot_that_is_granted_to_one_who_leaves_in_that_moment_is_free_again() -> None:
    calls = made(at_once=1)
    await calls.ask("a/1", "b/1", "c/1")
    calls._ends["a/1"].set()
    await asyncio.sleep(0)
    calls.tasks["b/1"].cancel()
    await settled()
    assert calls.order == ["a/1", "c/1"]


async def test_one_that_leaves_in_the_moment_of_its_turn_takes_no_slot() -> None:
    calls = made(at_once=1)
    await calls.ask("a/1", "b/1", "c/1")
    calls.tasks["b/1"].cancel()
    calls._ends["a/1"].set()
    await settled()
    assert calls.order == ["a/1", "c/1"]


@seeds(30)
async def test_after_any_order_of_starts_ends_and_leaves_nothing_is_left(seed: int) -> None:
    rng, calls = random.Random(seed), made(at_once=3, most_of_one=2, most_waiting=4)
    names = [f"{user}/{at}" for user in "abc" for at in range(8)]
    for name in rng.sample(names, len(names)):
        calls._ends[name] = asyncio.Event()
        calls.tasks[name] = asyncio.ensure_future(calls._call(name))
        for act in rng.sample(list(calls.tasks), min(2, len(calls.tasks))):
            calls.tasks[act].cancel() if rng.random() < 0.5 else calls._ends[act].set()
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        assert calls.queue._taken.total() <= 3
        assert max(calls.queue._taken.values(), default=0) <= 2
    for event in calls._ends.values():
        event.set()
    await asyncio.gather(*calls.tasks.values(), return_exceptions=True)
    assert (len(calls.queue), calls.queue._waiting) == (0, {})


async def test_a_call_that_leaves_at_any_await_leaves_no_slot_taken_and_nobody_waiting() -> None:
    """With a slot free, and with another user's call that ends meanwhile; then one whose shared call fails."""

    class Work:
        def __init__(self) -> None:
            self.queue = FairQueue(at_once=1, most_of_one=1, most_waiting=4)
            self.calls = SharedCalls[str, int]()
            self.others = [asyncio.ensure_future(self.ask("other"))]

        async def ask(self, user: str) -> int:
            async with self.queue.slot(user):
                return await self.calls.result("key", of=self.compute)

        async def compute(self) -> int:
            for _ in range(3):
                await asyncio.sleep(0)
            return 7

    async def make() -> Work:
        return Work()

    async def end(work: Work) -> object:
        found = [await each for each in work.others]
        await settled()
        return found, len(work.queue), len(work.calls), work.queue._taken.total()

    points = await at_each_await(make, journey=lambda work: work.ask("mine"), end=end)
    assert points >= 2
