"""Creating GPUJobs, and waiting for their numbers and for the queue's answers."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.jobs import job_row
from dovetail.answers.questions import DryRun
from dovetail.answers.submission import answer_of
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import GPUJOBS, JOBS
from dovetail.jobs.display_name import display_name
from dovetail.kube.client import typed
from dovetail.kube.errors import AlreadyExists, Forbidden, NotFound, StatusError
from dovetail.pods.demand import request_of_job
from dovetail_cli.cluster import this_machine
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError, UsageError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

NUMBER_SECONDS: Final = 30.0
# How long the queue may take to decide before the command ends without its answer.
ANSWER_SECONDS: Final = 1.0
_FIRST_LOOK_SECONDS: Final = 0.02
_LONGEST_LOOK_SECONDS: Final = 0.25
_WITH_GPUS: Final = "To run it on the CPU: --cpu-fallback. To queue it until there are such GPUs: --wait-for-capacity"
_ON_CPU: Final = "To queue it until there is such a node: --wait-for-capacity"
_ON_THIS_MACHINE: Final = "To queue it all the same: --wait-for-capacity"
_FOR_REAL: Final = " To run jobs on this machine: gflowd down, then gflowd up."
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
    with patiently() as say:

        def holds(seen: GPUJob) -> bool:
            say(f"Waiting for a number for {job.metadata.name} …")
            return seen.status.number is not None

        seen = await _until(cluster, job=job, seconds=seconds, holds=holds)
    if seen is None:
        raise CommandError(
            f'job "{job.metadata.name}" is submitted, but no operator has numbered it within {seconds:g} s: '
            "is dovetail-operator running?"
        )
    return seen


async def until_answered(cluster: Cluster, *, job: GPUJob, seconds: float = ANSWER_SECONDS) -> DryRun | None:
    """The queue's answer to a job that has its number; None if it has not decided in time.

    On a terminal, a job that waits gets its estimate too, which comes a moment later.
    """
    patient = sys.stderr.isatty()

    def holds(seen: GPUJob) -> bool:
        found = answer_of(seen, now=utc_now())
        return found is not None and not (patient and found.outcome == "Waits" and found.start is None)

    if not holds(job):
        job = await _until(cluster, job=job, seconds=seconds, holds=holds) or await _read(cluster, job=job)
    return answer_of(job, now=utc_now())


async def refuse_if_hopeless(cluster: Cluster, *, job: GPUJob, answer: DryRun | None) -> None:
    """Withdraw a job that no node of this cluster could ever run.

    Raises `CommandError` with what would help.
    """
    if answer is None or answer.outcome != "Never":
        return
    request = request_of_job(job)
    if request is not None and request.may_be_partitioned_for:
        return
    otherwise = _otherwise(cluster, with_gpus=request is not None)
    why = f"{answer.message}{'' if answer.message.endswith('?') else '.'} {otherwise}"
    name, namespace = job.metadata.name, job.metadata.namespace
    try:
        # By this annotation the history leaves it out: a refused submission is no cancelled job.
        refused = {"metadata": {"uid": job.metadata.uid, "annotations": {names.REFUSED: "true"}}}
        with contextlib.suppress(Forbidden):
            await cluster.client.patch(GPUJOBS, name=name, namespace=namespace, patch=refused, as_type=GPUJob)
        await cluster.client.delete(GPUJOBS, name=name, namespace=namespace, uid=job.metadata.uid)
    except StatusError as error:
        raise CommandError(
            f"job {job.status.number} can never start here: {why} (It stays: {error.message})"
        ) from error
    raise CommandError(f"not queued, it could never start here: {why}")


def _otherwise(cluster: Cluster, *, with_gpus: bool) -> str:
    """What a person can do with a job that could never start."""
    if with_gpus:
        return _WITH_GPUS
    return _ON_THIS_MACHINE if this_machine.is_one(cluster) else _ON_CPU


async def check_free(cluster: Cluster, *, name: str) -> None:
    """Raise `UsageError` if a batch Job of the name belongs to no GPUJob.

    The new job would wait for its end.
    """
    try:
        found = await cluster.client.get(JOBS, name=name, as_type=_Owned, namespace=cluster.namespace)
    except (NotFound, Forbidden):
        return
    if not any(owner.kind == GPUJOBS.kind for owner in found.metadata.owner_references):
        raise UsageError(
            f'--name "{name}": namespace {cluster.namespace} has a batch Job of this name: choose another name'
        )


class _Owned(Described, frozen=True, kw_only=True):
    """What is read of a batch Job."""

    metadata: ObjectMeta = ObjectMeta()


async def _until(cluster: Cluster, *, job: GPUJob, seconds: float, holds: Callable[[GPUJob], bool]) -> GPUJob | None:
    """The job once `holds` is true of it; None if that takes too long.

    Raises `CommandError` if it is gone. It polls, because a watch would need a client that takes longer to import than
    most numbers to come.
    """
    pause = _FIRST_LOOK_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not holds(seen := await _read(cluster, job=job)):
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
            return seen
    return None


async def _read(cluster: Cluster, *, job: GPUJob) -> GPUJob:
    try:
        seen = await cluster.client.get(
            GPUJOBS, name=job.metadata.name, as_type=GPUJob, namespace=job.metadata.namespace
        )
    except NotFound as error:
        raise CommandError(f'job "{job.metadata.name}" was deleted before the queue answered') from error
    if seen.metadata.uid != job.metadata.uid:
        raise CommandError(f'job "{job.metadata.name}" was deleted before the queue answered')
    return seen


def announce(job: GPUJob, *, answer: DryRun | None, page: str | None = None, waits_on_failure: bool = True) -> None:
    """Print what scripts do not read to standard error.

    On a terminal the job's name, and its `page` in the console; the queue's answer; and whether the job is simulated.
    """
    on_terminal = sys.stderr.isatty()
    if on_terminal:
        at = "." if page is None else f": {page}"
        print(f"Its name is {display_name(job.metadata)}{at}", file=sys.stderr)
    if answer is not None:
        ended = answer.reason == "DependencyFailed" and not waits_on_failure
        print(f"{'It is cancelled. ' if ended else ''}{answer.text}", file=sys.stderr)
    elif on_terminal:
        print(f"The queue has not decided yet: dovetail explain {job.status.number}", file=sys.stderr)
    if job.status.simulated:
        how = _FOR_REAL if on_terminal else ""
        print(f"dovetail: simulated: the nodes of this cluster run nothing.{how}", file=sys.stderr)


def submitted(job: GPUJob, *, form: str) -> str:
    """The sentence that scripts read the number from, or the job's row."""
    if form == "table":
        return f"Submitted batch job {job.status.number}"
    return output.document(msgspec.to_builtins(job_row(job)), form=form)
