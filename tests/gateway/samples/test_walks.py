"""What a gateway answers of the past, beside what happened: usage, marks and curves of two tenants with equal names."""

from collections.abc import AsyncIterator, Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from dovetail.formats.timestamps import moment
from dovetail_gateway.v3.past import series
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.samples.walks import JOBS, NAMESPACES, NODES, PROJECTS, READERS, Job, Pod, World, timestamp
from tests.gateway.samples.week import BEGIN, Clock, Sampled, sampling

GROUPS: Final = ("Namespace", "Project", "User", "Model", "Day")
HOURS: Final = ("gpuHours", "usedHours", "savableHours", "savedHours")
PRICE: Final = 2.5
RARE: Final = {"Moved", "Preempted"}
STEPS: Final = 40
MOST_MARKS: Final = 12


@pytest.fixture
async def bare() -> AsyncIterator[GatewayApiServer]:
    async with GatewayApiServer().running() as server:
        yield server


async def check_usage(it: Sampled, world: World) -> None:
    for token, sees in READERS.items():
        for by in GROUPS:
            found = await it.usage(f"by={by}", token=token)
            assert hours_in(found) == close(world.hours(by, sees=sees)), (token, by)
            wanted = [sum(each) for each in zip(*world.hours(by, sees=sees).values(), strict=True)]
            total = found["total"]
            assert [total[name] for name in HOURS] == pytest.approx(wanted or [0] * 4, abs=1e-3)
            priced = world.hours("Model", sees=sees).get("V100", [0])[0]
            assert (total["cost"] or 0) == pytest.approx(priced * PRICE, abs=0.01)
            assert total["unpricedHours"] == pytest.approx(total["gpuHours"] - priced, abs=1e-3)
        for namespace in NAMESPACES:
            found = await it.usage(f"by=User&namespace={namespace}", token=token)
            assert hours_in(found) == close(world.hours("User", sees=sees, namespace=namespace)), (token, namespace)
    by_day = world.hours("Day", sees=NAMESPACES)
    for day in by_day:
        until = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
        found = await it.usage(f"by=Day&since={day}T00:00:00Z&until={until}T00:00:00Z")
        assert hours_in(found) == close({day: by_day[day]})


def hours_in(found: dict[str, Any]) -> dict[str, Any]:
    return {row["group"]: [row[name] for name in HOURS] for row in found["items"] if row["gpuHours"]}


def close(hours: dict[str, list[float]]) -> dict[str, Any]:
    return {group: pytest.approx(each, abs=1e-3) for group, each in hours.items() if each[0] > 5e-5}


async def check_marks(it: Sampled, world: World) -> None:
    """Of more marks than an answer has, the latest."""
    begin = timestamp(world.begin)
    asked: list[tuple[str, Callable[[Any], bool]]] = [("of=Cluster", lambda mark: mark["kind"] in RARE)]
    asked += [(f"of=Node&name={name}", lambda mark, name=name: name in mark["nodes"]) for name in NODES]  # type: ignore[misc]
    asked += [
        (f"of=Model&name={model}", lambda mark, on=on: mark["kind"] in RARE and not on.isdisjoint(mark["nodes"]))  # type: ignore[misc]
        for model in set(NODES.values())
        if (on := {node for node, each in NODES.items() if each == model})
    ]
    for token, sees in READERS.items():
        named = [
            (
                f"of=Namespace&name={namespace}",
                lambda mark, own=namespace: mark["kind"] in RARE and mark["namespace"] == own,  # type: ignore[misc]
            )
            for namespace in sees
            if any(pod.namespace == namespace and pod.seen for pod in world.past)
        ]
        for query, concerns in asked + named:
            found = await it.series(f"{query}&since={begin}", token=token)
            marks = [mark for mark in world.marks.values() if mark["namespace"] in sees and concerns(mark)]
            seen = [mark for mark in marks if mark["at"] >= found["since"]]
            seen.sort(key=lambda mark: str(mark["at"]))
            assert found["marks"] == seen[-MOST_MARKS:], (token, query)
            assert found["marksLeftOut"] == max(0, len(seen) - MOST_MARKS)


async def check_jobs(it: Sampled, world: World) -> None:
    """Of each job its own runs, also where one of its name was there before."""
    for job in world.jobs.values():
        if any(pod.seen for pod in world.past if pod.job is job):
            found = await it.series(f"of=Job&namespace={job.namespace}&name={job.name}")
            # The gateway samples this job seldom: some of its runs are long over at the first sample of it.
            begin = int(moment(found["since"]).timestamp()) - 120
            wanted = [mark for (uid, at, _), mark in world.marks.items() if uid == job.uid and at >= begin]
            assert found["marks"] == sorted(wanted, key=lambda mark: str(mark["at"]))[-MOST_MARKS:]


async def check_now(it: Sampled, world: World) -> None:
    """The last values of all curves."""
    for token, sees in READERS.items():
        for of, names in (("Namespace", NAMESPACES), ("Project", PROJECTS[1:])):
            rows = (await it.series(f"of={of}", token=token))["items"]
            # Those that held most in this time first.
            assert rows == sorted(rows, key=lambda row: (-sum(each or 0 for each in row["promised"]), row["name"]))
            found = {row["name"]: row for row in rows}
            for name in names:
                own = partial(_is_of, of=of, name=name, sees=sees)
                numbers = (world.held(own), world.count("Running", own), world.count("Queued", own))
                row = found.get(name)
                have = (
                    (0, 0, 0) if row is None else tuple(row[key][-1] or 0 for key in ("promised", "running", "waiting"))
                )
                assert have == pytest.approx(numbers, abs=1e-3), (token, of, name)
        for node in NODES:
            on: Callable[[Pod], bool] = lambda pod, node=node: pod.devices[0][0] == node  # type: ignore[misc]  # noqa: E731
            row = (await it.series(f"of=Node&name={node}", token=token))["items"][0]
            assert row["promised"][-1] == pytest.approx(world.held(on), abs=1e-2), (token, node)


def _is_of(each: Pod | Job, *, of: str, name: str, sees: tuple[str, ...]) -> bool:
    return each.namespace in sees and name == (each.namespace if of == "Namespace" else each.project)


async def check_starts(it: Sampled, world: World) -> None:
    """Each job's first start counts once, with the time for which it waited."""
    found = await it.series(f"of=Namespace&since={timestamp(world.begin)}")
    for row in found["items"]:
        starts = [each or 0 for each in row["starts"]]
        waits = sum(count * (wait or 0) for count, wait in zip(starts, row["meanWaitSeconds"], strict=True))
        wanted = [wait for at, wait in world.starts[row["name"]] if timestamp(at) >= found["since"]]
        assert (sum(starts), waits) == (len(wanted), pytest.approx(sum(wanted), abs=len(wanted))), row["name"]


async def walk(it: Sampled, world: World, *, steps: int) -> None:
    for step in range(steps):
        gap = world.step()
        await it.face.until_like(it.api)
        it.clock.move(seconds=gap)
        await it.face.made.sampler.sample()
        world.sampled(int(it.clock.now.timestamp()))
        await check_now(it, world)
        if step % 8 == 7:
            await check_usage(it, world)
            await check_marks(it, world)
            await check_jobs(it, world)


@pytest.mark.parametrize("seed", range(4))
async def test_the_past_is_what_happened(
    bare: GatewayApiServer, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over midnight, and with a gateway that begins again with its database."""
    monkeypatch.setattr(series, "_MOST_MARKS", MOST_MARKS)
    clock = Clock(BEGIN - timedelta(hours=1))
    begin = int(clock.now.timestamp())
    async with sampling(bare, file=tmp_path / "s.db", clock=clock, gpu_hour_prices={"Tesla V100": PRICE}) as it:
        world = World(bare, rng=Random(seed), begin=begin)
        await it.face.until_like(bare)
        await it.face.made.sampler.sample()
        world.sampled(begin)
        await walk(it, world, steps=STEPS)
        await check_starts(it, world)
    world.was_away = True
    async with sampling(bare, file=tmp_path / "s.db", clock=clock, gpu_hour_prices={"Tesla V100": PRICE}) as it:
        await walk(it, world, steps=STEPS // 2)
        await check_starts(it, world)
    assert len({pod.key for pod in world.past}) < len(world.past), "pods come again under their names"
    assert len(JOBS) * len(NAMESPACES) < len(world.marks)
