"""Waiting for the end of jobs: gjob wait, and gbatch --wait."""

import asyncio
import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TextIO

import typer

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.jobs.runs import is_of_earlier_job
from dovetail.kube.errors import Forbidden
from dovetail.kube.reflector import Reflector
from dovetail.query.jobs import selection
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import identity, this_machine
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.ui.errors import MissingError, UsageError
from dovetail_cli.ui.progress import Say, patiently

# As `timeout` of the GNU core utilities says that the time is over.
TIMED_OUT: Final = 124


def wait(
    words: Sequence[str],
    *,
    timeout_seconds: float | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> int:
    """Wait until the jobs have ended, say how, and return the exit code.

    That is the one of a job's own program; of several jobs, the largest. Raises `MissingError`.
    """
    wanted = selection.parse_ids(words, field="gjob wait")
    # Also for one that is no number, which is neither less nor more.
    if timeout_seconds is not None and not timeout_seconds >= 0:
        raise UsageError(f"--timeout {timeout_seconds:g}: write a number of seconds, 0 or more")

    async def go(cluster: Cluster) -> int:
        words = await identity.of_caller(wanted, cluster=cluster)
        chosen, missing = selection.select(await list_jobs(cluster), wanted=words)
        if missing:
            raise MissingError(selection.none_such(missing))
        return await until_ended(cluster, jobs=chosen, timeout_seconds=timeout_seconds)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def then(cluster: Cluster, *, job: GPUJob) -> None:
    """Wait for the end of a submitted job, and end with its exit code. Raises `typer.Exit`."""
    # Standard output has the one line that scripts read.
    code = await until_ended(cluster, jobs=[job], to=sys.stderr)
    if code:
        raise typer.Exit(code)


async def until_ended(
    cluster: Cluster, *, jobs: Sequence[GPUJob], timeout_seconds: float | None = None, to: TextIO | None = None
) -> int:
    """Wait until the jobs have ended, say how, and return the largest of their exit codes.

    After `timeout_seconds`, that is `TIMED_OUT`, and the jobs go on. The words go `to` standard output unless it is
    given.
    """
    following = _Following(jobs)
    reflector = Reflector(
        cluster.client,
        resource=GPUJOBS,
        as_type=GPUJob,
        on_event=lambda event, job: following.look(event=event, job=job),
        namespace=cluster.namespace,
    )
    running = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(timeout_seconds):
            with patiently() as say:
                await reflector.synced.wait()
                following.leave_out({job.metadata.uid for job in reflector.store.values()})
                await following.all_ended(say)
    except TimeoutError:
        for job in following.left:
            print(f"{_called(job)} has not ended: {phase_of(job)}.", file=to)
        return TIMED_OUT
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    at = {job.metadata.uid: index for index, job in enumerate(jobs)}
    ended = sorted(following.ended, key=lambda job: at[job.metadata.uid])
    codes = [await _said(cluster, job=job, to=to) for job in ended]
    return max(codes, default=0)


class _Following:
    """Jobs until each of them has ended or is gone."""

    def __init__(self, jobs: Sequence[GPUJob]) -> None:
        self._open: dict[str, GPUJob] = {job.metadata.uid: job for job in jobs}
        self.ended: list[GPUJob] = []
        self._changed = asyncio.Event()

    @property
    def left(self) -> Sequence[GPUJob]:
        """The jobs that have not ended."""
        return list(self._open.values())

    def look(self, *, event: EventType, job: GPUJob) -> None:
        if job.metadata.uid not in self._open:
            return
        self._open[job.metadata.uid] = job
        if event == "DELETED" or not is_unfinished(job):
            self.ended.append(self._open.pop(job.metadata.uid))
        self._changed.set()

    def leave_out(self, existing: Collection[str]) -> None:
        """Take as deleted those whose UIDs are not among the `existing`."""
        for uid in self._open.keys() - set(existing):
            self.ended.append(self._open.pop(uid))

    async def all_ended(self, say: Say) -> None:
        while self._open:
            first = next(iter(self._open.values()))
            others = f" and {len(self._open) - 1} more" if len(self._open) > 1 else ""
            say(f"Waiting for {_called(first)}{others}: {phase_of(first)} {first.status.message}".rstrip())
            # A look a second, so that the line appears although nothing changes.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            self._changed.clear()


async def _said(cluster: Cluster, *, job: GPUJob, to: TextIO | None) -> int:
    """Say how the job has ended, and return its exit code."""
    phase = phase_of(job)
    if phase == "Succeeded":
        print(f"{_called(job)} succeeded.", file=to)
        return 0
    if is_unfinished(job):
        print(f"{_called(job)} was deleted before it ended.", file=to)
        return 1
    # Of a job that a user cancelled, that says all; one that is cancelled for another one's end has a reason.
    message = this_machine.said(job.status.message) if this_machine.is_one(cluster) else job.status.message
    why = "" if not message or job.status.reason == "Cancelled" else f": {message}"
    print(f"{_called(job)} {_ENDS.get(phase, f'ended ({phase})')}{why}.", file=to)
    return await _exit_code(cluster, job=job) if phase == "Failed" else 1


_ENDS: Final[Mapping[str, str]] = {"Failed": "failed", "Cancelled": "was cancelled", "TimedOut": "ran out of time"}


async def _exit_code(cluster: Cluster, *, job: GPUJob) -> int:
    """The exit code of the job's program, as far as its pods still say; else 1."""
    try:
        found = await cluster.client.list(
            PODS, as_type=Pod, namespace=cluster.namespace, label_selector=f"{names.LABEL_JOB}={job.metadata.name}"
        )
    except Forbidden:
        return 1
    ended = [
        each.state.terminated.exit_code
        for pod in found.items
        if not is_of_earlier_job(pod, number=job.status.number)
        for each in pod.status.container_statuses
        if each.state.terminated is not None
    ]
    return max(ended, default=0) or 1


def _called(job: GPUJob) -> str:
    return f"Job {job.status.number or job.metadata.name}"
