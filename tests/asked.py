"""What a control plane's API server says of jobs, for those who wait: each look by a command would be a process."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.display_name import display_name
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from tests.cluster.jobs import PATIENCE_SECONDS, Pause

# As `gjob show -o json` and `gqueue -o json` print it.
Row = dict[str, Any]


def has_ended(row: Row) -> bool:
    """Whether the job is over."""
    return row["phase"] in {"Succeeded", "Failed", "Cancelled", "TimedOut"}


def row_of(job: str, *, kubeconfig: Path, holds: Callable[[Row], bool] = bool) -> Row:
    """The row of a job that is named by its number or as its user named it, once it is as it should be."""
    return asyncio.run(_row_of(job, kubeconfig=kubeconfig, holds=holds))


def rows(*, kubeconfig: Path) -> list[Row]:
    """All jobs by number."""
    return asyncio.run(_rows(kubeconfig))


async def _row_of(job: str, *, kubeconfig: Path, holds: Callable[[Row], bool]) -> Row:
    """One connection for all looks: each other one costs the API server a handshake."""
    found: Row = {}
    async with Client(load_connection(kubeconfig)) as client:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                pause = Pause()
                while True:
                    listed = (await client.list(GPUJOBS, as_type=GPUJob)).items
                    found = next((_row(each) for each in reversed(listed) if _is_named(each, job)), {})
                    if found and holds(found):
                        return found
                    await pause.before_next_look()
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_SECONDS} s: job {job}: {found}") from None


async def _rows(kubeconfig: Path) -> list[Row]:
    async with Client(load_connection(kubeconfig)) as client:
        listed = (await client.list(GPUJOBS, as_type=GPUJob)).items
    return sorted(map(_row, listed), key=lambda row: int(row["number"] or 0))


def _row(job: GPUJob) -> Row:
    row: Row = msgspec.to_builtins(job_row(job))
    return row


def _is_named(job: GPUJob, name: str) -> bool:
    return name in {str(job.status.number), display_name(job.metadata)}
