"""`gjob fetch`: a job's files, from its running container or from their volume.

A container that has ended cannot be entered, and its own storage is lost with the pod. So what a finished job left is
read from its volume, by a small pod with the same claims.
"""

import asyncio
import posixpath
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import kubectl
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details, logs
from dovetail_cli.jobs.unpack import BrokenArchiveError, Unpacked, unpack
from dovetail_cli.submit.workdir.files_pod import CONTAINER, files_pod
from dovetail_cli.submit.workdir.place import mount_of
from dovetail_cli.ui.errors import CommandError, UsageError

# What GNU tar says of a file that a running job writes to: what is there goes along.
_CHANGED: Final = re.compile(r"file changed as we read it|File removed before we read it|file shrank by")


def fetch(
    word: str,
    *,
    path: str,
    to: str | None,
    worker: int,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> str:
    """Copy a path of the job to this machine, and say where it is.

    Raises `CommandError` for what is not there, or no longer.
    """
    wanted = parse_one(word, field="JOB")
    program = kubectl.find(kubeconfig=kubeconfig, context=context, needed_for="gjob fetch")

    async def go(cluster: Cluster) -> str:
        if cluster.client.connection.local_data is not None:
            raise CommandError("jobs on this machine run in your own directory: their files are there already")
        job = await details.find(cluster, wanted=wanted)
        there = absolute(path, job=job)
        target = Path(to or f"job-{job.status.number or job.metadata.name}")
        send = _tar(there, whole=path == ".")
        async with _source(cluster, job=job, path=there, worker=worker) as (pod, container):
            words = program.words("exec", "-n", cluster.namespace, "-c", container, pod, "--", *send)
            count = await asyncio.to_thread(_receive, words, into=target)
        return f"{count} {'file' if count == 1 else 'files'} of {there} in {target}"

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def absolute(path: str, *, job: GPUJob) -> str:
    """A path of the container, relative to the job's working directory. Raises `UsageError`."""
    directory = next((each.get("workingDir", "") for each in spec_of(job.spec.template).get("containers") or ()), "")
    if not directory and not path.startswith("/"):
        raise UsageError(
            f'PATH "{path}": the job names no working directory: write an absolute path of its container, such as /data'
        )
    found = posixpath.normpath(posixpath.join(directory, path))
    if "\0" in found or not found.strip("/"):
        raise UsageError(f'PATH "{path}": write a file or folder of the container, such as results or /data/results')
    return found


def _receive(command: Sequence[str], *, into: Path) -> int:
    """Run the command that sends the archive; the number of files."""
    broken = None
    found = Unpacked()
    try:
        with kubectl.read_from(command) as stdout:
            try:
                found = unpack(stdout, into=into)
            except BrokenArchiveError as error:
                # The command's own words say more, if it failed.
                broken = error
    except kubectl.FailedError as error:
        if not error.lines or not all(_CHANGED.search(line) for line in error.lines):
            raise
        print(f"dovetail: {error}", file=sys.stderr)
    if broken is not None:
        raise broken
    if found.refused:
        more = found.refused_count - len(found.refused)
        named = "; ".join(found.refused) + (f"; and {more} more" if more else "")
        print(f"dovetail: left out: {named}", file=sys.stderr)
    return found.count


@asynccontextmanager
async def _source(cluster: Cluster, *, job: GPUJob, path: str, worker: int) -> AsyncIterator[tuple[str, str]]:
    """The pod and the container that have the files."""
    pod = await logs.worker_pod(cluster, job=job, worker=worker)
    if pod is not None and pod.status.phase == "Running":
        yield pod.metadata.name, pod.spec.containers[0].name
        return
    if mount_of(path, job=job) is None:
        raise CommandError(_lost(path, job=job))
    async with files_pod(cluster, job=job) as name:
        yield name, CONTAINER


def _tar(path: str, *, whole: bool) -> list[str]:
    """The command that sends a file or folder; of a `whole` folder, what is in it."""
    if whole:
        return ["tar", "-czf", "-", "-C", path, "."]
    return ["tar", "-czf", "-", "-C", posixpath.dirname(path), "--", posixpath.basename(path)]


def _lost(path: str, *, job: GPUJob) -> str:
    called, phase = job.status.number or job.metadata.name, phase_of(job)
    if is_unfinished(job):
        return f"job {called} does not run ({phase}), so there is nothing to fetch yet"
    return (
        f"job {called} has ended ({phase}), and {path} was on no volume, so its files are gone; next time, set a "
        "directory on a volume: `dovetail config set volumes CLAIM:/data` and `dovetail config set workdir /data/runs`"
    )
