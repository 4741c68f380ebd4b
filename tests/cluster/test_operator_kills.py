"""The operator is killed at each write of a job's life, before it and after it: no job is lost, and none runs twice."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.builtin import Job, Pod
from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, JOBS, PODS
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.names import LABEL_JOB
from dovetail_cli.cluster.connection import Cluster as Commands
from dovetail_cli.jobs import history
from dovetail_sandbox.cluster import Cluster
from tests.cluster.gate import Forward, Gate, Operator, Write, let_through
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.test_operator_faults import stopped

pytestmark = pytest.mark.cluster

__all__ = ["stopped"]

WORKERS = 2
ANSWERED_BY_NOBODY = 503, b"{}"


class Killer:
    """Kills the operator once before and once after each kind of write about the test's jobs."""

    def __init__(self, namespace: str) -> None:
        self.operator: Operator | None = None
        self.kills: list[str] = []
        self._namespace = namespace
        self._lock = asyncio.Lock()

    async def keep(self, write: Write, forward: Forward) -> tuple[int, bytes]:
        """What the gate does with a write."""
        if "historyqueries" in write.path or not (self._namespace in write.path or "configmaps" in write.path):
            return await forward()
        async with self._lock:
            if await self._kill(f"before {write.said}"):
                return ANSWERED_BY_NOBODY
            answer = await forward()
            await self._kill(f"after {write.said}")
            return answer

    async def _kill(self, moment: str) -> bool:
        if moment in self.kills:
            return False
        self.kills.append(moment)
        assert self.operator is not None, "set before it starts"
        await self.operator.kill()
        await self.operator.start()
        return True


class Watched:
    """All batch Jobs that there ever were, and how many pods of a worker were at work at the same time at most."""

    def __init__(self) -> None:
        self.children: dict[str, set[str]] = defaultdict(set)
        self.most: dict[tuple[str, str], int] = defaultdict(int)
        self._active: dict[tuple[str, str], set[str]] = defaultdict(set)

    def job(self, _type: EventType, child: Job) -> None:
        self.children[child.metadata.name].add(child.metadata.uid)

    def pod(self, type_: EventType, pod: Pod) -> None:
        index = pod.metadata.annotations.get("batch.kubernetes.io/job-completion-index", "0")
        worker = pod.metadata.labels[LABEL_JOB], index
        at_work = type_ != "DELETED" and pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        (self._active[worker].add if at_work else self._active[worker].discard)(pod.metadata.uid)
        self.most[worker] = max(self.most[worker], len(self._active[worker]))


@asynccontextmanager
async def watching(client: Client, namespace: str) -> AsyncIterator[Watched]:
    watched = Watched()
    reflectors: list[Reflector[Any]] = [
        Reflector(client, resource=JOBS, as_type=Job, namespace=namespace, on_event=watched.job),
        Reflector(
            client, resource=PODS, as_type=Pod, namespace=namespace, label_selector=LABEL_JOB, on_event=watched.pod
        ),
    ]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        for reflector in reflectors:
            await reflector.synced.wait()
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_killed_before_and_after_each_write_it_loses_no_job_and_makes_no_second_child(
    sandbox: Cluster, jobs: Jobs, stopped: None, tmp_path: Path
) -> None:
    killer = Killer(jobs.namespace)
    gate = Gate(sandbox=sandbox, keeper=killer.keep)
    async with gate.open(), watching(jobs.client, jobs.namespace) as watched:
        killer.operator = Operator(sandbox, identity="victim", folder=tmp_path, server=gate.url)
        try:
            await killer.operator.start()
            await jobs.submit("gang", gpu="1(V100)", workers=WORKERS, run=4, ttlSecondsAfterFinished=1)
            await jobs.submit("dropped", gpu="1(A100)", cancel=True)
            async with asyncio.timeout(10 * PATIENCE_SECONDS):
                await gone(jobs, "gang")
                while not killed_at(killer, "DELETE", "/gpujobs/gang", "after"):  # noqa: ASYNC110 - the gate's doing
                    await asyncio.sleep(0.1)
            status = await jobs.phase("Cancelled", "dropped")
            record = await recorded(jobs, "gang")
        finally:
            # No write of its last moments brings it back.
            gate.keeper = let_through
            await killer.operator.close()
    assert (record.phase, record.workers, record.attempts) == ("Succeeded", WORKERS, 1)
    # A crash leaves gaps, and gives no number twice.
    assert record.number != status.number
    assert len(watched.children["gang"]) == 1
    assert not watched.children["dropped"]
    assert watched.most == {("gang", str(worker)): 1 for worker in range(WORKERS)}
    for verb, path in (("PATCH", "/configmaps/dovetail-job-numbers"), ("POST", "/jobs"), ("PUT", "/gang/status")):
        for moment in ("before", "after"):
            assert killed_at(killer, verb, path, moment), f"never killed {moment} {verb} {path}: {killer.kills}"
    print(f"{len(killer.kills)} kills: {killer.kills}")


def killed_at(killer: Killer, verb: str, path: str, moment: str) -> bool:
    return any(kill.startswith(f"{moment} {verb} ") and path in kill for kill in killer.kills)


async def gone(jobs: Jobs, name: str) -> None:
    while True:
        listed, _ = await jobs.client.list(GPUJOBS, as_type=dict, namespace=jobs.namespace)
        if name not in {each["metadata"]["name"] for each in listed}:
            return
        await asyncio.sleep(0.1)


async def recorded(jobs: Jobs, name: str) -> JobRecord:
    commands = Commands(client=jobs.client, namespace=jobs.namespace)
    (record,) = await history.records(commands, question=HistoryQuerySpec(names=[name]))
    return record
