"""Submits many jobs and follows them to their end; all cluster access of a replay is here."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from dovetail.answers.questions import Audit
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.gpunode import Device, GPUNode
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, GPUNODES, NAMESPACES
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail_cli.cluster import audit
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.replay.tally import Counts, Tally
from dovetail_cli.submit import create
from dovetail_cli.ui.errors import CommandError, MissingError

# Enough to keep an API server busy from one process, few enough to leave it time for others.
SUBMITTERS: Final = 16
_LOOK_SECONDS: Final = 0.5
# Nothing ends, starts or is placed for that long: whatever moves the queue is away.
STALLED_SECONDS: Final = 180.0
_DEVICES_SECONDS: Final = 60.0
_AUDIT_SECONDS: Final = 5.0

Watcher = Callable[[Tally, Counts], None]
Criterion = Callable[[Tally, Counts], bool]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A campaign that is over.

    `problem` is why it ended early; empty if every job came to its end.

    `audits` were made every few seconds while jobs ran, the last one after the end.
    """

    tally: Tally
    audits: Sequence[Audit]
    seconds: float
    problem: str = ""


async def run(
    cluster: Cluster,
    *,
    jobs: Sequence[GPUJob],
    watcher: Watcher,
    over: Criterion = lambda _tally, standing: standing.done,
    stalled_seconds: float = STALLED_SECONDS,
    clock: Clock = time.monotonic,
) -> Ended:
    """Submit the jobs in their order and follow them until none can start or end.

    `watcher` gets the progress about twice a second.
    """
    await _prepare(cluster, jobs=jobs)
    nodes = await _devices(cluster)
    began = clock()
    tally = Tally(jobs=len(jobs), nodes=nodes)

    def now() -> float:
        return clock() - began

    audits: list[Audit] = []
    names = {job.metadata.name for job in jobs}
    async with (
        _following(cluster, tally=tally, names=names, now=now),
        _in_background(_audit_again_and_again(cluster, audits=audits)),
        _in_background(_submit_all(cluster, jobs=jobs, tally=tally, now=now)) as submitting,
    ):
        try:
            problem = await _until(
                over, tally=tally, submitting=submitting, watcher=watcher, stalled_seconds=stalled_seconds, now=now
            )
        except asyncio.CancelledError:
            # Ctrl-C: what has happened so far is still worth a summary.
            problem = "interrupted"
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
    seconds = now()
    return Ended(tally=tally, audits=[*audits, await audit.run_audit(cluster)], seconds=seconds, problem=problem)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run work during the block and end it with the block; its errors stay in the task."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _audit_again_and_again(cluster: Cluster, *, audits: list[Audit]) -> None:
    while True:
        await asyncio.sleep(_AUDIT_SECONDS)
        # One that is not answered is no proof either way; the last one must be.
        with contextlib.suppress(KubeError):
            audits.append(await audit.run_audit(cluster))


async def _until(
    over: Criterion,
    *,
    tally: Tally,
    submitting: asyncio.Task[None],
    watcher: Watcher,
    stalled_seconds: float,
    now: Clock,
) -> str:
    while True:
        if submitting.done():
            # An error of the submission ends the campaign.
            submitting.result()
        standing = tally.sample(at=now())
        watcher(tally, standing)
        if over(tally, standing):
            return ""
        if now() - tally.changed_at > stalled_seconds + _longest_run(tally):
            return f"nothing has moved for {now() - tally.changed_at:.0f} s: are operator and scheduler running?"
        await asyncio.sleep(_LOOK_SECONDS)


def _longest_run(tally: Tally) -> float:
    """Seconds that the longest of the running jobs may rightly take without a change."""
    running = (job for job in tally.seen.values() if job.status.phase in {"Starting", "Running"})
    return max((_planned_seconds(job) for job in running), default=0.0)


def _planned_seconds(job: GPUJob) -> float:
    containers: list[dict[str, Any]] = spec_of(job.spec.template).get("containers", [{}])
    command = containers[0].get("command") or []
    return float(command[1]) if len(command) == 2 and command[0] == "sleep" else 0.0


async def _prepare(cluster: Cluster, *, jobs: Sequence[GPUJob]) -> None:
    """The namespace, and certainty that no job of the same name is there. Raises `CommandError`."""
    with contextlib.suppress(AlreadyExists):
        await cluster.client.create(NAMESPACES, body={"metadata": {"name": cluster.namespace}}, as_type=dict)
    try:
        there = await cluster.client.list(GPUJOBS, as_type=GPUJob, namespace=cluster.namespace)
    except NotFound as error:
        raise MissingError("this cluster has no GPUJobs: install Dovetail's chart, or name another cluster") from error
    names = {job.metadata.name for job in there.items}
    if taken := [job.metadata.name for job in jobs if job.metadata.name in names]:
        raise CommandError(
            f'namespace {cluster.namespace} has a job "{taken[0]}" already ({len(taken)} in all): '
            f"name another --namespace, or `kubectl delete gpujobs --all -n {cluster.namespace}`"
        )


async def _devices(cluster: Cluster) -> dict[str, list[Device]]:
    """The devices by node. Waits for agents that have just started.

    Raises `CommandError` if there is no device.
    """
    deadline = time.monotonic() + _DEVICES_SECONDS
    while True:
        listing = await cluster.client.list(GPUNODES, as_type=GPUNode)
        if any(node.status.devices for node in listing.items):
            by_name = sorted(listing.items, key=lambda node: node.metadata.name)
            return {node.metadata.name: node.status.devices for node in by_name if node.status.devices}
        if time.monotonic() > deadline:
            raise CommandError(f"no node has reported a GPU within {_DEVICES_SECONDS:g} s: is dovetail-agent running?")
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def _following(cluster: Cluster, *, tally: Tally, names: set[str], now: Clock) -> AsyncIterator[None]:
    def saw(event: EventType, job: GPUJob) -> None:
        if job.metadata.name not in names:
            return
        if event == "DELETED":
            tally.gone(job.metadata.name)
        else:
            tally.saw(job, at=now())

    reflector = Reflector(cluster.client, resource=GPUJOBS, as_type=GPUJob, on_event=saw, namespace=cluster.namespace)
    async with _in_background(reflector.run()):
        await reflector.synced.wait()
        yield


async def _submit_all(cluster: Cluster, *, jobs: Sequence[GPUJob], tally: Tally, now: Clock) -> None:
    """All jobs, begun in their order, several at a time."""
    queue = iter(jobs)

    async def submit_next() -> None:
        for job in queue:
            await cluster.client.create(
                GPUJOBS, body=create.as_manifest(job), as_type=GPUJob, namespace=cluster.namespace
            )
            tally.submitted(job.metadata.name, at=now())

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(submit_next())
    except* KubeError as errors:
        # All of them were refused for the same reason, most likely; one is what people can read.
        first = errors.exceptions[0]
    else:
        return
    raise first
