"""Renewal of a reservation's lease, which then counts from now."""

from datetime import datetime, timedelta
from typing import Any

from dovetail.api.gpujob import MAX_SECONDS, GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import brief
from dovetail.kube.errors import StatusError
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details
from dovetail_cli.ui import error_messages, times
from dovetail_cli.ui.errors import CommandError, UsageError


def renew(word: str, *, lasting: str | None, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Renew the lease of the reservation that is meant, and say until when it holds its devices."""
    wanted = parse_one(word, field="JOB")
    seconds = None if lasting is None else whole_seconds(lasting)

    async def go(cluster: Cluster) -> str:
        return await renewed(
            cluster, job=await details.find(cluster, wanted=wanted), seconds=seconds, now=times.utc_now()
        )

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def whole_seconds(text: str) -> int:
    """The seconds of `--for`. Raises `UsageError`."""
    seconds = times.span_seconds(text, option="--for")
    if not 1 <= seconds <= MAX_SECONDS:
        raise UsageError(f'--for "{text}": allowed are 1s to {MAX_SECONDS // 86400}d')
    return round(seconds)


async def renewed(cluster: Cluster, *, job: GPUJob, seconds: int | None, now: datetime) -> str:
    """Renew a reservation's lease as of `now`, for `seconds` or for its present duration.

    Raises `CommandError` for a job that is no reservation, or that has ended.
    """
    called = job.status.number or job.metadata.name
    if job.spec.reservation is None:
        raise CommandError(
            f"Job {called} is no reservation: only those are renewed (gjob update -t gives it more time)"
        )
    if not is_unfinished(job):
        raise CommandError(f"Job {called} has ended already ({phase_of(job)}): gjob redo {called} submits it again")
    lease: dict[str, Any] = {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    if seconds is not None:
        lease["durationSeconds"] = seconds
    try:
        await cluster.client.patch(
            GPUJOBS,
            name=job.metadata.name,
            patch={"spec": {"reservation": lease}},
            as_type=GPUJob,
            namespace=job.metadata.namespace,
        )
    except StatusError as error:
        raise CommandError(f"Job {called}: {error_messages.sentence(error)}") from error
    length = seconds or job.spec.reservation.duration_seconds
    if job.status.start_time is None:
        return f"Job {called} renewed: it holds its devices for {brief(length)} once it has started."
    until = (now + timedelta(seconds=length)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"Job {called} renewed: it holds its devices until {until}."
