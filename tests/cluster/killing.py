"""Components ended as a crash ends them, or paused."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from dovetail.process.identity import PROC, stat_fields
from dovetail_sandbox.cluster import Cluster

# Longer than the supervisor's longest pause before a restart: it counts the crashes of earlier tests too.
PATIENCE_SECONDS: Final = 60


async def running(sandbox: Cluster, component: str, *, other_than: int | None = None) -> int:
    """The process number of a component, once it runs: after `other_than` died, once the next one does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = sandbox.observed()[component].process
            if found is not None and found.pid != other_than:
                return found.pid
            await asyncio.sleep(0.05)


async def kill(sandbox: Cluster, component: str) -> int:
    """Kills a component where it runs, and waits for it where it does not; answers with what its process number was."""
    pid = await running(sandbox, component)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        # It had died of an earlier kill, and the supervisor had not told yet.
        pid = await running(sandbox, component, other_than=pid)
        os.kill(pid, signal.SIGKILL)
    return pid


@asynccontextmanager
async def paused(pid: int) -> AsyncIterator[None]:
    """Pauses a process, and waits until all its threads have stopped, which takes 40 ms on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if all(state in "TXZ" for state in _states(pid)):
                    break
                await asyncio.sleep(0.005)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> list[str]:
    """The state of each thread."""
    found = []
    for thread in (PROC / str(pid) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(stat_fields((thread / "stat").read_text(encoding="utf-8", errors="replace"))[0])
    return found
