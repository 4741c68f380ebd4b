"""`dovetail move apply JOBS`: show the moves, ask, request them, and wait for the starts."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import typer

from dovetail.answers.moves import MovesAnswer, MovesApplied, MovesAppliedList
from dovetail.api.gpujob import FINISHED, GPUJob, is_finished
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import human, timestamp
from dovetail.kube.errors import Conflict, NotFound, StatusError
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

_NOT_STARTED: Final = 1
# What a job that is deleted before its start has instead of a phase.
_DELETED: Final = "Deleted"


def apply(
    words: Sequence[str],
    *,
    yes: bool,
    timeout_seconds: float,
    form: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> int:
    """Carry out the moves that start jobs, and return the exit code.

    Raises `InvalidQueryError`, `MissingError`, `UsageError` and `CommandError`.
    """
    wanted = selection.parse_ids(words, field="JOBS")
    # Also for one that is no number, which is neither less nor more.
    if not timeout_seconds > 0:
        raise UsageError(f"--timeout {timeout_seconds:g}: write a number of seconds above 0")
    if not yes and not sys.stdin.isatty():
        raise UsageError("move apply restarts running jobs: without a terminal that can ask, say --yes")

    async def go(cluster: Cluster) -> int:
        jobs, plans = await move_plan.found_for(cluster, wanted=wanted, to_apply=True)
        holds = any(each.holds for each in plans.items)
        asks = holds and not yes
        # Of a document, neither the plans as text nor the question become a part.
        if form == "table" or asks:
            print(move_plan.text(plans, to_apply=True), file=sys.stdout if form == "table" else sys.stderr)
        if asks and not typer.confirm("\nRestart these jobs?", err=True):
            return _NOT_STARTED
        done = await _carried_out(cluster, jobs=jobs, plans=plans.items, timeout_seconds=timeout_seconds)
        if form != "table":
            print(output.document(msgspec.to_builtins(MovesAppliedList(items=done)), form=form))
        elif holds:
            print("\n" + "\n".join(_said(each) for each in done if each.plan.holds))
        return _exit_code(done)

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def _carried_out(
    cluster: Cluster, *, jobs: Sequence[GPUJob], plans: Sequence[MovesAnswer], timeout_seconds: float
) -> list[MovesApplied]:
    """Request the moves of the jobs that have a plan, and wait for their starts.

    Without a start in time, and by Ctrl-C, the requests are withdrawn.
    """
    began, every = time.monotonic(), [_Followed(job) for job in jobs]
    going = [each for each, plan in zip(every, plans, strict=True) if plan.holds]
    if going:
        await _start(cluster, following=_Following(going), timeout_seconds=timeout_seconds)
    return [each.applied(plan, began=began) for each, plan in zip(every, plans, strict=True)]


async def _start(cluster: Cluster, *, following: "_Following", timeout_seconds: float) -> None:
    at = timestamp(utc_now())
    reflector = Reflector(
        cluster.client, resource=GPUJOBS, as_type=GPUJob, on_event=following.look, namespace=cluster.namespace
    )
    watching = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        following.compare(reflector.store.values())
        for each in following.open:
            # Before the write, whose answer Ctrl-C may not let come.
            each.requests = {each.job.spec.move_request_time, at}
            try:
                await _request(cluster, job=each.job, at=at)
            except CommandError:
                each.requests = set()
                raise
        with patiently() as say:
            async with asyncio.timeout(timeout_seconds):
                await following.until_over(say)
    except (TimeoutError, CommandError, asyncio.CancelledError) as error:
        # A later request, from another terminal, is that one's to withdraw.
        for each in following.open:
            if each.job.spec.move_request_time in each.requests:
                await _request(cluster, job=each.job, at=None)
        if not isinstance(error, TimeoutError):
            raise
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


class _Followed:
    """A job as the watch last showed it, until it starts, ends or is gone.

    `requests` are what it shows of requests until another one comes: that of before, and our own.
    """

    def __init__(self, job: GPUJob) -> None:
        self.job = job
        self.is_gone = False
        self.requests = set[str | None]()
        self._over_at: float | None = None

    @property
    def is_over(self) -> bool:
        return self._over_at is not None

    def look(self, job: GPUJob, *, is_gone: bool) -> None:
        # One that has started and is deleted at once has started.
        if not self.is_over:
            self.job, self.is_gone = job, is_gone
            if is_gone or phase_of(job) == "Running" or is_finished(job):
                self._over_at = time.monotonic()

    def applied(self, plan: MovesAnswer, *, began: float) -> MovesApplied:
        job = self.job
        phase = _DELETED if self.is_gone else phase_of(job)
        started = job.status.start_time is not None and phase in {"Running", "Succeeded"}
        until = time.monotonic() if self._over_at is None else self._over_at
        return MovesApplied(
            plan=plan,
            started=started,
            phase=phase,
            message=job.status.message,
            nodes=job.status.nodes if started else [],
            seconds=round(until - began, 1) if plan.holds else 0.0,
        )


class _Following:
    """The jobs whose starts are awaited."""

    def __init__(self, jobs: Iterable[_Followed]) -> None:
        self._jobs = {each.job.metadata.uid: each for each in jobs}
        self._changed = asyncio.Event()

    @property
    def open(self) -> list[_Followed]:
        """Those that have neither started nor ended."""
        return [each for each in self._jobs.values() if not each.is_over]

    def look(self, event: EventType, /, job: GPUJob) -> None:
        if (followed := self._jobs.get(job.metadata.uid)) is not None:
            followed.look(job, is_gone=event == "DELETED")
            self._changed.set()

    def compare(self, jobs: Iterable[GPUJob]) -> None:
        """Note the jobs that were deleted before the first list: they make no event."""
        there = {each.metadata.uid for each in jobs}
        for uid, followed in self._jobs.items():
            if uid not in there:
                followed.look(followed.job, is_gone=True)

    async def until_over(self, say: Say) -> None:
        while left := self.open:
            job = left[0].job
            others = f" ({len(left) - 1} more)" if len(left) > 1 else ""
            say(f"{job.metadata.name} {phase_of(job)}: {job.status.message or 'waiting for the moves'}{others} …")
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
    except (NotFound, Conflict):
        # It is gone, which the watch shows. The requests for the others go on.
        return
    except StatusError as error:
        raise CommandError(error_messages.explain(error)) from error


def _exit_code(done: Sequence[MovesApplied]) -> int:
    if any(not each.plan.holds or (_is_over(each) and not each.started) for each in done):
        return _NOT_STARTED
    return 0 if all(each.started for each in done) else TIMED_OUT


def _is_over(done: MovesApplied) -> bool:
    return done.phase in FINISHED or done.phase == _DELETED


def _said(done: MovesApplied) -> str:
    name = done.plan.job.name
    if done.started:
        return f"{name} runs on {', '.join(done.nodes)} after {human(done.seconds)}."
    if done.phase == _DELETED:
        return f"{name} was deleted before it started."
    why = f": {done.message}" if done.message else ""
    if done.phase in FINISHED:
        return f"{name} has ended ({done.phase}{why})."
    return f"{name} has not started within {human(done.seconds)} ({done.phase}{why}). The request is withdrawn."
