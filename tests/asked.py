"""What a control plane's API server says of jobs, for those who wait: each look by a command would be a process."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.display_name import display_name
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client


def phase_of(job: str, *, kubeconfig: Path) -> str:
    """The phase of a job that is named by its number or as its user named it; empty while there is none."""
    found = _named(job, kubeconfig=kubeconfig)
    return found[-1].status.phase or "" if found else ""


def row_of(job: str, *, kubeconfig: Path) -> dict[str, Any]:
    """The row of a job, as `gjob show -o json` has it."""
    row: dict[str, Any] = msgspec.to_builtins(job_row(_named(job, kubeconfig=kubeconfig)[-1]))
    return row


def rows(*, kubeconfig: Path) -> list[dict[str, Any]]:
    """All jobs by number, as `gqueue -a -u all -o json` lists them."""
    found = [msgspec.to_builtins(job_row(each)) for each in asyncio.run(_jobs(kubeconfig))]
    return sorted(found, key=lambda row: int(row["number"] or 0))


def _named(job: str, *, kubeconfig: Path) -> list[GPUJob]:
    return [
        each for each in asyncio.run(_jobs(kubeconfig)) if job in {str(each.status.number), display_name(each.metadata)}
    ]


async def _jobs(kubeconfig: Path) -> list[GPUJob]:
    async with Client(load_connection(kubeconfig)) as client:
        return (await client.list(GPUJOBS, as_type=GPUJob)).items
