"""Ends the jobs of a local node, as its user stops the queue. The next local node reports how they ended."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node import processes
from dovetail_local_node.limits import groups
from dovetail_local_node.runs import Run, Runs
from dovetail_sandbox.processes.processes import wait_gone

# As long as Kubernetes gives a pod by default.
GRACE_SECONDS: Final = 30.0
_KILL_SECONDS: Final = 10.0


def stop_jobs(runs: Runs, *, grace_seconds: float = GRACE_SECONDS) -> int:
    """End the processes of all runs: SIGTERM, and SIGKILL after the grace period. Return their number.

    No local node runs meanwhile. Each run is marked first, so that the next one reports it as stopped.
    """
    running = [(run, process) for run in runs.all() if (process := _process(run, runs=runs))]
    for run, process in running:
        runs.mark_stopped(run.uid)
        processes.signal_group(process, number=signal.SIGTERM)
    rest = wait_gone([process for _, process in running], seconds=grace_seconds)
    for process in rest:
        processes.signal_group(process, number=signal.SIGKILL)
    for run, _ in running:
        processes.kill_rest(run.uid)
    wait_gone(rest, seconds=_KILL_SECONDS)
    asyncio.run(_remove_groups([run for run, _ in running]))
    return len(running)


async def _remove_groups(stopped: list[Run]) -> None:
    parents = {Path(group).parent for run in stopped for group in run.groups}
    for run in stopped:
        await groups.end([Path(group) for group in run.groups])
    for parent in parents:
        # Other runs of the same parent may still be in it, and the next local node makes it again.
        with suppress(OSError):
            parent.rmdir()


def _process(run: Run, *, runs: Runs) -> ProcessId | None:
    found = runs.process(run.uid)
    return found if run.boot_id == identity.boot_id() and identity.alive(found) else None
