"""Creating GPUJobs and waiting for their numbers."""

import asyncio
import contextlib
import sys
from typing import Any, Final

import msgspec

from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.display_name import display_name
from dovetail.kube.client import typed
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.reflector import Reflector
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError

NUMBER_SECONDS: Final = 30.0
_FOR_REAL: Final = " To run jobs on this machine: gflowd down, then gflowd up."
_SILENT_SECONDS: Final = 1.0
_MOST_NAMESAKES: Final = 1000


def as_manifest(job: GPUJob) -> dict[str, Any]:
    """The job as in a manifest: without status and without what the API server fills in."""
    manifest = typed(job, resource=GPUJOBS)
    manifest.pop("status", None)
    if job.spec.reservation is not None:
        del manifest["spec"]["template"]
    elif not manifest["spec"]["template"].get("metadata"):
        manifest["spec"]["template"].pop("metadata", None)
    return manifest


async def create(cluster: Cluster, *, job: GPUJob, dry_run: bool = False) -> GPUJob:
    """Create the job.

    Names are unique in a namespace: a second `train` becomes `train-2`, as in other queues.
    """
    name = job.metadata.name
    for attempt in range(1, _MOST_NAMESAKES):
        called = name if attempt == 1 else f"{name}-{attempt}"
        # The API server keeps the prefix in addition to the name: the operator recognizes runs of one program by it.
        metadata = msgspec.structs.replace(job.metadata, name=called, generate_name=f"{name}-")
        body = msgspec.structs.replace(job, metadata=metadata)
        try:
            return await cluster.client.create(
                GPUJOBS, body=as_manifest(body), as_type=GPUJob, namespace=cluster.namespace, dry_run=dry_run
            )
        except AlreadyExists:
            continue
    raise CommandError(f'there are {_MOST_NAMESAKES} jobs called "{name}" already: choose another name')


async def until_numbered(cluster: Cluster, *, job: GPUJob, seconds: float = NUMBER_SECONDS) -> GPUJob:
    """The job once the operator has numbered it.

    Raises `CommandError` if that takes too long, or the job is gone.
    """
    numbered: asyncio.Future[GPUJob] = asyncio.get_running_loop().create_future()

    def look(event: EventType, seen: GPUJob) -> None:
        if numbered.done():
            return
        if event == "DELETED":
            numbered.set_exception(CommandError(f'job "{seen.metadata.name}" was deleted before it got a number'))
        elif seen.status.number is not None:
            numbered.set_result(seen)

    reflector = Reflector(
        cluster.client,
        resource=GPUJOBS,
        as_type=GPUJob,
        on_event=look,
        namespace=cluster.namespace,
        field_selector=f"metadata.name={job.metadata.name}",
    )
    following = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(seconds):
            return await _patiently(numbered, said=f"Waiting for a number for {job.metadata.name} …")
    except TimeoutError as error:
        raise CommandError(
            f'job "{job.metadata.name}" is submitted, but no operator has numbered it within {seconds:g} s: '
            "is dovetail-operator running?"
        ) from error
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


def announce(job: GPUJob) -> None:
    """Print what scripts do not read to standard error.

    On a terminal the job's name, and whether it is simulated.
    """
    on_terminal = sys.stderr.isatty()
    if on_terminal:
        print(f"Its name is {display_name(job.metadata)}.", file=sys.stderr)
    if job.status.simulated:
        how = _FOR_REAL if on_terminal else ""
        print(f"dovetail: simulated: the nodes of this cluster run nothing.{how}", file=sys.stderr)


def submitted(job: GPUJob, *, form: str) -> str:
    """The sentence that scripts read the number from, or the job's row."""
    if form == "table":
        return f"Submitted batch job {job.status.number}"
    return output.document(msgspec.to_builtins(job_row(job)), form=form)


async def _patiently(numbered: asyncio.Future[GPUJob], *, said: str) -> GPUJob:
    """Wait, and say so once it takes longer than people expect."""
    done, _ = await asyncio.wait([numbered], timeout=_SILENT_SECONDS)
    if not done and sys.stderr.isatty():
        print(said, file=sys.stderr)
    return await numbered
