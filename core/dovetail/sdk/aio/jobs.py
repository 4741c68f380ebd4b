"""A job that was submitted: wait for it, ask why it waits, read its log, end it."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail.answers.effects import Effects
from dovetail.answers.jobs import EventRow, JobRow
from dovetail.answers.moves import MovesAnswer
from dovetail.answers.questions import DryRun, Explanation
from dovetail.answers.submission import SubmittedJob
from dovetail.api.gpujob import Moves
from dovetail.sdk import notebook
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.calls import v3
from dovetail.sdk.calls.call import Call
from dovetail.sdk.errors import DovetailError, NotFoundError, RefusedError, WaitTimeoutError
from dovetail.sdk.functions.runner import MARK
from dovetail.sdk.progress import FINISHED, Progress, sentence, shower

T = TypeVar("T")
# From the first look to those of a job that waits for hours.
_FIRST_LOOK_SECONDS: Final = 0.2
_LONGEST_LOOK_SECONDS: Final = 5.0
# The gateway answers from a cache, which a new job reaches after its creation.
_LAG_SECONDS: Final = 5.0
_LAG_LOOK_SECONDS: Final = 0.05
# How often the card of a notebook is drawn, and the lines of the log that it shows.
_CARD_SECONDS: Final = 1.0
_CARD_LINES: Final = 5


class AsyncJob:
    """A GPUJob as the gateway last showed it; `refresh` and `wait` look again."""

    def __init__(self, row: JobRow, *, transport: AsyncTransport, submitted: bool = False) -> None:
        self.row = row
        # The queue's answer to the submission. None of a job that another call submitted, or without one within 1 s.
        self.answer: DryRun | None = row.answer if isinstance(row, SubmittedJob) else None
        self._transport = transport
        # The lines of the log that the card of a notebook shows.
        self._tail: Sequence[str] = ()
        self._unseen_until = time.monotonic() + _LAG_SECONDS if submitted else 0.0

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.row.name

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.row.namespace

    @property
    def number(self) -> int | None:
        """The number by which commands know it; None until the operator has seen the job."""
        return self.row.number

    @property
    def phase(self) -> str:
        """Queued, Held, Starting, Running, Suspended, Preempted, Succeeded, Failed, Cancelled or TimedOut."""
        return self.row.phase

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self.row.phase in FINISHED

    async def refresh(self) -> JobRow:
        """Look again. Raises `DovetailError`."""
        details = await self._ask(v3.job(self.namespace, name=self.name))
        self.row = details.row
        return self.row

    async def status(self) -> Mapping[str, Any]:
        """The status of the API object, with everything that the row leaves out. Raises `DovetailError`."""
        details = await self._ask(v3.job(self.namespace, name=self.name))
        self.row = details.row
        return details.status

    async def wait(
        self, phase: str | None = None, *, timeout_seconds: float | None = None, progress: Progress = None
    ) -> str:
        """Wait for the end, or for a phase such as `Running`, and return the phase. Raises `DovetailError`.

        A job that ends before it has been in that phase ends the wait too.
        """
        begun, pause, show = time.monotonic(), _FIRST_LOOK_SECONDS, shower(progress)
        while True:
            row = await self.refresh()
            show(row)
            if row.phase == phase or row.phase in FINISHED:
                return row.phase
            left = None if timeout_seconds is None else timeout_seconds - (time.monotonic() - begun)
            if left is not None and left <= 0:
                what = f"{self.namespace}/{self.name} is not {phase or 'finished'}"
                raise WaitTimeoutError(what, seconds=timeout_seconds or 0, last=sentence(row))
            await runtime.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)

    async def logs(self, *, follow: bool = False, tail: int | None = None, worker: int = 0) -> AsyncIterator[str]:
        """The lines that a worker has printed, and with `follow` those until it ends. Raises `DovetailError`."""
        await self.refresh()
        call = v3.log(self.namespace, name=self.name, worker=worker, tail=tail, follow=follow)
        async with self._transport.lines(call) as lines:
            async for line in lines:
                yield line

    async def explain(self) -> Explanation:
        """Why the job waits or where it is, each node's answer, and what would help. Raises `DovetailError`."""
        return await self._ask(v3.explain(self.namespace, name=self.name))

    async def moves(self, *, willing: bool = False) -> MovesAnswer:
        """Which running jobs would have to restart elsewhere so that the job starts. Raises `DovetailError`.

        Nothing is changed. With `willing`, only jobs count that say that they may move, as `request_moves` moves.
        """
        found = await self._ask(v3.moves(f"{self.namespace}/{self.name}", willing=willing))
        return found.items[0]

    async def request_moves(self, *, withdraw: bool = False) -> JobRow:
        """Have jobs that may move restart elsewhere so that the job starts. Raises `DovetailError`.

        The request counts for ten minutes, or until you `withdraw` it.
        """
        return await self._change({"requestMoves": not withdraw})

    async def effects(self, *, held: bool | None = None, priority: int | None = None, cancel: bool = False) -> Effects:
        """What a change would do to the job and to others, without making it. Raises `DovetailError`.

        `held` true holds the job and false releases it; `priority` is 0 to 255.
        """
        change = {"held": held, "priority": priority, "cancel": cancel or None}
        body = {name: value for name, value in change.items() if value is not None}
        return await self._ask(v3.effects(self.namespace, name=self.name, body=body))

    async def events(self) -> list[EventRow]:
        """What happened to the job, the oldest first. Raises `DovetailError`."""
        return notebook.Listed((await self._ask(v3.events(self.namespace, name=self.name))).items)

    async def cancel(self) -> JobRow:
        """End the job; it stays with the phase Cancelled. Raises `DovetailError`."""
        self.row = await self._transport.send(v3.cancel(self.namespace, name=self.name))
        return self.row

    async def hold(self) -> JobRow:
        """Hold the job: it does not start, or its pods end and it waits. Raises `DovetailError`."""
        return await self._change({"held": True})

    async def release(self) -> JobRow:
        """Release a job that is held. Raises `DovetailError`."""
        return await self._change({"held": False})

    async def set_moves(self, moves: Moves) -> JobRow:
        """Say whether the job may restart elsewhere so that others start: Never or Restart. Raises `DovetailError`."""
        return await self._change({"moves": moves})

    async def accept_right_size(self, *, withdraw: bool = False) -> JobRow:
        """Request no more than the job's right size from its next start on. Raises `DovetailError`.

        `client.right_sizes()` shows it. To request as much as before, `withdraw` it.
        """
        return await self._change({"resize": "Withdraw" if withdraw else "Accept"})

    async def set_priority(self, priority: int) -> JobRow:
        """Change the priority, 0 to 255. Raises `DovetailError`."""
        return await self._change({"priority": priority})

    async def renew(self) -> JobRow:
        """Renew the lease of a reservation as of now. Raises `DovetailError`."""
        return await self._change({"renew": True})

    async def delete(self) -> None:
        """Delete the job with its pods; one that is gone is no error. Raises `DovetailError`."""
        await self._transport.send(v3.delete(self.namespace, name=self.name))

    async def _ask(self, call: Call[T]) -> T:
        """The answer about the job, also if the gateway's cache does not have a new one yet."""
        while True:
            try:
                answer = await self._transport.send(call)
            except NotFoundError:
                if time.monotonic() >= self._unseen_until:
                    raise
                await runtime.sleep(_LAG_LOOK_SECONDS)
            else:
                self._unseen_until = 0.0
                return answer

    async def _change(self, body: Mapping[str, Any]) -> JobRow:
        self.row = await self._transport.send(v3.change(self.namespace, name=self.name, body=body))
        return self.row

    def __repr__(self) -> str:
        return f"<{sentence(self.row)}>"

    def _repr_html_(self) -> str:
        return self.row.card(gateway=self._transport.connection.url, log=self._tail)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _ipython_display_(self) -> None:
        view = notebook.view()
        if view is None:
            raise NotImplementedError  # IPython then shows the bundle
        view.show(self._repr_html_(), text=repr(self))
        runtime.Periodic(lambda: self._draw(view)).start(after_seconds=_FIRST_LOOK_SECONDS)

    async def _draw(self, view: notebook.View) -> float | None:
        """Show the job as it is now; returns the seconds until the next look, None after the last one."""
        try:
            await self.refresh()
            await self._look_closer()
        except DovetailError as error:
            view.show(self._repr_html_(), text=f"{self!r}; not up to date: {error}")
            return _LONGEST_LOOK_SECONDS
        view.show(self._repr_html_(), text=repr(self))
        return None if self.finished else _CARD_SECONDS

    async def _look_closer(self) -> None:
        """Read the last lines that the first worker has printed."""
        if self.row.phase == "Running" or self.finished:
            with suppress(RefusedError):
                # What was printed may be gone with its pod.
                self._tail = [line async for line in self.logs(tail=_CARD_LINES) if not line.startswith(MARK)]
