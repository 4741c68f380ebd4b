"""Callers who wait until a job or node is as they ask, several at a time, in virtual time.

Each is answered at the change that makes it true, whoever else waits, leaves or is answered; or when its time is over.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.gpujob import GPUJob
from dovetail.config.settings import Settings
from tests import virtual_time
from tests.extender.builders import make_gpunode
from tests.gateway.builders import make_job
from tests.gateway.test_cluster_machine import make_cache, tell

# Two namespaces with a job of one name, and a node.
JOBS: Final = ("red/train", "blue/train")
NODE: Final = "a"
KEYS: Final = (*JOBS, NODE)


class Step(NamedTuple):
    """What happens: someone waits for a value, leaves, or the object gets a value or goes."""

    does: Literal["wait", "leave", "set", "delete", "pass"]
    key: str
    value: int
    seconds: float


def _steps(keys: Sequence[str]) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        does=st.sampled_from(["wait", "wait", "wait", "leave", "set", "set", "delete", "pass"]),
        key=st.sampled_from(keys),
        value=st.integers(0, 2),
        seconds=st.sampled_from([0.0, 5.0, 5.0]),
    )
    return st.lists(step, max_size=20)


# With one key, many wait for the same one.
STEPS: Final = st.sampled_from([KEYS, JOBS[:1], (NODE,)]).flatmap(_steps)


@dataclass(kw_only=True)
class Waiter:
    """One caller: until when it waits for which value; `answer` is what it has to get, once it has to get one."""

    key: str
    value: int
    until: float
    task: "asyncio.Task[Any]"
    answer: tuple[int | None] | None = None
    left: bool = False


class World:
    """A cache, those who wait at it, and the values of the objects."""

    def __init__(self) -> None:
        self.cache = make_cache(Settings())
        self.values: dict[str, int] = {}
        self.waiters: list[Waiter] = []
        self.version = 0

    async def play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            getattr(self, f"_{step.does}")(step)
            await self._settle()
            self._judge()
            await asyncio.sleep(step.seconds if step.does == "pass" else 0.0)
            await self._settle()
            self._judge()
        await asyncio.sleep(100.0)
        await self._settle()
        self._judge()
        assert all(waiter.task.done() for waiter in self.waiters)
        assert self.cache._waiting == {}

    def _wait(self, step: Step) -> None:
        """Wait for a value; 2 stands for an object that is gone."""
        ask = self.cache.until_node if step.key == NODE else self.cache.until

        def holds(found: Any) -> bool:
            return _value(found) == (None if step.value == 2 else step.value)

        task = asyncio.ensure_future(ask(step.key, holds=holds, seconds=step.seconds))
        until = virtual_time.clock() + step.seconds
        self.waiters.append(Waiter(key=step.key, value=step.value, until=until, task=task))

    def _leave(self, step: Step) -> None:
        for waiter in self.waiters:
            if waiter.key == step.key and waiter.answer is None and not waiter.left:
                waiter.left = True
                waiter.task.cancel()
                return

    def _set(self, step: Step) -> None:
        event = "MODIFIED" if step.key in self.values else "ADDED"
        self.values[step.key] = step.value % 2
        self._tell(event, step.key)

    def _delete(self, step: Step) -> None:
        if step.key in self.values:
            self._tell("DELETED", step.key)
            del self.values[step.key]

    def _pass(self, step: Step) -> None:
        pass

    def _tell(self, event: str, key: str) -> None:
        value, self.version = self.values[key], self.version + 1
        if key == NODE:
            subject = make_gpunode(key, gpus=1, usedMiB=value)
        else:
            namespace, _, name = key.partition("/")
            subject = make_job(name, namespace=namespace, status={"phase": "Queued", "message": str(value)})
        subject["metadata"]["resourceVersion"] = str(self.version)
        tell(self.cache, "gpunodes" if key == NODE else "gpujobs", event, subject)

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def _judge(self) -> None:
        for waiter in self.waiters:
            now = self.values.get(waiter.key)
            if waiter.answer is None and (
                now == (None if waiter.value == 2 else waiter.value) or waiter.until <= virtual_time.clock()
            ):
                waiter.answer = (now,)
            if waiter.left:
                assert waiter.task.cancelled()
            elif waiter.answer is None:
                assert not waiter.task.done(), "answered too early"
            else:
                assert waiter.task.done(), "not woken"
                assert (_value(waiter.task.result()),) == waiter.answer


def _value(found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, GPUJob):
        return int(found.status.message)
    return int(found.status.devices[0].used_mib)


async def _played(steps: Sequence[Step]) -> None:
    await World().play(steps)


@given(steps=STEPS)
@example(steps=[Step(does, key, 2, 5.0) for key in KEYS for does in ("set", "wait", "delete")])
@example(
    steps=[
        Step("wait", JOBS[0], 1, 5.0),
        Step("wait", JOBS[0], 1, 5.0),
        Step("leave", JOBS[0], 0, 0.0),
        Step("set", JOBS[0], 1, 0.0),
    ]
)
@settings(max_examples=90, deadline=None)
def test_each_is_answered_at_the_change_that_it_waits_for_and_at_no_other(steps: list[Step]) -> None:
    virtual_time.run(_played(steps))
