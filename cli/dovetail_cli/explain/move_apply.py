"""`dovetail move apply JOB`: show the moves, ask, request them, and wait for the start."""

import asyncio
import contextlib
import sys
import time
from typing import Final

import msgspec
import typer

from dovetail.answers.moves import MovesAnswer, MovesApplied
from dovetail.api.gpujob import FINISHED, GPUJob, is_finished
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import human, timestamp
from dovetail.kube.errors import StatusError
from dovetail.kube.reflector import Reflector
from dovetail.query.jobs import selection
from dovetail.query.jobs.states import phase_of
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.explain import move_plan
from dovetail_cli.jobs.wait import TIMED_OUT
from dovetail_cli.ui import error_messages, output
from dovetail_cli.ui.errors import CommandError, UsageError
from dovetail_cli.ui.progress import Say, patiently
from dovetail_cli.ui.times import utc_now

_NO_PLAN: Final = 1
_ENDED: Final = 1


def apply(
    word: str,
    *,
    yes: bool,
    timeout_seconds: float,
    form: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> int:
    """Carry out the moves that start a job, and return the exit code.

    Raises `InvalidQueryError`, `MissingError`, `UsageError` and `CommandError`.
    """
    wanted = selection.parse_one(word, field="JOB")
    # Also for one that is no number, which is neither less nor more.
    if not timeout_seconds > 0:
        raise UsageError(f"--timeout {timeout_seconds:g}: write a number of seconds above 0")
    if not yes and not sys.stdin.isatty():
        raise UsageError("move apply restarts running jobs: without a terminal that can ask, say --yes")

    async def go(cluster: Cluster) -> int:
        job, plan = await move_plan.found_for(cluster, wanted=wanted, to_apply=True)
        if form == "table":
            print(move_plan.text(plan, to_apply=True))
        if not plan.holds:
            if form != "table":
                print(output.document(msgspec.to_builtins(plan), form=form))
            return _NO_PLAN
        # The plan is on standard output, so that a question does not become part of a document.
        if not yes and not typer.confirm("\nRestart these jobs?", err=True):
            return _NO_PLAN
        done = await _carried_out(cluster, job=job, plan=plan, timeout_seconds=timeout_seconds)
        if form != "table":
            print(output.document(msgspec.to_builtins(done), form=form))
        else:
            print(f"\n{_said(done)}")
        return _exit_code(done)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _carried_out(cluster: Cluster, *, job: GPUJob, plan: MovesAnswer, timeout_seconds: float) -> MovesApplied:
    """Request the moves, and wait for the start.

    Without a start in time, the request is withdrawn.
    """
    began, followed = time.monotonic(), _Followed(job)
    reflector = Reflector(
        cluster.client, resource=GPUJOBS, as_type=GPUJob, on_event=followed.look, namespace=job.metadata.namespace
    )
    following = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        # One that was deleted before the first list makes no event.
        followed.is_gone = job.metadata.uid not in {each.metadata.uid for each in reflector.store.values()}
        if not followed.is_gone:
            await _request(cluster, job=job, at=timestamp(utc_now()))
        with patiently() as say:
            async with asyncio.timeout(timeout_seconds):
                await followed.until_started(say)
    except TimeoutError:
        await _request(cluster, job=job, at=None)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    if followed.is_gone:
        raise CommandError(f"{job.metadata.name} was deleted before it started")
    job = followed.job
    started = job.status.start_time is not None and phase_of(job) in {"Running", "Succeeded"}
    return MovesApplied(
        plan=plan,
        started=started,
        phase=phase_of(job),
        message=job.status.message,
        nodes=job.status.nodes if started else [],
        seconds=round(time.monotonic() - began, 1),
    )


class _Followed:
    """A job as the watch last showed it, until it starts, ends or is gone."""

    def __init__(self, job: GPUJob) -> None:
        self.job = job
        self.is_gone = False
        self._changed = asyncio.Event()

    @property
    def _is_over(self) -> bool:
        return self.is_gone or phase_of(self.job) == "Running" or is_finished(self.job)

    def look(self, event: EventType, /, job: GPUJob) -> None:
        # One that has started and is deleted at once has started.
        if job.metadata.uid == self.job.metadata.uid and not self._is_over:
            self.job, self.is_gone = job, event == "DELETED"
            self._changed.set()

    async def until_started(self, say: Say) -> None:
        while not self._is_over:
            say(f"{phase_of(self.job)}: {self.job.status.message or 'waiting for the moves'} …")
            await self._changed.wait()
            self._changed.clear()


async def _request(cluster: Cluster, *, job: GPUJob, at: str | None) -> None:
    try:
        await cluster.client.patch(
            GPUJOBS,
            name=job.metadata.name,
            # The UID keeps it from a job that has the name since.
            patch={"metadata": {"uid": job.metadata.uid}, "spec": {"moveRequestTime": at}},
            as_type=GPUJob,
            namespace=job.metadata.namespace,
        )
    except StatusError as error:
        raise CommandError(error_messages.explain(error)) from error


def _exit_code(done: MovesApplied) -> int:
    if done.started:
        return 0
    return _ENDED if done.phase in FINISHED else TIMED_OUT


def _said(done: MovesApplied) -> str:
    name = done.plan.job.name
    if done.started:
        return f"{name} runs on {', '.join(done.nodes)} after {human(done.seconds)}."
    why = f": {done.message}" if done.message else ""
    if done.phase in FINISHED:
        return f"{name} has ended ({done.phase}{why})."
    return f"{name} has not started within {human(done.seconds)} ({done.phase}{why}). The request is withdrawn."
