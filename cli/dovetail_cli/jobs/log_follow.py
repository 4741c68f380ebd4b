"""Follow the logs of a job's workers over restarts and broken streams, until the job ends."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import ContainerStatus, Pod, is_terminated
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.kube.errors import Forbidden, NotFound, StatusError, Unauthorized, Unreachable
from dovetail.query.jobs.states import phase_of
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs.job_view import JobView, main_container, worker_of
from dovetail_cli.jobs.log_lines import LogCursor, Prefixed
from dovetail_cli.ui.errors import CommandError, MissingError

_RETRY_SECONDS: Final = 1.0
# How long a stream that has ended waits for the pod's status to say that its container has ended, too.
_STATUS_SECONDS: Final = 2.0
# Attempts to read the log of a container that has ended, from a kubelet that fails.
_MOST_FAILURES: Final = 5
# The API server's words for a node without an address. Simulated nodes have none.
_NO_ADDRESS: Final = "no preferred addresses found"

_WAITING: Final = frozenset({"Queued", "Held", "Suspended", "Preempted"})

Write = Callable[[bytes], None]


def no_log(pod: Pod, *, error: StatusError) -> str:
    """Why a pod's log cannot be read."""
    reason = error.message or error.reason
    if _is_simulated(error):
        reason = f"its node {pod.spec.node_name} has no kubelet that could be asked: simulated nodes keep no logs"
    return f"no log of {pod.metadata.name}: {reason}"


def note(text: str) -> None:
    """Print to standard error what no container has printed."""
    print(f"dovetail: {text}", file=sys.stderr, flush=True)


class LogFollower:
    """Writes the logs of a job's workers as they grow.

    `worker` limits it to one. `tail` limits what was printed before. `write` receives bytes, and `prefix` returns what
    precedes the lines of a worker: nothing passes the bytes on as they come, without waiting for whole lines.
    `retry_seconds` is the time between two attempts to read.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        job: GPUJob,
        worker: int | None,
        tail: int | None,
        write: Write,
        prefix: Callable[[int], str],
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._called = job.status.number or job.metadata.name
        self._worker = worker
        self._tail = tail
        self._write = write
        self._prefix = prefix
        self._retry_seconds = retry_seconds
        self._view = JobView(cluster, job=job)
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._began: set[int] = set()
        self._said = ""
        self._broken = False

    async def run(self) -> None:
        """Follow until the job has ended and everything is read.

        Raises `MissingError` if the job is deleted before that, `CommandError` where there are no logs.
        """
        async with self._view.watching():
            try:
                while not self._is_over():
                    self._tell()
                    await self._view.change(most_seconds=self._retry_seconds)
            finally:
                for reader in self._readers.values():
                    reader.cancel()
                await asyncio.gather(*self._readers.values(), return_exceptions=True)
        job = self._view.job
        if phase_of(job) not in FINISHED:
            raise MissingError(f"job {self._called} was deleted while its log was followed")
        note(f"job {self._called} has ended: {_state(job)}")

    def _is_over(self) -> bool:
        """Begin to read new pods; whether nothing more will come."""
        if isinstance(error := self._view.trouble, Forbidden | Unauthorized | NotFound):
            raise error
        for pod in self._view.pods:
            if pod.metadata.uid not in self._readers and self._worker in {None, worker_of(pod)}:
                self._readers[pod.metadata.uid] = asyncio.create_task(self._read(pod.metadata.uid))
        ended = [reader for reader in self._readers.values() if reader.done()]
        for reader in ended:
            reader.result()
        has_ended = self._view.is_deleted or phase_of(self._view.job) in FINISHED
        return has_ended and self._view.is_complete and len(ended) == len(self._readers)

    def _tell(self) -> None:
        """Say once why nothing comes: the API server is away, or the job waits."""
        if (error := self._view.trouble) is not None:
            self._break(str(error))
        job = self._view.job
        if phase_of(job) not in _WAITING:
            self._said = ""
        elif self._said != f"{phase_of(job)} {job.status.reason}":
            self._said = f"{phase_of(job)} {job.status.reason}"
            note(f"job {self._called} waits: {_state(job)}; its log follows when it starts")

    def _break(self, why: str) -> None:
        if not self._broken:
            self._broken = True
            note(f"the log breaks off: {why}; trying again")

    async def _read(self, uid: str) -> None:
        """Read the runs of one pod's container, until the pod has ended or is deleted."""
        runs, failures, place = -1, 0, _Place(cursor=LogCursor())
        while (pod := self._view.pod(uid)) is not None and failures < _MOST_FAILURES:
            container = main_container(pod)
            if container is None or not _has_begun(container):
                if is_terminated(pod):
                    note(f"{pod.metadata.name} has ended before its container began: {pod.status.message}")
                    return
                await self._view.change(most_seconds=self._retry_seconds)
                continue
            if container.restart_count != runs:
                runs, place = container.restart_count, self._begin(worker_of(pod))
            try:
                await self._stream(pod, place=place)
            except (Unreachable, StatusError) as error:
                failures += self._failed(pod, error=error)
                await asyncio.sleep(self._retry_seconds)
            else:
                if await self._has_ended(uid, runs=runs):
                    return
            place.cursor.resume()

    def _begin(self, worker: int) -> "_Place":
        """Begin with a new run of a worker; only the first begins with its last lines."""
        again = worker in self._began
        if again:
            note(f"worker {worker} starts again")
        self._began.add(worker)
        prefix = self._prefix(worker)
        return _Place(cursor=LogCursor(tail=None if again else self._tail), lines=Prefixed(prefix) if prefix else None)

    def _failed(self, pod: Pod, *, error: Unreachable | StatusError) -> bool:
        """Whether to count the failure.

        Raises one that no other attempt can change.
        """
        if isinstance(error, Unreachable):
            self._break(str(error))
            return False
        if isinstance(error, Forbidden | Unauthorized):
            raise error
        if isinstance(error, NotFound):
            # The pod is about to disappear from the view, too.
            return True
        if _is_simulated(error):
            raise CommandError(no_log(pod, error=error)) from error
        self._break(no_log(pod, error=error))
        return is_terminated(pod)

    async def _has_ended(self, uid: str, *, runs: int) -> bool:
        """Whether the pod has ended with this run of its container, after a stream has.

        Waits for the pod's status, which follows the end of the stream.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _STATUS_SECONDS
        while (left := until - loop.time()) > 0:
            pod = self._view.pod(uid)
            container = main_container(pod) if pod else None
            if container is not None and container.restart_count != runs:
                return False
            if pod is None or is_terminated(pod):
                return True
            await self._view.change(most_seconds=left)
        return False

    async def _stream(self, pod: Pod, *, place: "_Place") -> None:
        """Write the container's log from there on, until the stream ends."""
        meta, cursor = pod.metadata, place.cursor
        if cursor.may_lack_lines:
            note(f"lines of worker {worker_of(pod)} may be missing here")
        async with self._cluster.client.follow_log(
            meta.name,
            namespace=meta.namespace,
            container=pod.spec.containers[0].name,
            tail_lines=cursor.tail_lines,
            timestamps=True,
            since=cursor.since,
        ) as chunks:
            self._broken = False
            async for chunk in chunks:
                self._write(place.shown(chunk))
        self._write(place.rest())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The place in the log of one run of a container; `lines` adds a prefix."""

    cursor: LogCursor
    lines: Prefixed | None = None

    def shown(self, chunk: bytes) -> bytes:
        """What to write of the next bytes."""
        shown = self.cursor.feed(chunk)
        return self.lines.feed(shown) if self.lines else shown

    def rest(self) -> bytes:
        """What to write at the end of a stream."""
        rest = self.cursor.end()
        return self.lines.feed(rest) + self.lines.end() if self.lines else rest


def _is_simulated(error: StatusError) -> bool:
    return _NO_ADDRESS in error.message


def _has_begun(container: ContainerStatus) -> bool:
    state = container.state
    return state.running is not None or state.terminated is not None or container.restart_count > 0


def _state(job: GPUJob) -> str:
    """`Queued (Resources: Need 4 GPUs, only 1 available)`."""
    status = job.status
    why = ": ".join(filter(None, (status.reason, status.message)))
    return f"{phase_of(job)} ({why})" if why else phase_of(job)
