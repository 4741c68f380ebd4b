"""Cancellation of jobs: sets `spec.cancel`, which the operator acts on."""

from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import NotFound
from dovetail.query.jobs import dependents, selection
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import identity, several
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.ui.errors import CommandError, MissingError

# Of jobs that have ended already, so many are named; of more, only their number.
_MOST_NAMED: Final = 5


def cancel(
    wanted: Sequence[selection.Wanted],
    *,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Cancel the selected jobs that have not ended, and report the result of each.

    Raises last what was refused or missing.
    """

    async def go(cluster: Cluster) -> list[str]:
        return await cancel_those(cluster, wanted=wanted, dry_run=dry_run)

    missing = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if missing:
        raise MissingError(selection.none_such(missing))


async def cancel_those(cluster: Cluster, *, wanted: Sequence[selection.Wanted], dry_run: bool) -> list[str]:
    """Cancel the jobs and report the result of each.

    Returns the words that name no job, or one that is gone by now. Raises `CommandError` last, about jobs that are not
    cancelled.
    """
    jobs, words = await list_jobs(cluster), await identity.of_caller(wanted, cluster=cluster)
    chosen, missing = selection.select(jobs, wanted=words)
    refused: CommandError | None = None
    if not dry_run:
        there, refused = await several.each({_called(job): cancel_one(cluster, job=job) for job in chosen})
        missing += [job.metadata.name for job in chosen if there.get(_called(job)) is False]
        chosen = [job for job in chosen if there.get(_called(job))]
    for line in sentences(chosen, dry_run=dry_run):
        print(line)
    for line in those_that_fall(jobs, chosen=chosen, dry_run=dry_run):
        print(line)
    if refused is not None:
        raise refused
    return missing


def sentences(chosen: Sequence[GPUJob], *, dry_run: bool) -> Iterator[str]:
    """What became of each job; of many that had ended already, their number."""
    over = [job for job in chosen if not is_unfinished(job)]
    many = len(over) > _MOST_NAMED
    yield from (sentence(job, dry_run=dry_run) for job in chosen if is_unfinished(job) or not many)
    if many:
        yield f"{len(over)} other jobs have ended already."


def sentence(job: GPUJob, *, dry_run: bool) -> str:
    """What became of one job, in the words that gcancel is known for."""
    called = job.status.number or job.metadata.name
    if not is_unfinished(job):
        return f"Job {called} has ended already ({phase_of(job)})."
    return f"Job {called} would be cancelled." if dry_run else f"Job {called} cancelled."


def those_that_fall(jobs: Sequence[GPUJob], *, chosen: Sequence[GPUJob], dry_run: bool) -> Iterator[str]:
    """A sentence for each job that is cancelled too, because it waits for a cancelled job."""
    called = {job.metadata.name: job.status.number or job.metadata.name for job in jobs}
    cancelled = {job.metadata.name for job in chosen if is_unfinished(job)}
    for name, why in dependents.falling(jobs, cancelled=cancelled).items():
        if name not in cancelled:
            verb = "would fall" if dry_run else "falls"
            yield f"Job {called[name]} {verb} with it: it waits for job {called.get(why, why)}."


def _called(job: GPUJob) -> str:
    return f"Job {job.status.number or job.metadata.name}"


async def cancel_one(cluster: Cluster, *, job: GPUJob) -> bool:
    """Cancel the job unless it has ended; False if it has been deleted meanwhile."""
    if not is_unfinished(job):
        return True
    try:
        await cluster.client.patch(
            GPUJOBS,
            name=job.metadata.name,
            patch={"spec": {"cancel": True}},
            as_type=GPUJob,
            namespace=job.metadata.namespace,
        )
    except NotFound:
        return False
    return True
