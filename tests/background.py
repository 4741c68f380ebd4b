"""What runs beside a test for a while, and where it listens."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
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


def free_ports(*, count: int, taken: Iterable[int] = ()) -> list[int]:
    """Ports for a program that cannot choose its own; no outgoing connection takes them meanwhile."""
    return list(ports.choose([str(number) for number in range(count)], taken=taken).values())
