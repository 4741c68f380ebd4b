"""Measure admissions a second of the real operator on a real API server, and the delay until each job has its reason.

As in Kueue's own scalability test, nothing executes: the controllers that create pods are stopped, and a stand-in marks
each batch Job as complete a moment after its creation. Nodes and devices are objects. There are two measurements:

- a full cluster and `--rate` submissions a second: from each submission until its reason is in the status;
- `--jobs` jobs submitted at once: admissions a second from the first to the last, and the operator's memory.

    python benchmarks/queue_admission.py [--jobs 15000] [--nodes 100] [--run 2] [--rate 100] [--submissions 2000]
        [--json FILE]
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import plane
import queue_plane
from counts import count
from plane import NodeShape
from queue_plane import NAMESPACE

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, JOBS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import Reflector
from dovetail_sandbox.cluster import Cluster

KUEUE = 43.0  # admissions a second in Kueue's own test of 15,000 workloads


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=15_000, help="jobs submitted at once (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=100, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--run", type=float, default=2.0, help="seconds that a job runs (default: %(default)s)")
    options.add_argument("--rate", type=float, default=100.0, help="submissions a second (default: %(default)s)")
    options.add_argument(
        "--submissions", type=count, default=2_000, help="submissions at that rate (default: %(default)s)"
    )
    options.add_argument("--json", type=Path, default=Path("out/queue_admission.json"), help="where it is written too")
    args = options.parse_args()
    nodes = "- {name: none, count: 1}\n"
    with (
        queue_plane.sandbox(nodes=nodes, without=["agent", "gateway"]) as made,
        queue_plane.paused(made, *plane.PAUSED),
    ):
        found = asyncio.run(measure(made, args))
    queue_plane.report(found, path=args.json)


async def measure(made: Cluster, args: argparse.Namespace) -> dict[str, Any]:
    async with plane.client_of(made) as client:
        await plane.add_nodes(client, [NodeShape(name=f"node-{at:04d}") for at in range(args.nodes)])
        reason_times = await reasons(made, client, rate=args.rate, count=args.submissions, gpus=args.nodes)
        await clear(client)
        admitted = await admissions(made, client, jobs=args.jobs, run=args.run)
    return {"admissions": admitted, "reasons": reason_times}


async def admissions(made: Cluster, client: Client, *, jobs: int, run: float) -> dict[str, Any]:
    """Submit all at once: admissions a second, and the operator's memory."""
    created: dict[str, float] = {}

    def note(event: EventType, child: Job) -> None:
        if event == "ADDED":
            created[child.metadata.name] = time.monotonic()

    bodies = [queue_plane.job(f"job-{at:05d}", run=run) for at in range(jobs)]
    async with executed(client, run=run, on_event=note):
        began = time.monotonic()
        await queue_plane.submit(client, bodies)
        submitted = time.monotonic() - began
        while len(created) < jobs:
            await asyncio.sleep(1.0)
            print(f"\r{len(created)} of {jobs} admitted after {time.monotonic() - began:.0f} s", end="", flush=True)
        print()
        await until_over(client, jobs)
    seconds = max(created.values()) - min(created.values())
    now, peak = plane.memory_mib(made.pid("operator"))
    return {
        "jobs": jobs,
        "submitted_seconds": round(submitted, 1),
        "seconds": round(seconds, 1),
        "admissions_per_second": round((jobs - 1) / seconds, 1),
        "kueue_admissions_per_second": KUEUE,
        "operator_memory_mib": now,
        "operator_peak_memory_mib": peak,
    }


async def until_over(client: Client, jobs: int) -> None:
    """Wait until the status of all jobs is Succeeded."""
    while True:
        found, _ = await client.list(GPUJOBS, as_type=GPUJob, namespace=NAMESPACE)
        over = sum(job.status.phase == "Succeeded" for job in found)
        print(f"\r{over} of {jobs} over", end="", flush=True)
        if over == jobs:
            print()
            return
        await asyncio.sleep(2.0)


async def clear(client: Client) -> None:
    """Delete all jobs and their batch Jobs, because the garbage collector is stopped."""
    for resource in (GPUJOBS, JOBS):
        found, _ = await client.list(resource, as_type=dict[str, Any], namespace=NAMESPACE)

        async def delete(body: dict[str, Any], resource: Any = resource) -> None:
            await client.delete(resource, name=body["metadata"]["name"], namespace=NAMESPACE)

        await plane.each(found, delete, what="tidying")


async def reasons(made: Cluster, client: Client, *, rate: float, count: int, gpus: int) -> dict[str, Any]:
    """On a full cluster: the time from each submission until phase and reason are in the job's status."""
    # One job for each node takes all there is and never ends.
    full = [queue_plane.job(f"full-{at:04d}", gpu=8) for at in range(gpus)]
    reason_times: dict[str, float] = {}
    sent: dict[str, float] = {}

    def note(_event: EventType, job: GPUJob) -> None:
        name = job.metadata.name
        if name.startswith("asks-"):
            sent.setdefault(name, time.monotonic())
            if job.status.reason not in {"", "Evaluating"}:
                reason_times.setdefault(name, time.monotonic())

    async with executed(client, run=1e9):
        await queue_plane.submit(client, full)
        while True:
            found, _ = await client.list(JOBS, as_type=Job, namespace=NAMESPACE, label_selector="dovetail.dev/job")
            if sum(job.metadata.name.startswith("full-") for job in found) == gpus:
                break
            await asyncio.sleep(0.5)
        async with followed(client, GPUJOBS, GPUJob, note):
            bodies = [queue_plane.job(f"asks-{at:05d}") for at in range(count)]
            await queue_plane.submit(client, bodies, per_second=rate)
            async with asyncio.timeout(120):
                while len(reason_times) < count:  # noqa: ASYNC110 - a watch fills it
                    await asyncio.sleep(0.1)
    waits = [reason_times[name] - sent[name] for name in reason_times]
    spread = {key: round(value, 3) for key, value in queue_plane.percentiles(waits).items()}
    now, peak = plane.memory_mib(made.pid("operator"))
    return {"rate": rate, "jobs": count, "seconds_until_told": spread, "operator_peak_memory_mib": peak, "now_mib": now}


@asynccontextmanager
async def followed(client: Client, resource: Any, as_type: Any, note: Any) -> AsyncIterator[None]:
    """A watch on the namespace, from a complete list on."""
    reflector: Reflector[Any] = Reflector(
        client, resource=resource, as_type=as_type, namespace=NAMESPACE, on_event=note
    )
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def executed(client: Client, *, run: float, on_event: Any = lambda _event, _child: None) -> AsyncIterator[None]:
    """Each batch Job is complete `run` seconds after it was seen."""
    pending: asyncio.Queue[tuple[float, Job]] = asyncio.Queue()

    def note(event: EventType, child: Job) -> None:
        on_event(event, child)
        if event == "ADDED":
            pending.put_nowait((time.monotonic() + run, child))

    async def finish() -> None:
        while True:
            due, child = await pending.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            with suppress(KubeError):
                await complete(client, child)

    async with followed(client, JOBS, Job, note):
        hands = [asyncio.create_task(finish()) for _ in range(2 * plane.AT_ONCE)]
        try:
            yield
        finally:
            for hand in hands:
                hand.cancel()
            await asyncio.gather(*hands, return_exceptions=True)


async def complete(client: Client, child: Job) -> None:
    """What the Job controller writes at the end of a Job."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"status": "True", "reason": "CompletionsReached", "message": "", "lastTransitionTime": now}
    status = {
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "ready": 0,
        "terminating": 0,
        "completedIndexes": "0",
        "uncountedTerminatedPods": {},
        "conditions": [{"type": "SuccessCriteriaMet", **ended}, {"type": "Complete", **ended}],
    }
    await client.patch(
        JOBS,
        name=child.metadata.name,
        patch={"status": status},
        as_type=dict[str, Any],
        namespace=NAMESPACE,
        subresource="status",
    )


if __name__ == "__main__":
    main()
