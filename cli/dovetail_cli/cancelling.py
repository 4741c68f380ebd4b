"""Ending jobs for good: `spec.cancel`, which the operator acts on."""

import asyncio
from collections.abc import Iterator, Sequence

from dovetail.api.gpujob import GPUJob
from dovetail.kube.resources import GPUJOBS
from dovetail_cli import falling, jobrows, selection
from dovetail_cli.cluster import Cluster, list_jobs, work
from dovetail_cli.errors import MissingError


def cancel(
    wanted: Sequence[selection.Wanted],
    *,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Cancel the jobs that are meant and have not ended, and say what became of each. Raises `MissingError` last."""

    async def cancel_all(cluster: Cluster) -> list[str]:
        jobs = await list_jobs(cluster)
        chosen, missing = selection.select(jobs, wanted)
        if not dry_run:
            await asyncio.gather(*(_cancel(cluster, job) for job in chosen if jobrows.is_unfinished(job)))
        for job in chosen:
            print(sentence(job, dry_run=dry_run))
        for told in those_that_fall(jobs, chosen, dry_run=dry_run):
            print(told)
        return missing

    missing = work(cancel_all, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if missing:
        raise MissingError(selection.none_such(missing))


def sentence(job: GPUJob, *, dry_run: bool) -> str:
    """What became of one job, in the words that gcancel is known for."""
    called = job.status.number or job.metadata.name
    if not jobrows.is_unfinished(job):
        return f"Job {called} has ended already ({jobrows.phase_of(job)})."
    return f"Job {called} would be cancelled." if dry_run else f"Job {called} cancelled."


def those_that_fall(jobs: Sequence[GPUJob], chosen: Sequence[GPUJob], *, dry_run: bool) -> Iterator[str]:
    """A sentence for each job that falls with those that are cancelled, since it waits for one of them."""
    called = {job.metadata.name: job.status.number or job.metadata.name for job in jobs}
    cancelled = {job.metadata.name for job in chosen if jobrows.is_unfinished(job)}
    for name, why in falling.falling(jobs, cancelled=cancelled).items():
        if name not in cancelled:
            verb = "would fall" if dry_run else "falls"
            yield f"Job {called[name]} {verb} with it: it waits for job {called.get(why, why)}."


async def _cancel(cluster: Cluster, job: GPUJob) -> None:
    await cluster.client.patch(
        GPUJOBS, job.metadata.name, {"spec": {"cancel": True}}, as_type=GPUJob, namespace=job.metadata.namespace
    )
