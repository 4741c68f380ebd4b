"""Changes of jobs: held, released, updated, and resized to what they need."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from dovetail.answers.waste import RightSizeRow
from dovetail.api.gpujob import GPUJob, Moves
from dovetail.api.reasons.clause import Sentence
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import KubeError, StatusError
from dovetail.query.jobs import selection
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import identity
from dovetail_cli.cluster.connection import Cluster, list_jobs, work
from dovetail_cli.jobs import details
from dovetail_cli.submit.manifest import check_group
from dovetail_cli.submit.options.of_spec import one_of
from dovetail_cli.ui import error_messages, times
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError

_NONE = "none"
_RELEASED = {"suspend": False}
# What to change: in every job the same, or what a job takes for it.
Fields = Mapping[str, Any] | Callable[[GPUJob], Mapping[str, Any]]


def released(at: str | None) -> Fields:
    """The fields that let a job go, at a time or at once. Raises `UsageError`."""
    if at is None:
        return _RELEASED
    begin = times.begin_time(at, now=times.local_now(), option="--at")
    return lambda job: {"suspend": False, **_beginning(job, begin=begin, option="--at")}


def _beginning(job: GPUJob, *, begin: str, option: str) -> dict[str, Any]:
    """The field that lets a job begin at a time. Raises `CommandError` for one that has begun."""
    if phase_of(job) in {"Starting", "Running"} and job.status.tasks is None:
        called = job.status.number or job.metadata.name
        raise CommandError(f"Job {called} has begun already: {option} is about jobs that wait")
    return {"beginTime": begin}


def updated(
    *,
    priority: int | None,
    time: str | None,
    begin: str | None,
    max_retries: int | None,
    max_concurrent: int | None,
    group: str | None = None,
    moves: str | None = None,
) -> Fields:
    """The fields that `gjob update` changes. Raises `UsageError` when there is none."""
    wanted: dict[str, Any] = {}
    if group is not None:
        # Without a group there is no limit for it either.
        leaves = group == _NONE
        wanted |= {"group": None, "maxConcurrent": None} if leaves else {"group": check_group(group)}
    if priority is not None:
        wanted["priority"] = priority
    if time is not None:
        wanted["activeDeadlineSeconds"] = None if time == _NONE else times.limit_seconds(time)
    if max_retries is not None:
        wanted["backoffLimit"] = max_retries
    if moves is not None:
        wanted["moves"] = None if moves == _NONE else one_of(moves, option="--moves", allowed=(*get_args(Moves), _NONE))
    of_the_job: list[Callable[[GPUJob], Mapping[str, Any]]] = []
    if begin == _NONE:
        wanted["beginTime"] = None
    elif begin is not None:
        of_the_job.append(partial(_beginning, begin=times.begin_time(begin, now=times.local_now()), option="--begin"))
    if max_concurrent is not None:
        of_the_job.append(partial(at_a_time, most=max_concurrent, group=group))
    if not wanted and not of_the_job:
        raise UsageError("say what to change: -p, -t, --begin, --max-retries, --group, --moves or --max-concurrent")
    if not of_the_job:
        return wanted
    return lambda job: {**wanted, **{key: value for fields in of_the_job for key, value in fields(job).items()}}


def at_a_time(job: GPUJob, *, most: int, group: str | None = None) -> dict[str, Any]:
    """The fields that let that many tasks, or jobs of a group, run at a time.

    `group` is the one that the job joins. Raises `CommandError`.
    """
    array, sweep, spec = job.spec.array, job.spec.sweep, job.spec
    stays = group is None and spec.group is not None
    many = array is not None or sweep is not None
    if group not in {None, _NONE} or (stays and (spec.max_concurrent is not None or not many)):
        return {"maxConcurrent": most}
    if array is not None and "%" in array.indexes:
        return {"array": {"indexes": f"{array.indexes.partition('%')[0]}%{most}"}}
    if not many:
        called = job.status.number or job.metadata.name
        raise CommandError(
            f"Job {called} is neither an array nor a sweep, and in no group: --max-concurrent is about tasks, or with "
            "--group NAME about the jobs of a group"
        )
    return {"sweep" if array is None else "array": {"parallelism": most}}


def change(
    words: Sequence[str],
    *,
    fields: Fields,
    done: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Change each selected job and report the result.

    Raises last what was refused or missing.
    """
    wanted = selection.parse_ids(words, field="gjob")

    async def go(cluster: Cluster) -> tuple[list[str], list[str]]:
        words = await identity.of_caller(wanted, cluster=cluster)
        chosen, missing = selection.select(await list_jobs(cluster), wanted=words)
        said = await asyncio.gather(*(_change(cluster, job=job, fields=fields, done=done) for job in chosen))
        for sentence, refusal in said:
            if not refusal:
                print(sentence)
        return [sentence for sentence, refusal in said if refusal], missing

    refused, missing = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    if refused:
        raise CommandError("; ".join(refused))
    if missing:
        raise MissingError(selection.none_such(missing))


async def _change(cluster: Cluster, *, job: GPUJob, fields: Fields, done: str) -> tuple[str, bool]:
    called = job.status.number or job.metadata.name
    if not is_unfinished(job):
        return f"Job {called} has ended already ({phase_of(job)})", True
    try:
        wanted = fields(job) if callable(fields) else fields
        await cluster.client.patch(
            GPUJOBS,
            name=job.metadata.name,
            patch={"spec": dict(wanted)},
            as_type=GPUJob,
            namespace=job.metadata.namespace,
        )
    except CommandError as error:
        return str(error), True
    except StatusError as error:
        return f"Job {called}: {error_messages.sentence(error)}", True
    except KubeError as error:
        return f"Job {called}: {error_messages.explain(error)}", True
    if fields == _RELEASED and not job.spec.suspend and job.status.tasks is None:
        return f"Job {called} is not held.", False
    return f"Job {called} {done}.", False


def resize(
    word: str,
    *,
    withdraw: bool,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> str:
    """Accept the right size of the job that is meant, or withdraw that; say what it requests."""
    # The other commands start without the engine, which a request needs.
    from dovetail.query import right_sizes

    wanted = selection.parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        job, now = await details.find(cluster, wanted=wanted), times.utc_now()
        if withdraw:
            if not dry_run:
                await _write(cluster, job=job, change=right_sizes.WITHDRAWN)
            return f"Job {_called(job)} requests {_written(job)} {_when(job)}, as it was submitted."
        job = await details.with_figures(cluster, job=job, now=now)
        change = right_sizes.accepted(job, now=now)
        if isinstance(change, Sentence):
            raise CommandError(str(change))
        if not dry_run:
            await _write(cluster, job=job, change=change)
        return resized(job, found=right_sizes.measured_size(job, now=now)) + (
            " Nothing was changed." if dry_run else ""
        )

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def resized(job: GPUJob, *, found: RightSizeRow | None) -> str:
    """What a job with a right size requests once it starts again, and why."""
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
