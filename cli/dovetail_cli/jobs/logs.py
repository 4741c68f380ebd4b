"""What a job's workers have printed, from the API server or the history.

The API server has it while the pods exist, the history afterwards.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.historyquery import JobRecord
from dovetail.api.reasons.problems import LOG_GONE
from dovetail.api.resources import PODS
from dovetail.jobs.runs import is_of_earlier_job
from dovetail.kube.errors import NotFound, StatusError
from dovetail.query.jobs import selection
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster import this_machine
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details
from dovetail_cli.jobs.history import NoHistoryError
from dovetail_cli.jobs.job_view import worker_of
from dovetail_cli.jobs.log_follow import LogFollower, no_log
from dovetail_cli.jobs.log_lines import Prefixed
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError, MissingError

_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue")


def show(
    word: str,
    *,
    follow: bool,
    tail: int | None,
    worker: int | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Print the log of all workers or of one. Raises `CommandError` where there is none."""
    wanted = parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> None:
        try:
            job = await details.find(cluster, wanted=wanted)
        except MissingError as error:
            _tell(
                await details.remembered_or(error, cluster=cluster, wanted=wanted, logs=True), wanted=wanted, tail=tail
            )
            return
        _check(job, worker=worker)
        job = this_machine.job(cluster, job=job)
        pods = await newest_pods(cluster, job=job)
        if not pods and not is_unfinished(job):
            _tell(await _record_of_ended(cluster, wanted=wanted), wanted=wanted, tail=tail)
        elif follow:
            await LogFollower(
                cluster, job=job, worker=worker, tail=tail, write=_write, prefix=_prefixes(job, worker=worker)
            ).run()
        else:
            await _read_all(cluster, job=job, pods=_chosen(pods, job=job, worker=worker), tail=tail)

    try:
        work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    except KeyboardInterrupt:
        if not follow:
            raise


async def newest_pods(cluster: Cluster, *, job: GPUJob) -> dict[int, Pod]:
    """The newest pod of each worker, in the order of their indexes."""
    pods, _ = await cluster.client.list(
        PODS, as_type=Pod, namespace=cluster.namespace, label_selector=f"{names.LABEL_JOB}={job.metadata.name}"
    )
    own = (pod for pod in pods if not is_of_earlier_job(pod, number=job.status.number))
    newest = {worker_of(pod): pod for pod in sorted(own, key=lambda pod: pod.metadata.creation_timestamp or "")}
    return dict(sorted(newest.items()))


async def worker_pod(cluster: Cluster, *, job: GPUJob, worker: int) -> Pod | None:
    """The newest pod of a worker; None without one.

    Raises `CommandError` for a worker that cannot exist.
    """
    _check_worker(job, worker=worker)
    return (await newest_pods(cluster, job=job)).get(worker)


def _check(job: GPUJob, *, worker: int | None) -> None:
    """Raises `CommandError` for a job that has no log of its own, or a worker that cannot exist."""
    if job.spec.array is not None or job.spec.sweep is not None:
        called = job.status.number or job.metadata.name
        raise CommandError(f"job {called} is many tasks, and each has a log of its own: gqueue -a lists them by name")
    if worker is not None:
        _check_worker(job, worker=worker)


def _check_worker(job: GPUJob, *, worker: int) -> None:
    if worker >= job.spec.workers:
        raise CommandError(f"--worker {worker}: this job has {job.spec.workers}, counted from 0")


def _chosen(pods: Mapping[int, Pod], *, job: GPUJob, worker: int | None) -> Mapping[int, Pod]:
    """The pods to read. Raises `CommandError` if there are none, with the reason."""
    chosen = pods if worker is None else {index: pod for index, pod in pods.items() if index == worker}
    if not chosen:
        called, status = job.status.number or job.metadata.name, job.status
        whose = "has no worker now" if worker is None else f"has no worker {worker} now"
        why = f" ({status.reason}: {status.message})" if status.reason else ""
        raise CommandError(f"job {called} {whose}, and so no log: {phase_of(job)}{why}")
    return chosen


def _prefixes(job: GPUJob, *, worker: int | None) -> Callable[[int], str]:
    """What precedes the lines of each worker: nothing where there is only one."""
    if worker is not None or job.spec.workers == 1:
        return lambda _index: ""
    width = len(str(job.spec.workers - 1))
    return lambda index: f"{output.paint(f'worker {index:>{width}}', colour=_COLOURS[index % len(_COLOURS)])} | "


async def _read_all(cluster: Cluster, *, job: GPUJob, pods: Mapping[int, Pod], tail: int | None) -> None:
    """Print the logs of these workers, one after another.

    Raises `CommandError` if the log of one cannot be read, after the logs of the others.
    """
    prefix_of = _prefixes(job, worker=next(iter(pods)) if len(pods) == 1 else None)
    missing = []
    for index, pod in pods.items():
        try:
            data = await _read(cluster, pod=pod, tail=tail)
        except CommandError as error:
            missing.append(str(error))
            continue
        lines = Prefixed(prefix) if (prefix := prefix_of(index)) else None
        _write(lines.feed(data) + lines.end() if lines else data)
    if missing:
        raise CommandError("; ".join(missing))


async def _read(cluster: Cluster, *, pod: Pod, tail: int | None) -> bytes:
    meta = pod.metadata
    try:
        return await cluster.client.log(
            meta.name, namespace=meta.namespace, container=pod.spec.containers[0].name, tail_lines=tail
        )
    except NotFound:
        raise
    except StatusError as error:
        raise CommandError(no_log(pod, error=error)) from error


async def _record_of_ended(cluster: Cluster, *, wanted: selection.Wanted) -> JobRecord:
    """The record of a job whose workers are gone. Raises `CommandError` without a history."""
    try:
        return await details.remembered(cluster, wanted=wanted, logs=True)
    except NoHistoryError as error:
        raise CommandError(f"{_gone(wanted)}, and {error}") from error


def _tell(record: JobRecord, *, wanted: selection.Wanted, tail: int | None) -> None:
    """Print the lines that are kept. Raises `CommandError` without any."""
    if not record.log:
        raise CommandError(f"{_gone(wanted)}; no lines of its log were kept")
    lines = record.log.splitlines(keepends=True)
    _write("".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]).encode())


def _gone(wanted: selection.Wanted) -> str:
    return LOG_GONE(job=wanted.text).message


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
