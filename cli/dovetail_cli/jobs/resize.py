"""The right size of a job, which its owner accepts: from its next start on, it requests no more."""

from collections.abc import Mapping
from datetime import datetime

from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons.clause import Sentence
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import StatusError
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.states import is_unfinished
from dovetail.query.right_sizes import WITHDRAWN, accepted, measured_size
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details
from dovetail_cli.ui import error_messages, times
from dovetail_cli.ui.errors import CommandError


def resize(
    word: str,
    *,
    withdraw: bool,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> str:
    """Accept the right size of the job that is meant, or withdraw that, and say what it requests."""
    wanted = parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        job, now = await details.find(cluster, wanted=wanted), times.utc_now()
        if withdraw:
            if not dry_run:
                await _write(cluster, job=job, change=WITHDRAWN)
            return f"Job {_called(job)} requests {_written(job)} {_when(job)}, as it was submitted."
        job = await details.with_figures(cluster, job=job, now=now)
        change = accepted(job, now=now)
        if isinstance(change, Sentence):
            raise CommandError(str(change))
        if not dry_run:
            await _write(cluster, job=job, change=change)
        return said(job, now=now) + (" Nothing was changed." if dry_run else "")

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def said(job: GPUJob, *, now: datetime) -> str:
    """What a job with a right size requests once it starts again, and why."""
    found = measured_size(job, now=now)
    assert found is not None, "it has a right size"
    less = f", {found.saved_gpus:g} GPUs less" if found.saved_gpus else ""
    return (
        f"Job {_called(job)} requests {found.suggested} instead of {found.request} {_when(job)}{less}. {found.basis}."
    )


def _called(job: GPUJob) -> str:
    return str(job.status.number or job.metadata.name)


def _written(job: GPUJob) -> str:
    return "its resources" if job.spec.gpu is None else str(job.spec.gpu)


def _when(job: GPUJob) -> str:
    return "from its next start on" if is_unfinished(job) else f"once gjob redo {_called(job)} submits it again"


async def _write(cluster: Cluster, *, job: GPUJob, change: Mapping[str, str | None]) -> None:
    try:
        await cluster.client.patch(
            GPUJOBS,
            name=job.metadata.name,
            patch={"spec": change},
            as_type=GPUJob,
            namespace=job.metadata.namespace,
        )
    except StatusError as error:
        raise CommandError(f"Job {_called(job)}: {error_messages.sentence(error)}") from error
