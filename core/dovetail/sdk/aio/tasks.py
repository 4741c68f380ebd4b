"""The client of REST v2: training and inference tasks on devices."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from dovetail.answers.v2 import Configured, GPUs, Resources, Started, Task
from dovetail.sdk.aio import runtime
from dovetail.sdk.aio.transport import TIMEOUT_SECONDS, AsyncTransport
from dovetail.sdk.calls import v2
from dovetail.sdk.connection import Token, connection
from dovetail.sdk.errors import WaitTimeoutError

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_LOOK_SECONDS: Final = 0.5


class AsyncTaskClient:
    """Tasks on the devices of a cluster, which `cuda:N` counts. `base_url` and `token` as in `Client`."""

    def __init__(
        self,
        base_url: str | None = None,
        token: Token = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._transport = AsyncTransport(connection(base_url, token=token), timeout_seconds=timeout_seconds)

    async def start_training(
        self,
        *,
        model: str,
        num_classes: int,
        train_path: str,
        val_path: str,
        save_path: str,
        device: str = "cuda",
        **fields: Any,
    ) -> Started:
        """Start a training task; further fields go to its container. Raises `DovetailError`."""
        known = {
            "model": model,
            "num_classes": num_classes,
            "train_path": train_path,
            "val_path": val_path,
            "save_path": save_path,
            "device": device,
        }
        return await self._transport.send(v2.start("training", fields={**fields, **known}))

    async def start_inference(
        self, *, cfg_path: str, weight_path: str, source_path: str, device: str = "cuda", **fields: Any
    ) -> Started:
        """Start an inference task; further fields go to its container. Raises `DovetailError`."""
        known = {"cfg_path": cfg_path, "weight_path": weight_path, "source_path": source_path, "device": device}
        return await self._transport.send(v2.start("inference", fields={**fields, **known}))

    async def resources(self) -> Resources:
        """Use, tasks and limits of each device. Raises `DovetailError`."""
        return await self._transport.send(v2.resources())

    async def gpus(self) -> GPUs:
        """The measurements of each device. Raises `DovetailError`."""
        return await self._transport.send(v2.gpus())

    async def set_limits(self, max_concurrent: Mapping[str, Mapping[str, int]]) -> Configured:
        """Change how many tasks share a device: `{"cuda:0": {"training": 2}}`. Raises `DovetailError`."""
        return await self._transport.send(v2.configure(max_concurrent))

    async def tasks(self, *, status: str | None = None, kind: str | None = None) -> list[Task]:
        """The tasks that you may list, of all pages. Raises `DovetailError`."""
        found, cursor = list[Task](), ""
        while True:
            page = await self._transport.send(v2.tasks(status=status, kind=kind, limit=200, cursor=cursor))
            found += page.tasks
            if page.next is None:
                return found
            cursor = page.next

    async def task(self, task_id: str) -> Task:
        """One task. Raises `DovetailError`."""
        return await self._transport.send(v2.task(task_id))

    async def wait(self, task_id: str, *, status: str | None = None, timeout_seconds: float | None = None) -> Task:
        """The task once it has ended, or is in this state. Raises `DovetailError`."""
        begun = time.monotonic()
        while True:
            task = await self.task(task_id)
            if task.status == status or task.status in ENDED:
                return task
            if timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
                what = f"task {task_id} is not {status or 'finished'}"
                raise WaitTimeoutError(what, seconds=timeout_seconds, last=task.message or f"it is {task.status}")
            await runtime.sleep(_LOOK_SECONDS)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task; a second call changes nothing. Raises `DovetailError`."""
        return await self._transport.send(v2.cancel(task_id))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
