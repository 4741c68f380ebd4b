"""The terminal of gbatch --interactive: waits for the job, and attaches to it.

When the session ends, so does the job: at its own end, by Ctrl-C while it waits, and when this terminal is closed.
"""

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import NotFound
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import kubectl, this_machine
from dovetail_cli.cluster.connection import Cluster, load
from dovetail_cli.cluster.kubectl import Kubectl
from dovetail_cli.jobs import cancel, logs
from dovetail_cli.submit.manifest import CONTAINER
from dovetail_cli.submit.on_cluster import on_terminal
from dovetail_cli.submit.submit import Then
from dovetail_cli.ui.errors import CommandError

if TYPE_CHECKING:
    from dovetail_cli.submit.own_terminal import Door

_POLL_SECONDS: Final = 0.5
# A shell that has got its end needs a moment, and the operator another one.
_END_SECONDS: Final = 10.0
# Reasons of a job that starts in a moment.
_PASSING: Final = frozenset({"", "Evaluating"})
_ENDING: Final = (signal.SIGHUP, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What follows the submission, and what the command of a job on this machine runs through."""

    then: Then
    through: Callable[[Sequence[str]], list[str]] | None = None


@contextlib.contextmanager
def prepared(*, kubeconfig: str | None, context: str | None) -> Iterator[Session]:
    """A session of a job that is about to be submitted.

    Raises `CommandError` for a cluster without kubectl, so that no job is submitted.
    """
    if load(kubeconfig, context=context).local_data is None:
        yield Session(then=prepare(kubeconfig=kubeconfig, context=context))
        return
    from dovetail_cli.submit.own_terminal import Door, attached

    door = Door()

    async def then(cluster: Cluster, *, job: GPUJob) -> None:
        code = 1

        async def attach() -> None:
            nonlocal code
            line = await _until_entered(cluster, job=job, door=door)
            with line:
                code = await attached(line, with_terminal=on_terminal())

        await _held(cluster, job=job, attach=attach)
        if code:
            raise typer.Exit(code)

    try:
        yield Session(then=then, through=door.command)
    finally:
        door.close()


def prepare(*, kubeconfig: str | None, context: str | None) -> Then:
    """What follows the submission to a cluster.

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

    async def attach() -> None:
        pod = await _until_running(cluster, job=job)
        await _attached(program, pod=pod, namespace=cluster.namespace, with_terminal=with_terminal)

    await _held(cluster, job=job, attach=attach)


async def _held(cluster: Cluster, *, job: GPUJob, attach: Callable[[], Awaitable[None]]) -> None:
    """The session, and its end."""
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
        await attach()
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
        said = _say(seen, said=said)
        await asyncio.sleep(_POLL_SECONDS)


async def _until_entered(cluster: Cluster, *, job: GPUJob, door: "Door") -> socket.socket:
    """The connection of the job's process once it runs."""
    said = ""
    while True:
        seen = await _seen(cluster, job=job)
        if seen is None or not is_unfinished(seen):
            raise CommandError(_ended_early(job, seen=seen))
        if phase_of(seen) == "Queued" and seen.status.reason not in _PASSING:
            said = _say(this_machine.job(cluster, job=seen), said=said)
        if (line := await door.entered(seconds=_POLL_SECONDS)) is not None:
            return line


def _say(job: GPUJob, *, said: str) -> str:
    """Say how the job is, if that is not `said` already; returns what is said now."""
    state = f"{phase_of(job)}{f' ({job.status.reason}: {job.status.message})' if job.status.reason else ''}"
    if state != said:
        print(f"dovetail: job {job.status.number}: {state}; Ctrl-C cancels it", file=sys.stderr)
    return state


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
