"""Changes of jobs that have not ended: held, released, updated."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import StatusError
from dovetail.kube.resources import GPUJOBS
from dovetail_cli import failures, jobrows, selection, times
from dovetail_cli.cluster import Cluster, list_jobs, work
from dovetail_cli.errors import CommandError, MissingError, UsageError

_NONE = "none"


def released(at: str | None) -> dict[str, Any]:
    """The fields that let a job go, at a time or at once. Raises `UsageError`."""
    begin = None if at is None else times.begin_time(at, now=times.utc_now().astimezone())
    return {"suspend": False} | ({} if begin is None else {"beginTime": begin})


def updated(*, priority: int | None, time: str | None, begin: str | None, max_retries: int | None) -> dict[str, Any]:
    """The fields that `gjob update` changes. Raises `UsageError` when there is none."""
    wanted: dict[str, Any] = {}
    if priority is not None:
        wanted["priority"] = priority
    if time is not None:
        wanted["activeDeadlineSeconds"] = None if time == _NONE else times.limit_seconds(time)
    if begin is not None:
        now = times.utc_now().astimezone()
        wanted["beginTime"] = None if begin == _NONE else times.begin_time(begin, now=now)
    if max_retries is not None:
        wanted["backoffLimit"] = max_retries
    if not wanted:
        raise UsageError("say what to change: -p, -t, --begin or --max-retries")
    return wanted


def change(
    words: Sequence[str],
    fields: Mapping[str, Any],
    *,
    done: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Change each job that is meant, and say what became of it. What was refused or missing is raised last."""
    wanted = selection.parse_ids(words, option="gjob")

    async def go(cluster: Cluster) -> tuple[list[str], list[str]]:
        chosen, missing = selection.select(await list_jobs(cluster), wanted)
        said = await asyncio.gather(*(_change(cluster, job, fields, done=done) for job in chosen))
        for sentence, refusal in said:
            if not refusal:
                print(sentence)
        return [sentence for sentence, refusal in said if refusal], missing

    refused, missing = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if refused:
        raise CommandError("; ".join(refused))
    if missing:
        raise MissingError(selection.none_such(missing))


async def _change(cluster: Cluster, job: GPUJob, fields: Mapping[str, Any], *, done: str) -> tuple[str, bool]:
    called = job.status.number or job.metadata.name
    if not jobrows.is_unfinished(job):
        return f"Job {called} has ended already ({jobrows.phase_of(job)})", True
    try:
        await cluster.client.patch(
            GPUJOBS, job.metadata.name, {"spec": dict(fields)}, as_type=GPUJob, namespace=job.metadata.namespace
        )
    except StatusError as error:
        return f"Job {called}: {failures.sentence(error)}", True
    return f"Job {called} {done}.", False
