"""What a control plane's API server says of a job, for those who wait: each look by a command would be a process."""

import asyncio
from pathlib import Path

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.display_name import display_name
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client


def phase_of(job: str, *, kubeconfig: Path) -> str:
    """The phase of a job that is named by its number or as its user named it; empty while there is none."""
    return asyncio.run(_phase_of(job, kubeconfig=kubeconfig))


async def _phase_of(job: str, *, kubeconfig: Path) -> str:
    async with Client(load_connection(kubeconfig)) as client:
        found = await client.list(GPUJOBS, as_type=GPUJob)
    named = [each for each in found.items if job in {str(each.status.number), display_name(each.metadata)}]
    return named[-1].status.phase or "" if named else ""
