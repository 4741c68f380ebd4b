"""The manager of REST v1: GPUs for a training on this machine, by allocations of a day that are renewed."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from dovetail.answers.v1 import Allocated, NodeRow, Setup, Validity
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.transport import AsyncTransport
from dovetail.sdk.calls import v1, v3
from dovetail.sdk.connection import Token, connection
from dovetail.sdk.errors import ConflictError, DovetailError
from dovetail.sdk.training.config import Framework, TrainingGPUConfig

LOGGER: Final = "gpu_resource_manager"
# A lease of v1 is 24 hours.
_RENEW_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 60.0
_LOG: Final = logging.getLogger(LOGGER)


class AsyncGPUResourceManager:
    """Validates, allocates and releases GPUs. `base_url` and `token` as in `Client`; `log_file` gets its log too."""

    def __init__(self, base_url: str | None = None, *, token: Token = None, log_file: str | Path | None = None) -> None:
        self._transport = AsyncTransport(connection(base_url, token=token))
        self._held: list[Allocated] = []
        if log_file is not None:
            log_to(log_file)

    @property
    def allocations(self) -> list[Allocated]:
        """What this manager holds, the oldest first."""
        return list(self._held)

    async def validate_gpu_requirements(self, config: TrainingGPUConfig) -> Validity:
        """Whether the GPUs are free now: true or false, with reason, message and suggestion. Raises `DovetailError`."""
        return await self._transport.send(v1.validate(config.as_request()))

    async def allocate_gpu_resources(self, config: TrainingGPUConfig) -> str | None:
        """Allocate the GPUs and return the name of their node; None, and a line in the log, if there is no room.

        Raises `DovetailError` for everything else.
        """
        try:
            return (await self.allocate(config)).node_name
        except ConflictError as error:
            _LOG.warning("no GPUs: %s", error)
            return None

    async def allocate(self, config: TrainingGPUConfig) -> Allocated:
        """Allocate the GPUs for 24 hours. Raises `ConflictError` without room, and `DovetailError`."""
        found = await self._transport.send(v1.allocate(config.as_request()))
        self._held.append(found)
        _LOG.info("allocated %d GPUs on %s (%s)", found.gpu_config.gpu_count, found.node_name, found.allocation_id)
        return found

    async def release(self, allocation: Allocated) -> bool:
        """Release an allocation; false if it was gone already. Raises `DovetailError`."""
        done = await self._transport.send(v1.release(allocation.allocation_id))
        self._held = [each for each in self._held if each.allocation_id != allocation.allocation_id]
        _LOG.info("released %s on %s", allocation.allocation_id, allocation.node_name)
        return done.released

    async def cleanup_gpu_resources(self, node: str, gpu_count: int | None = None) -> bool:
        """Release what this manager holds on a node; with `gpu_count`, the newest allocation of so many GPUs.

        False if there is none. Raises `DovetailError`.
        """
        found = [each for each in reversed(self._held) if each.node_name == node]
        if gpu_count is not None:
            found = [each for each in found if each.gpu_config.gpu_count == gpu_count][:1]
        for each in found:
            await self.release(each)
        if not found:
            _LOG.warning("nothing to release: this manager holds no %s GPUs on %s", gpu_count or "", node)
        return bool(found)

    async def get_gpu_monitoring_data(self) -> dict[str, Any]:
        """The measurements of every device, as v1 answers them. Raises `DovetailError`."""
        return await self._transport.send(v1.monitoring())

    async def get_available_gpu_nodes(self) -> list[NodeRow]:
        """The nodes that have a free GPU. Raises `DovetailError`."""
        return (await self._transport.send(v1.status())).available_nodes

    async def settings(
        self, framework: Framework, *, config: TrainingGPUConfig, allocation: Allocated | None = None
    ) -> Setup:
        """The settings of a framework, for the devices of an allocation if there is one. Raises `DovetailError`."""
        held = {} if allocation is None else {"allocation_id": allocation.allocation_id}
        return await self._transport.send(v1.setup(framework, wanted=config.as_request() | held))

    @asynccontextmanager
    async def renewed(self, allocation: Allocated) -> AsyncIterator[None]:
        """Renew the allocation's lease while the block runs."""

        async def renew() -> float:
            namespace, name = allocation.gpu_config.namespace, allocation.allocation_id
            try:
                await self._transport.send(v3.change(namespace, name=name, body={"renew": True}))
            except DovetailError as error:
                _LOG.warning("the lease of allocation %s is not renewed: %s", name, error)
                return _RETRY_SECONDS
            return _RENEW_SECONDS

        renewing = runtime.Periodic(renew)
        renewing.start(after_seconds=_RENEW_SECONDS)
        try:
            yield
        finally:
            await renewing.stop()

    async def aclose(self) -> None:
        """Close the connections; allocations stay until they are released or their lease ends."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def log_to(path: str | Path) -> None:
    """Write the manager's log into this file too, once."""
    wanted = str(Path(path).absolute())
    if any(isinstance(each, logging.FileHandler) and each.baseFilename == wanted for each in _LOG.handlers):
        return
    handler = logging.FileHandler(wanted, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(min(_LOG.level or logging.INFO, logging.INFO))
