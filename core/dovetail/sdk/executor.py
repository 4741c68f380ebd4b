"""`concurrent.futures.Executor` whose calls are jobs."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from typing import Any, Final, ParamSpec, TypeVar

from dovetail.sdk.blocking.client import Client
from dovetail.sdk.blocking.functions import FunctionJob, MapJob, MappedCall
from dovetail.sdk.errors import BusyError, DovetailError, FunctionFailedError, UnreachableError, WaitTimeoutError
from dovetail.sdk.functions.outcomes import is_hopeless

P = ParamSpec("P")
T = TypeVar("T")
_LOOK_SECONDS: Final = 0.1
# Longer than a gateway or an API server takes to come back. Of a future nothing can ask again.
_AWAY_SECONDS: Final = 600.0
# Longer than the three attempts of a request. Nothing says that the gateway has answered a map of which no call ended.
_APART_SECONDS: Final = 180.0


class Executor(futures.Executor):
    """Runs each call as a job with the options of `Client.submit`, such as `gpu="1"`.

    A call that can never start fails, and its job is cancelled. A gateway that does not answer for ten minutes fails
    the calls that wait for it.
    `submit` gives a `Future`: cancelling it cancels a job that has not started. `map` makes one array of all calls.
    A thread asks for the outcomes.
    """

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        """Without a client, the executor finds the gateway itself. Raises `DovetailError`."""
        self._client = Client() if client is None else client
        self._owns = client is None
        # Each job is looked at anyway: with the answer, a loop of submissions would wait for the queue at each.
        self._options = {"answer_seconds": 0, **options}
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._maps: list[_Values] = []
        self._submitting = 0
        self._closed = self._cancels = False
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Submit a call. Raises `DovetailError`, and `RuntimeError` after `shutdown`."""
        future: futures.Future[T] = futures.Future()
        with self._submission():
            job: FunctionJob[T] = self._client.submit(fn, *args, kwargs=kwargs, **self._options)
            with self._changed:
                self._waiting.append(_Waiting(future, job=job))
                if self._cancels:
                    future.cancel()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._follow, name="dovetail-executor", daemon=True)
                    self._thread.start()
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """The values in the order of the arguments, from one array of jobs; `chunksize` changes nothing.

        The calls are submitted at once. A value raises what its call raised, and `TimeoutError` `timeout` seconds after
        this call.
        """
        del chunksize
        with self._submission():
            elements = list(zip(*iterables, strict=False))
            if not elements:
                return iter(())
            made = self._client.map(fn, *zip(*elements, strict=True), **self._options)
            values = _Values(made, timeout=timeout)
            with self._changed:
                self._maps = [*(each for each in self._maps if not each.has_all), values]
        return iter(values)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, wait for those that there are."""
        with self._changed:
            self._closed = True
            self._cancels |= cancel_futures
            if cancel_futures:
                for each in self._waiting:
                    each.future.cancel()
            self._changed.notify_all()
            if not wait:
                return
            # A call that another thread submits meanwhile is one of those that there are.
            self._changed.wait_for(lambda: not self._submitting)
            thread, maps = self._thread, self._maps
        if thread is not None:
            thread.join()
        for values in maps:
            values.take_all()
        if self._owns:
            self._client.close()

    @contextmanager
    def _submission(self) -> Iterator[None]:
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._submitting += 1
        try:
            yield
        finally:
            with self._changed:
                self._submitting -= 1
                self._changed.notify_all()

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or (self._closed and not self._submitting))
                now = list(self._waiting)
            if not now:
                return
            for each in now:
                if each.is_over():
                    with self._changed:
                        self._waiting.remove(each)
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)


class _Patience:
    """Waits out failures of the gateway, up to ten minutes of them.

    Between two that are `apart_seconds` apart, the gateway has answered.
    """

    def __init__(self, *, apart_seconds: float = math.inf) -> None:
        self._apart_seconds = apart_seconds
        self._first = self._last = -apart_seconds

    def answered(self) -> None:
        self._last = -self._apart_seconds

    def waits_out(self, error: Exception) -> bool:
        # What the function raised itself has its traceback as its cause.
        if not isinstance(error, BusyError | UnreachableError) or isinstance(error.__cause__, FunctionFailedError):
            return False
        now = time.monotonic()
        if now - self._last >= self._apart_seconds:
            self._first = now
        self._last = now
        return now - self._first < _AWAY_SECONDS


class _Waiting:
    """A future that has no end yet, and its job."""

    def __init__(self, future: futures.Future[Any], *, job: FunctionJob[Any]) -> None:
        self.future = future
        self._job = job
        self._patience = _Patience()
        # From then on a future cannot be cancelled, or is known to be.
        self._has_begun = False

    def is_over(self) -> bool:
        """Whether the future has its end and its job needs nothing more, after a look at the job."""
        try:
            over = self._look()
        except Exception as error:  # noqa: BLE001 - what the function raised
            if self._patience.waits_out(error):
                return False
            self._fail(error)
            return True
        self._patience.answered()
        return over

    def _look(self) -> bool:
        over = not self.future.cancelled() and self._job.done()
        if over or self.future.cancelled() or self._job.phase == "Running":
            self._begin()
        if self._has_begun and self.future.cancelled():
            self._job.cancel()
            return True
        if over:
            try:
                self.future.set_result(self._job.result())
            finally:
                _withdraw(self._job)
        return over

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.future.set_running_or_notify_cancel()

    def _fail(self, error: Exception) -> None:
        self._begin()
        if not self.future.done():
            self.future.set_exception(error)


class _Values:
    """The values of a map, taken as they are asked for: in the order of the arguments."""

    def __init__(self, made: MapJob, *, timeout: float | None) -> None:
        self._made = made
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self._calls: Iterator[MappedCall] | None = None
        self._ended: dict[int, MappedCall] = {}
        # Why the calls that have not ended can never start: a cancelled array does not say it.
        self._never: DovetailError | None = None
        self._patience = _Patience(apart_seconds=_APART_SECONDS)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self._made)):
            with self._lock:
                while index not in self._ended:
                    self._take_next(until=self._until)
            yield self._ended[index].value()

    @property
    def has_all(self) -> bool:
        """Whether all calls have ended, so that nothing has to be waited for."""
        return len(self._ended) == len(self._made)

    def take_all(self) -> None:
        """Wait for the calls that have not ended; what they raised is raised where their values are asked for."""
        with self._lock, suppress(DovetailError):
            self._calls = None
            while not self.has_all:
                self._take_next(until=None)

    def _take_next(self, *, until: float | None) -> None:
        if self._never is not None:
            _withdraw(self._made)
            raise self._never
        if self._calls is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            self._calls = self._made.as_completed(timeout_seconds=left)
        try:
            call = next(self._calls)
        except DovetailError as error:
            # A generator ends with what it raises: the next value needs another one.
            self._calls = None
            if self._patience.waits_out(error):
                if until is not None and self._timeout is not None and time.monotonic() >= until:
                    raise WaitTimeoutError(
                        "some calls have not ended", seconds=self._timeout, last=str(error)
                    ) from error
                time.sleep(_LOOK_SECONDS)
                return
            if is_hopeless(self._made.row):
                self._never = error
                _withdraw(self._made)
            raise
        if call.index not in self._ended:
            # A new generator begins with those that have ended before.
            self._patience.answered()
        self._ended[call.index] = call


def _withdraw(job: FunctionJob[Any] | MapJob) -> None:
    """Cancel a job that can never start: the caller has a future, and no job to cancel."""
    if is_hopeless(job.row):
        with suppress(DovetailError):
            job.cancel()
