"""Functions that run as jobs: the value of one, of each worker of a gang, or of each element of a map."""

import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from dovetail.answers.jobs import JobDetails, JobRow, console_url
from dovetail.jobs.array_indexes import indexes_in
from dovetail.sdk import notebook
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.calls import v3
from dovetail.sdk.errors import (
    BusyError,
    DovetailError,
    FunctionFailedError,
    NotFoundError,
    UnreachableError,
    WaitTimeoutError,
)
from dovetail.sdk.functions import outcomes, travel
from dovetail.sdk.functions.outcomes import Outcome
from dovetail.sdk.functions.travel import Sent
from dovetail.sdk.progress import FINISHED, sentence

T = TypeVar("T")
# A file on this machine is looked for more often than the gateway is asked.
_LOOK_SECONDS: Final = 0.05
_ASK_SECONDS: Final = 0.5
# A log is whole a moment after its pod has ended, and a file of another program's kept pages a moment after its end.
_LATE_SECONDS: Final = 5.0


class AsyncFunctionJob(AsyncJob, Generic[T]):
    """The job of a function: `result` waits for what the function returns."""

    def __init__(self, row: JobRow, *, transport: AsyncTransport, sent: Sent, workers: int, unread: str = "") -> None:
        super().__init__(row, transport=transport, submitted=True)
        self._sent = sent
        self._workers = workers
        refused = _without_value(unread)
        self._outcomes: dict[int, Outcome] = dict.fromkeys(range(workers), refused) if unread else {}

    async def result(self, *, timeout_seconds: float | None = None) -> T:
        """What the function returned; of a gang, the list of what each worker did, by rank.

        Raises what the function raised, with the job's traceback as its cause; `FunctionFailedError` for a job that
        ended without a value, or that can never start here; `WaitTimeoutError`.
        """
        await self._ended(timeout_seconds)
        return self._value()

    def _value(self) -> T:
        if not self._outcomes:
            raise FunctionFailedError(self._called, problem=outcomes.never(self.row))
        values = [self._outcomes[worker].value(of=self._called) for worker in range(self._workers)]
        return values if self._workers > 1 else values[0]  # type: ignore[return-value] # a gang's T is a list

    async def exception(self, *, timeout_seconds: float | None = None) -> Exception | None:
        """What `result` raises about the function; None if it returned. Raises `WaitTimeoutError`."""
        await self._ended(timeout_seconds)
        try:
            self._value()
        except Exception as error:  # noqa: BLE001 - whatever the function raised
            return error
        return None

    async def done(self) -> bool:
        """Whether `result` would not wait. Raises `DovetailError`."""
        return await self._look(ask=True)

    @property
    def _called(self) -> str:
        return f"job {self.row.number or self.name}"

    async def _ended(self, timeout_seconds: float | None) -> None:
        begun, asked = time.monotonic(), 0.0
        while True:
            now = time.monotonic()
            ask = now - asked >= _ASK_SECONDS
            asked = now if ask else asked
            if await self._look(ask=ask):
                return
            if timeout_seconds is not None and now - begun >= timeout_seconds:
                what = f"{self.namespace}/{self.name} has no result"
                raise WaitTimeoutError(what, seconds=timeout_seconds, last=sentence(self.row))
            await runtime.sleep(_LOOK_SECONDS)

    async def _look(self, *, ask: bool) -> bool:
        """Whether each worker has its outcome; with `ask`, the gateway is asked whether the job has ended."""
        if len(self._outcomes) == self._workers:
            return True
        # A value is final. An error is not as long as the job may be retried.
        found = {worker: self._sent.outcome(task=self._sent.task, worker=worker) for worker in range(self._workers)}
        if all(each is not None and each.kind == "value" for each in found.values()):
            return self._keep(found)
        if not ask:
            return False
        row = await self.refresh()
        if row.phase not in FINISHED:
            return outcomes.is_hopeless(row)
        return self._keep({worker: await self._last(worker) for worker in range(self._workers)})

    async def _last(self, worker: int) -> Outcome:
        """The outcome of a worker of a job that has ended."""
        found = self._sent.outcome(task=self._sent.task, worker=worker)
        if found is None and self._sent.folder is None:
            found = await printed(self, worker=worker, word=self._sent.word)
        return found or _none(self.row, sent=self._sent)

    def _keep(self, found: dict[int, Outcome | None]) -> bool:
        # Another thread or task may have read them first, and removed the files.
        if not self._outcomes:
            self._outcomes = {worker: each for worker, each in found.items() if each is not None}
        self._sent.forget()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedCall:
    """The end of one call of a map: `index` counts from 0."""

    index: int
    outcome: Outcome
    job: str

    def value(self) -> Any:
        """What the call returned. Raises what it raised, or `FunctionFailedError`."""
        return self.outcome.value(of=f"call {self.index} of {self.job}")


class AsyncMapJob(AsyncJob):
    """The array of a function's calls: one task for each."""

    def __init__(self, row: JobRow, *, transport: AsyncTransport, sent: Sent, calls: int, unread: str = "") -> None:
        super().__init__(row, transport=transport, submitted=True)
        self._sent = sent
        self._calls = calls
        self._ended: dict[int, MappedCall] = {}
        for index in range(calls if unread else 0):
            self._end(index, outcome=_without_value(unread))
        # How many tasks have ended, and failed, by the status that the bar of a notebook reads.
        self._over = self._failed = 0

    def __len__(self) -> int:
        return self._calls

    def _repr_html_(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        url = console_url(self._transport.connection.url, namespace=self.namespace, name=self.name)
        done = max(len(self._ended), self._over)
        failed = max(sum(each.outcome.kind != "value" for each in self._ended.values()), self._failed)
        return notebook.bar(done, total=self._calls, failed=failed, title=f"Map{number}: {self.row.name}", url=url)

    async def _look_closer(self) -> None:
        tasks = (await self.status()).get("tasks") or {}
        self._failed = int(tasks.get("failed") or 0)
        self._over = int(tasks.get("succeeded") or 0) + self._failed

    async def results(self, *, timeout_seconds: float | None = None) -> list[Any]:
        """What the calls returned, in the order of their arguments.

        Raises what the first call that failed has raised, and `WaitTimeoutError`.
        """
        async for _ in self.as_completed(timeout_seconds=timeout_seconds):
            pass
        return [self._ended[index].value() for index in range(self._calls)]

    async def as_completed(self, *, timeout_seconds: float | None = None) -> AsyncIterator[MappedCall]:
        """The calls as they end.

        Raises `WaitTimeoutError`, and `FunctionFailedError` if the next ones can never start here.
        """
        begun, asked, given = time.monotonic(), 0.0, set[int]()
        view = notebook.view()
        while len(given) < self._calls:
            now = time.monotonic()
            ask = now - asked >= _ASK_SECONDS
            asked = now if ask else asked
            await self._look(ask=ask)
            if view is not None:
                view.show(self._repr_html_(), text=repr(self))
            for index in sorted(self._ended.keys() - given):
                given.add(index)
                yield self._ended[index]
            if len(given) == self._calls:
                self._sent.forget()
                return
            if outcomes.is_hopeless(self.row):
                raise FunctionFailedError(f"map {self.name}", problem=outcomes.never(self.row))
            if timeout_seconds is not None and now - begun >= timeout_seconds:
                what = (
                    f"{self._calls - len(given)} of {self._calls} calls of {self.namespace}/{self.name} have not ended"
                )
                raise WaitTimeoutError(what, seconds=timeout_seconds, last=sentence(self.row))
            await runtime.sleep(_LOOK_SECONDS)

    async def _look(self, *, ask: bool) -> None:
        left = [index for index in range(self._calls) if index not in self._ended]
        for index in left:
            found = self._sent.outcome(task=index, worker=0)
            if found is not None and found.kind == "value":
                self._end(index, outcome=found)
        if not ask:
            return
        status = await self.status()
        tasks = status.get("tasks") or {}
        over = {*_indexes(tasks.get("succeededIndexes")), *_indexes(tasks.get("failedIndexes"))}
        if self.row.phase in FINISHED:
            over = set(left)
        for index in left:
            if index in over and index not in self._ended:
                self._end(index, outcome=await self._last(index))

    async def _last(self, index: int) -> Outcome:
        found = self._sent.outcome(task=index, worker=0)
        if found is not None:
            return found
        task = await self._task(index)
        if task is None:
            return _without_value("its task is gone, and its log with it")
        if self._sent.folder is None:
            found = await printed(task, worker=0, word=self._sent.word)
        return found or _none(task.row, sent=self._sent)

    async def _task(self, index: int) -> AsyncJob | None:
        try:
            details = await self._transport.send(v3.job(self.namespace, name=f"{self.name}-t{index}"))
        except NotFoundError:
            return None
        return AsyncJob(details.row, transport=self._transport)

    def _end(self, index: int, *, outcome: Outcome) -> None:
        self._ended[index] = MappedCall(index=index, outcome=outcome, job=self.name)


async def as_completed(
    jobs: Collection[AsyncFunctionJob[T]], *, timeout_seconds: float | None = None
) -> AsyncIterator[AsyncFunctionJob[T]]:
    """The jobs of functions as they end. Raises `WaitTimeoutError`."""
    begun, left = time.monotonic(), list(jobs)
    while left:
        for job in [job for job in left if await job.done()]:
            left.remove(job)
            yield job
        if left and timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
            what = f"{len(left)} of {len(jobs)} jobs have no result"
            raise WaitTimeoutError(what, seconds=timeout_seconds, last=sentence(left[0].row))
        if left:
            await runtime.sleep(_ASK_SECONDS)


async def printed(job: AsyncJob, *, worker: int, word: str) -> Outcome | None:
    """The outcome with this word in the log of a worker that has ended; None if there is none.

    Raises `BusyError` or `UnreachableError` if the gateway does not say so: another call may find it.
    """
    begun = time.monotonic()
    while True:
        is_late = time.monotonic() - begun >= _LATE_SECONDS
        try:
            begin = outcomes.begin_of(word)
            lines = [line async for line in job.logs(worker=worker) if line.startswith(begin)]
            found = outcomes.in_log(lines, word=word)
        except DovetailError as error:
            if is_late and isinstance(error, BusyError | UnreachableError):
                raise
            # The log goes with its pod.
            found = None
        if found is not None or is_late:
            return found
        await runtime.sleep(_ASK_SECONDS)


async def found(details: JobDetails, *, transport: AsyncTransport) -> AsyncJob:
    """The job with its spec: that of a function has its `result`, that of a map its `results`.

    To read a result is to run code of the one who submitted the job, so that of another user is not read.
    """
    sent = travel.sent_before(details.spec, data=transport.connection.local_data)
    if sent is None:
        return AsyncJob(details.row, transport=transport)
    unread, user = "", details.row.user
    # In the folder of this machine's queue, there are none of others.
    if sent.folder is None and user != (await transport.send(v3.me())).username:
        unread = f"its user is {user or 'unknown'}, and reading its result would run code of theirs here"
    row, array = details.row, details.spec.get("array")
    if array is not None:
        calls = len(indexes_in(array["indexes"]))
        return AsyncMapJob(row, transport=transport, sent=sent, calls=calls, unread=unread)
    workers = details.spec.get("workers", 1)
    return AsyncFunctionJob(row, transport=transport, sent=sent, workers=workers, unread=unread)


def _none(row: JobRow, *, sent: Sent) -> Outcome:
    """The outcome of a job that ended without one."""
    if sent.folder is not None and not sent.folder.exists():
        return _without_value("its result was read before, and is gone; with key=, it stays")
    why = row.message or row.reason
    return _without_value(f"it is {row.phase} and has no result{f': {why}' if why else ''}")


def _without_value(why: str) -> Outcome:
    return Outcome(kind="refused", text=why, traceback="", data=b"")


def _indexes(text: str | None) -> Sequence[int]:
    return indexes_in(text) if text else ()
