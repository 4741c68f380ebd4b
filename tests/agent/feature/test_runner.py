"""Features beside the agent: each is heard, and one that fails or hangs takes nothing from the others."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api.gpunode import Assignment, Enforcement, GPUNodeStatus
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.feature.runner import FeatureRunner
from tests.agent.builders import NOON, make_node

SEEN: Final = Seen(node=make_node(), now=NOON)
GIVEN: Final = Assignment(uid="pod-uid", namespace="ml", name="a", devices=["GPU-1"])


class Broken(Feature):
    name = "broken"

    async def run(self, wake: Wake) -> None:
        raise OSError("no socket")

    def assignments(self, seen: Seen) -> list[Assignment] | None:
        raise OSError("no socket")

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        raise OSError("no socket")

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        raise OSError("no socket")

    def metrics(self) -> Iterable[Metric]:
        raise OSError("no socket")


class Working(Feature):
    name = "working"

    def __init__(self) -> None:
        self.looks = 0
        self.go_on = asyncio.Event()

    def assignments(self, seen: Seen) -> list[Assignment] | None:
        return [GIVEN]

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        return msgspec.structs.replace(status, enforcement=Enforcement(turns=True))

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        self.looks += 1
        await self.go_on.wait()

    def metrics(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("turns", "Turns.", value=1)


class Stubborn(Feature):
    """Fails twice, then runs."""

    name = "stubborn"

    def __init__(self) -> None:
        self.begun = 0
        self.well = asyncio.Event()

    async def run(self, wake: Wake) -> None:
        self.begun += 1
        if self.begun < 3:
            raise OSError("not yet")
        wake()
        self.well.set()


async def test_the_report_has_what_the_working_one_says() -> None:
    beside = FeatureRunner([Broken(), Working()])
    assert beside.amend(GPUNodeStatus(), seen=SEEN).enforcement.turns


async def test_whom_kubelet_gave_what_is_told_by_the_first_that_knows() -> None:
    assert FeatureRunner([Broken(), Feature(), Working()]).assignments(SEEN) == [GIVEN]


async def test_nobody_knows_whom_kubelet_gave_what() -> None:
    assert FeatureRunner([Feature()]).assignments(SEEN) is None


async def test_the_metrics_of_the_working_one_are_there() -> None:
    assert [metric.name for metric in FeatureRunner([Broken(), Working(), Feature()]).metrics()] == ["turns"]


async def test_one_that_is_still_busy_is_left_to_it() -> None:
    working = Working()
    async with asyncio.TaskGroup() as tasks:
        beside = FeatureRunner([Broken(), working])
        beside.start(tasks, wake=lambda: None)
        for _ in range(3):
            beside.act(SEEN, status=GPUNodeStatus())
            await asyncio.sleep(0)
        assert working.looks == 1
        working.go_on.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        beside.act(SEEN, status=GPUNodeStatus())
        await asyncio.sleep(0)
        assert working.looks == 2
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # the broken one is tried for ever
            task.cancel()


async def test_one_that_fails_is_begun_again() -> None:
    stubborn, woken = Stubborn(), []
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        FeatureRunner([stubborn], again_seconds=0).start(tasks, wake=lambda: woken.append(1))
        await stubborn.well.wait()
    assert (stubborn.begun, woken) == (3, [1])


async def test_whoever_looks_while_the_agent_ends_begins_nothing_and_fails_on_nothing() -> None:
    working, ended = Working(), asyncio.Event()

    async def look_late(beside: FeatureRunner) -> None:
        """Hears of the end after the group."""
        try:
            await asyncio.Event().wait()
        finally:
            beside.act(SEEN, status=GPUNodeStatus())
            ended.set()

    async def agent() -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = FeatureRunner([working])
            beside.start(tasks, wake=lambda: None)
            tasks.create_task(look_late(beside))
            await asyncio.sleep(0)
            raise LookupError("the end")

    with pytest.raises(ExceptionGroup) as told:
        await agent()
    assert [type(each) for each in told.value.exceptions] == [LookupError]
    assert ended.is_set()
    assert working.looks == 0


async def test_a_feature_that_is_busy_with_one_node_acts_on_another() -> None:
    """And a busy feature keeps no other from its look."""
    first, second = Working(), Working()
    second.name = "another"
    other = Seen(node=make_node("node-b"), now=NOON)
    async with asyncio.TaskGroup() as tasks:
        beside = FeatureRunner([first, second])
        beside.start(tasks, wake=lambda: None)
        for seen in (SEEN, other, SEEN, other):
            beside.act(seen, status=GPUNodeStatus())
            await asyncio.sleep(0)
        assert (first.looks, second.looks) == (2, 2)
        for feature in (first, second):
            feature.go_on.set()
