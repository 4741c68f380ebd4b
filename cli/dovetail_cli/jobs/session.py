"""The terminal of gbatch --interactive: waits for the job's container, and attaches to it.

When the session ends, so does the job: at its own end, by Ctrl-C while it waits, and when this terminal is closed.
"""

import asyncio
import contextlib
import signal
import sys
import time
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import NotFound
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import kubectl
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.kubectl import Kubectl
from dovetail_cli.jobs import cancel, logs
from dovetail_cli.submit.manifest import CONTAINER
from dovetail_cli.submit.on_cluster import on_terminal
from dovetail_cli.submit.submit import Then
from dovetail_cli.ui.errors import CommandError

_POLL_SECONDS: Final = 0.5
# A shell that has got its end needs a moment, and the operator another one.
_END_SECONDS: Final = 10.0
_ENDING: Final = (signal.SIGHUP, signal.SIGTERM)


def prepare(*, kubeconfig: str | None, context: str | None) -> Then:
    """What follows the submission.

    Raises `CommandError` without kubectl, so that no job is submitted.
    """
    program = kubectl.find(kubeconfig=kubeconfig, context=context, needed_for="gbatch --interactive")

    async def then(cluster: Cluster, *, job: GPUJob) -> None:
        await hold(cluster, job=job, program=program, with_terminal=on_terminal())

    return then


async def hold(cluster: Cluster, *, job: GPUJob, program: Kubectl, with_terminal: bool) -> None:
    """Be the job's terminal until it ends.

    Raises `CommandError` for a job that ends before it runs.
    """
    this, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert this is not None
    ended_by: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        ended_by.append(number)
        this.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    grace = 0.0
    try:
        pod = await _until_running(cluster, job=job)
        await _attached(program, pod=pod, namespace=cluster.namespace, with_terminal=with_terminal)
        grace = _END_SECONDS
    except asyncio.CancelledError as error:
        if ended_by:
            raise CommandError(f"{ended_by[0].name} ended the session, and with it the job") from error
        raise
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        await _end(cluster, job=job, seconds=grace)


async def _until_running(cluster: Cluster, *, job: GPUJob) -> str:
    """The pod of the job once its container runs."""
    said = ""
    while True:
        seen = await _seen(cluster, job=job)
        if seen is None or not is_unfinished(seen):
            raise CommandError(_ended_early(job, seen=seen))
        pod = await logs.worker_pod(cluster, job=seen, worker=0)
        if pod is not None and pod.status.phase == "Running":
            return pod.metadata.name
        state = f"{phase_of(seen)}{f' ({seen.status.reason}: {seen.status.message})' if seen.status.reason else ''}"
        if state != said:
            said = state
            print(f"dovetail: job {job.status.number}: {state}; Ctrl-C cancels it", file=sys.stderr)
        await asyncio.sleep(_POLL_SECONDS)


async def _attached(program: Kubectl, *, pod: str, namespace: str, with_terminal: bool) -> None:
    options = ["-i", "-t"] if with_terminal else ["-i", "-q"]
    words = program.words("attach", *options, "-n", namespace, "-c", CONTAINER, pod)
    running = await asyncio.create_subprocess_exec(*words)
    try:
        await running.wait()
    finally:
        if running.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                running.terminate()
            await running.wait()


async def _end(cluster: Cluster, *, job: GPUJob, seconds: float) -> None:
    """Cancel the job if it has not ended within `seconds`."""
    deadline = time.monotonic() + seconds
    while await _unfinished(cluster, job=job):
        if time.monotonic() >= deadline:
            await cancel.cancel_one(cluster, job=job)
            print(f"dovetail: job {job.status.number} cancelled", file=sys.stderr)
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _unfinished(cluster: Cluster, *, job: GPUJob) -> bool:
    seen = await _seen(cluster, job=job)
    return seen is not None and is_unfinished(seen)


async def _seen(cluster: Cluster, *, job: GPUJob) -> GPUJob | None:
    try:
        return await cluster.client.get(
            GPUJOBS, name=job.metadata.name, as_type=GPUJob, namespace=job.metadata.namespace
        )
    except NotFound:
        return None


def _ended_early(job: GPUJob, *, seen: GPUJob | None) -> str:
    number = job.status.number
    if seen is None:
        return f"job {number} was deleted before its terminal was ready"
    return f"job {number} has ended before its terminal was ready ({phase_of(seen)}): `gjob show {number}` says why"
