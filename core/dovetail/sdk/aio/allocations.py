"""GPUs that a script holds while it runs: the lease is renewed, and the GPUs are released on every exit."""

import logging
import os
from types import TracebackType
from typing import Any, Final, Self

from dovetail.api.gpujob import AssignedDevice
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.calls import v3
from dovetail.sdk.errors import AllocationLostError, DovetailError, NotFoundError, WaitTimeoutError
from dovetail.sdk.progress import FINISHED, Progress

LEASE_SECONDS: Final = 600
_LOG: Final = logging.getLogger("dovetail.sdk")


class AsyncAllocation:
    """A GPUJob with `spec.reservation` that lives as long as the `with` block.

    The lease at the server is the truth: a process that is killed renews nothing, and its GPUs are free after at most
    `lease_seconds`. In a forked child the allocation does nothing: only the process that made it renews and releases.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        *,
        namespace: str,
        name: str,
        spec: dict[str, Any],
        timeout_seconds: float | None,
        progress: Progress,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._spec = spec
        self._lease_seconds: int = spec["reservation"]["durationSeconds"]
        self._timeout_seconds = timeout_seconds
        self._progress = progress
        self._process = 0
        self._job: AsyncJob | None = None
        self._lost = ""
        self._ended = False
        self._renewing = runtime.Periodic(self._renew)

    @property
    def name(self) -> str:
        """The name of the reservation, as `gqueue` shows it."""
        return self._name

    @property
    def devices(self) -> list[AssignedDevice]:
        """The GPUs that are held."""
        return [] if self._job is None else self._job.row.devices

    @property
    def nodes(self) -> list[str]:
        """The nodes of the GPUs."""
        return [] if self._job is None else self._job.row.nodes

    @property
    def visible_devices(self) -> str:
        """The UUIDs of the GPUs on the first node, as CUDA_VISIBLE_DEVICES takes them."""
        return ",".join(device.uuid for device in self.devices if device.node == self.devices[0].node)

    def check(self) -> None:
        """Raise `AllocationLostError` if the GPUs are no longer held."""
        if self._lost:
            raise AllocationLostError(self._name, problem=self._lost)

    async def __aenter__(self) -> Self:
        self._process = os.getpid()
        try:
            await self._acquire()
        except BaseException:
            # Also after a failed create: the gateway may have received it.
            await runtime.finish(self._release_quietly)
            raise
        self._renewing.start(after_seconds=self._lease_seconds / 3)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process != os.getpid():
            return
        if error is None:
            await runtime.finish(self._end)
        else:
            # The error of the block is what its caller must see.
            await runtime.finish(self._release_quietly)

    async def _acquire(self) -> None:
        body = {"namespace": self._namespace, "name": self._name, "spec": self._spec}
        row = await self._transport.send(v3.create(body, key=self._name))
        self._job = AsyncJob(row, transport=self._transport, submitted=True)
        try:
            phase = await self._job.wait("Running", timeout_seconds=self._timeout_seconds, progress=self._progress)
        except WaitTimeoutError as error:
            why = self._job.row.message
            raise WaitTimeoutError(
                f"no GPUs for {self._spec['gpu']}", seconds=self._timeout_seconds or 0, last=why
            ) from error
        if phase in FINISHED:
            raise AllocationLostError(self._name, problem=self._job.row.message or f"it is {phase}")

    async def _renew(self) -> float | None:
        """Renew the lease; the seconds until the next time, or None if there is nothing to renew."""
        if self._process != os.getpid():
            return None
        try:
            row = await self._transport.send(v3.change(self._namespace, name=self._name, body={"renew": True}))
        except NotFoundError:
            self._lose("it was deleted")
            return None
        except DovetailError as error:
            _LOG.warning("the lease of allocation %s is not renewed: %s", self._name, error)
            return max(1.0, self._lease_seconds / 20)
        if row.phase in FINISHED:
            self._lose(row.message or f"it is {row.phase}")
            return None
        return self._lease_seconds / 3

    def _lose(self, problem: str) -> None:
        if self._ended:
            return  # a renewal that was under way when the block ended
        self._lost = problem
        _LOG.error("allocation %s no longer holds its GPUs: %s", self._name, problem)

    async def _end(self) -> None:
        self._ended = True
        await self._renewing.stop()
        await self._transport.send(v3.delete(self._namespace, name=self._name))

    async def _release_quietly(self) -> None:
        try:
            await self._end()
        except DovetailError as error:
            _LOG.warning(
                "allocation %s is not released and ends with its lease of %d s: %s",
                self._name,
                self._lease_seconds,
                error,
            )
