"""`concurrent.futures.Executor` whose calls are jobs."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

from dovetail.sdk.blocking.client import Client
from dovetail.sdk.blocking.functions import FunctionJob, MapJob, MappedCall
from dovetail.sdk.errors import DovetailError
from dovetail.sdk.functions.outcomes import is_hopeless

P = ParamSpec("P")
T = TypeVar("T")
_LOOK_SECONDS: Final = 0.1


class Executor(futures.Executor):
    """Runs each call as a job with the options of `Client.submit`, such as `gpu="1"`.

    A call that can never start fails, and its job is cancelled.
    `submit` gives a `Future`: cancelling it cancels a job that has not started. `map` makes one array of all calls.
    A thread asks for the outcomes.
    """

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        """Without a client, the executor finds the gateway itself. Raises `DovetailError`."""
        self._client = Client() if client is None else client
        self._owns = client is None
        self._options = options
        self._waiting: dict[futures.Future[Any], FunctionJob[Any]] = {}
        self._changed = threading.Condition()
        self._maps: list[_Values] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Submit a call. Raises `DovetailError`, and `RuntimeError` after `shutdown`."""
        with self._changed:
            self._check_open()
        job: FunctionJob[T] = self._client.submit(fn, *args, kwargs=kwargs, **self._options)
        future: futures.Future[T] = futures.Future()
        with self._changed:
            self._waiting[future] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="dovetail-executor", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """The values in the order of the arguments, from one array of jobs; `chunksize` changes nothing.

        The calls are submitted at once. A value raises what its call raised, and `TimeoutError` `timeout` seconds after
        this call.
        """
        del chunksize
        with self._changed:
            self._check_open()
        elements = list(zip(*iterables, strict=False))
        if not elements:
            return iter(())
        made = self._client.map(fn, *zip(*elements, strict=True), **self._options)
        values = _Values(made, until=None if timeout is None else time.monotonic() + timeout)
        with self._changed:
            self._maps = [*(each for each in self._maps if not each.has_all), values]
        return iter(values)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, wait for those that there are."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                for future in self._waiting:
                    future.cancel()
            self._changed.notify_all()
            thread, maps = self._thread, self._maps
        if wait and thread is not None:
            thread.join()
        if wait:
            for values in maps:
                values.take_all()
        if wait and self._owns:
            self._client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _follow(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                now = dict(self._waiting)
            for future, job in now.items():
                if self._is_over(future, job=job):
                    with self._changed:
                        del self._waiting[future]
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)

    def _is_over(self, future: futures.Future[Any], *, job: FunctionJob[Any]) -> bool:
        """Whether the future has its end, after a look at the job."""
        try:
            if future.cancelled():
                future.set_running_or_notify_cancel()
                job.cancel()
                return True
            over = job.done()
            if not future.running() and (over or job.phase == "Running") and not future.set_running_or_notify_cancel():
                job.cancel()
                return True
            if over:
                try:
                    future.set_result(job.result())
                finally:
                    _withdraw(job)
        except DovetailError as error:
            _fail(future, error=error)
            return True
        except Exception as error:  # noqa: BLE001 - what the function raised
            _fail(future, error=error)
            return True
        return over


class _Values:
    """The values of a map, taken as they are asked for: in the order of the arguments."""

    def __init__(self, made: MapJob, *, until: float | None) -> None:
        self._made = made
        self._until = until
        self._calls: Iterator[MappedCall] | None = None
        self._ended: dict[int, MappedCall] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self._made)):
            with self._lock:
                while index not in self._ended:
                    self._take_next()
            yield self._ended[index].value()

    @property
    def has_all(self) -> bool:
        """Whether all calls have ended, so that nothing has to be waited for."""
        return len(self._ended) == len(self._made)

    def take_all(self) -> None:
        """Wait for the calls that have not ended; what they raised is raised where their values are asked for."""
        with self._lock:
            try:
                for call in self._made.as_completed():
                    self._ended[call.index] = call
            except DovetailError:
                _withdraw(self._made)

    def _take_next(self) -> None:
        if self._calls is None:
            left = None if self._until is None else max(0.0, self._until - time.monotonic())
            self._calls = self._made.as_completed(timeout_seconds=left)
        try:
            call = next(self._calls)
        except DovetailError:
            # A generator ends with what it raises: the next value needs another one.
            self._calls = None
            _withdraw(self._made)
            raise
        self._ended[call.index] = call


def _withdraw(job: FunctionJob[Any] | MapJob) -> None:
    """Cancel a job that can never start: the caller has a future, and no job to cancel."""
    if is_hopeless(job.row):
        with suppress(DovetailError):
            job.cancel()


def _fail(future: futures.Future[Any], *, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
