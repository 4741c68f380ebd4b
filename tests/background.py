"""What runs beside a test for a while, and where it listens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from dovetail_sandbox.processes import ports


@asynccontextmanager
async def running(part: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """An endless part runs while the context lasts."""
    task = asyncio.create_task(part)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually(holds: Callable[[], bool], *, within_seconds: float = 60.0) -> None:
    """Wait for what another task is about to do."""
    async with asyncio.timeout(within_seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


def free_ports(*, count: int, taken: Iterable[int] = ()) -> list[int]:
    """Ports for a program that cannot choose its own; no outgoing connection takes them meanwhile."""
    return list(ports.choose([str(number) for number in range(count)], taken=taken).values())
