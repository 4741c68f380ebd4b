"""`dovetail move plan` and `apply` on a sandbox: what a plan says holds, by hand and carried out by the operator."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import yaml

from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpujob import GPUJobStatus
from dovetail.api.resources import PODDISRUPTIONBUDGETS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.configuration import config_of, set_config
from tests.cluster.jobs import Jobs
from tests.cluster.test_extender import until

pytestmark = pytest.mark.cluster
Plan = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def move(sandbox: Cluster, namespace: str) -> Plan:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        where = ["--kubeconfig", str(sandbox.kubeconfig), "--namespace", namespace]
        command = [*commands.dovetail(), "move", *words, *where]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, input="")

    return run


@pytest.fixture
def plan(move: Plan) -> Plan:
    return partial(move, "plan")


@pytest.fixture
async def scattered(client: Client, namespace: str) -> Any:
    """Jobs `x` and `y` on one V100 each, of different nodes, and `big`, which waits for all four of one."""
    jobs = Jobs(client, namespace=namespace)
    await jobs.submit("x", gpu="1(V100)", checkpointIntervalSeconds=600)
    await jobs.phase("Running", "x")
    await jobs.submit("fills", gpu="3(V100)")
    await jobs.phase("Running", "fills")
    await jobs.submit("y", gpu="1(V100)")
    await jobs.phase("Running", "y")
    await jobs.delete("fills")
    await jobs.submit("big", gpu="4(V100)")
    await jobs.phase("Queued", "big", reason="Fragmentation")
    yield jobs
    await jobs.clear()


async def counts(jobs: Jobs) -> list[int]:
    """How often `x` and `y` have moved, once both run and no move is under way.

    The job for which one moves may run before the status of that one says that it has ended.
    """

    def is_over(status: GPUJobStatus) -> bool:
        return status.phase == "Running" and not (status.move and status.move.by)

    found = [(await jobs.until(name, is_over)).move for name in ("x", "y")]
    return sorted(0 if each is None else each.count for each in found)


async def test_a_plan_that_a_person_carries_out_starts_the_job(scattered: Jobs, plan: Plan) -> None:
    nodes = {name: (await scattered.until(name, lambda status: bool(status.nodes))).nodes[0] for name in ("x", "y")}
    assert nodes["x"] != nodes["y"]
    done = await asyncio.to_thread(plan, "big", "-o", "json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["items"]
    (move,) = told["moves"]
    moved = move["job"]["name"]
    (other,) = {"x", "y"} - {moved}
    assert [each["node"] for each in told["workers"]] == [nodes[moved]]
    assert [each["node"] for each in move["destination"]] == [nodes[other]]

    shown = await asyncio.to_thread(plan, "big")
    assert shown.stdout.splitlines()[0].startswith("Job 4 (big) starts within ")
    assert shown.stdout.rstrip().endswith("No other job waits.\n\nNothing was changed.")

    await scattered.change(moved, suspend=True)
    big = await scattered.phase("Running", "big")
    assert big.nodes == [nodes[moved]]
    await scattered.change(moved, suspend=False)
    again = await scattered.phase("Running", moved)
    assert again.nodes == [nodes[other]]


async def test_a_job_that_no_moves_start_says_so(scattered: Jobs, plan: Plan) -> None:
    await scattered.change("x", preemptible=False)
    await scattered.change("y", preemptible=False)
    done = await asyncio.to_thread(plan, "big")
    assert done.returncode == 1
    assert "No moves for job 4 (big): no set of jobs that may move makes room for it." in done.stdout
    assert "0 running jobs may move" in done.stdout


async def test_a_job_that_does_not_exist_is_named(scattered: Jobs, plan: Plan, namespace: str) -> None:
    done = await asyncio.to_thread(plan, "nothing")
    assert done.returncode == 3
    assert done.stderr.strip() == f"dovetail: no job nothing in namespace {namespace}"


async def test_apply_holds_room_restarts_a_job_there_and_starts_the_other(scattered: Jobs, move: Plan) -> None:
    nodes = {name: (await scattered.phase("Running", name)).nodes[0] for name in ("x", "y")}
    for name in nodes:
        await scattered.change(name, moves="Restart")
    seen = asyncio.create_task(scattered.until("big", lambda status: "for it" in status.message))
    done = await asyncio.to_thread(move, "apply", "big", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["items"]
    (row,) = told["plan"]["moves"]
    moved, (home,) = row["job"]["name"], told["nodes"]
    (other,) = {"x", "y"} - {moved}
    assert home == nodes[moved]
    assert "; 1 job restarts on other nodes for it" in (await seen).message

    again = await scattered.until(moved, lambda status: status.phase == "Running" and status.move is not None)
    assert again.nodes == [nodes[other]]
    over = await scattered.until(moved, lambda status: status.move is not None and not status.move.by)
    assert over.move is not None
    assert (over.move.count, over.move.reserved, over.number) == (1, None, row["job"]["number"])
    stayed = await scattered.phase("Running", other)
    assert (stayed.plans, stayed.move) == (1, None)


async def test_apply_keeps_a_budget_and_records_the_end_in_it(scattered: Jobs, move: Plan, client: Client) -> None:
    for name in ("x", "y"):
        await scattered.change(name, moves="Restart")
    namespace = scattered.namespace
    body = {"metadata": {"name": "all"}, "spec": {"minAvailable": 2, "selector": {}}}
    await client.create(PODDISRUPTIONBUDGETS, body=body, as_type=PodDisruptionBudget, namespace=namespace)

    async def budget() -> PodDisruptionBudget:
        return await client.get(PODDISRUPTIONBUDGETS, name="all", as_type=PodDisruptionBudget, namespace=namespace)

    await until(budget, lambda found: found.status.observed_generation == 1)
    refused = await asyncio.to_thread(move, "apply", "big", "--yes")
    assert refused.returncode == 1
    assert "0 running jobs may move" in refused.stdout

    patch = {"spec": {"minAvailable": 1}}
    await client.patch(PODDISRUPTIONBUDGETS, name="all", patch=patch, as_type=PodDisruptionBudget, namespace=namespace)
    await until(budget, lambda found: found.status.disruptions_allowed == 1)
    recorded = asyncio.create_task(until(budget, lambda found: found.status.disruptions_allowed == 0))
    done = await asyncio.to_thread(move, "apply", "big", "--yes")
    assert done.returncode == 0, done.stderr
    await recorded
    assert await counts(scattered) == [0, 1]


@pytest.fixture
async def scattered_twice(scattered: Jobs) -> Jobs:
    """`scattered`, and the same on the nodes with T4: `u` and `v`, and `large`, which waits for both of one."""
    await scattered.submit("u", gpu="1(T4)", moves="Restart", checkpointIntervalSeconds=600)
    await scattered.phase("Running", "u")
    await scattered.submit("fills-too", gpu="1(T4)")
    await scattered.phase("Running", "fills-too")
    await scattered.submit("v", gpu="1(T4)", moves="Restart", checkpointIntervalSeconds=600)
    await scattered.phase("Running", "v")
    await scattered.delete("fills-too")
    await scattered.submit("large", gpu="2(T4)")
    await scattered.phase("Queued", "large", reason="Fragmentation")
    for name in ("x", "y"):
        await scattered.change(name, moves="Restart")
    return scattered


async def test_apply_of_two_jobs_starts_both_each_by_its_own_moves(scattered_twice: Jobs, move: Plan) -> None:
    jobs = scattered_twice
    done = await asyncio.to_thread(move, "apply", "big", "large", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["items"]
    assert [each["plan"]["job"]["name"] for each in told] == ["big", "large"]
    moved = [row["job"]["name"] for each in told for row in each["plan"]["moves"]]
    assert [len({"x", "y"} & set(moved)), len({"u", "v"} & set(moved)), len(moved)] == [1, 1, 2]
    for each in told:
        running = await jobs.phase("Running", each["plan"]["job"]["name"])
        assert running.nodes == each["nodes"]
    for name in moved:
        over = await jobs.until(name, lambda found: found.phase == "Running" and not (found.move and found.move.by))
        assert over.move is not None
        assert (over.move.count, over.move.reserved) == (1, None)


async def test_jobs_that_do_not_say_that_they_may_move_stay(scattered: Jobs, move: Plan) -> None:
    done = await asyncio.to_thread(move, "apply", "big", "--yes")
    assert done.returncode == 1
    assert "No moves for job 4 (big): no set of jobs that may move makes room for it." in done.stdout
    assert "0 running jobs may move: those that say moves: Restart, or their namespace does" in done.stdout
    for name in ("x", "y"):
        assert (await scattered.phase("Running", name)).plans == 1


async def test_apply_asks_only_where_somebody_can_answer(scattered: Jobs, move: Plan) -> None:
    done = await asyncio.to_thread(move, "apply", "big")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("without a terminal that can ask, say --yes")


@pytest.fixture
async def moves_of(client: Client) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Sets the configuration's rules of moves, until the test ends. A notice is short, as a test waits for its end."""
    before = await config_of(client)
    known = yaml.safe_load(before) or {}
    notice = {"preemption": known.get("preemption", {}) | {"grace": 2}}

    async def rules(**said: Any) -> None:
        await set_config(client, yaml.safe_dump(known | notice | {"moves": said}))

    yield rules
    await set_config(client, before)


async def test_on_need_the_operator_reports_or_moves_as_the_mode_says(
    scattered: Jobs, moves_of: Callable[..., Awaitable[None]]
) -> None:
    for name in ("x", "y"):
        await scattered.change(name, moves="Restart")
    await moves_of(mode="Plan", after=1)
    # The first estimate, and then the clause, may each wait for half a minute after the message before.
    said = await scattered.until("big", lambda status: "; it would start within " in status.message, seconds=120)
    assert "if 1 running job restarted on other nodes" in said.message
    assert "WouldMove" in [each.code for each in said.details]
    for name in ("x", "y"):
        assert (await scattered.phase("Running", name)).plans == 1

    await moves_of(mode="Apply", after=1)
    await scattered.phase("Running", "big")
    assert await counts(scattered) == [0, 1]
