"""What a job's workers have printed, from the API server or the history.

The API server has it while the pods exist, the history afterwards.
"""

import sys

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import PODS
from dovetail.kube.errors import NotFound, StatusError
from dovetail.query.jobs import selection
from dovetail.query.jobs.selection import parse_one
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details
from dovetail_cli.ui.errors import CommandError, MissingError

_INDEX = "batch.kubernetes.io/job-completion-index"
# As the API server says it of a node without an address: KWOK's have none.
_NO_ADDRESS = "no preferred addresses found"


def show(
    word: str,
    *,
    follow: bool,
    tail: int | None,
    worker: int,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Print it. Raises `CommandError` where nothing is to be had."""
    wanted = parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> None:
        pod = await _pod(cluster, wanted=wanted, worker=worker)
        if pod is None:
            await _remembered(cluster, wanted=wanted, tail=tail)
        elif follow:
            await _follow(cluster, pod=pod, tail=tail)
        else:
            _write(await _read(cluster, pod=pod, tail=tail))

    try:
        work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    except KeyboardInterrupt:
        if not follow:
            raise


async def worker_pod(cluster: Cluster, *, job: GPUJob, worker: int) -> Pod | None:
    """The newest pod of a worker; None without one.

    Raises `CommandError` for a worker that cannot exist.
    """
    if worker >= job.spec.workers:
        raise CommandError(f"--worker {worker}: this job has {job.spec.workers}, counted from 0")
    pods, _ = await cluster.client.list(
        PODS, as_type=Pod, namespace=cluster.namespace, label_selector=f"{names.LABEL_JOB}={job.metadata.name}"
    )
    own = [pod for pod in pods if pod.metadata.annotations.get(_INDEX, "0") == str(worker)]
    return max(own, key=lambda pod: pod.metadata.creation_timestamp, default=None)


async def _pod(cluster: Cluster, *, wanted: selection.Wanted, worker: int) -> Pod | None:
    try:
        job = await details.find(cluster, wanted=wanted)
    except MissingError:
        return None
    pod = await worker_pod(cluster, job=job, worker=worker)
    if pod is None and (why := _nothing_to_read(job)):
        raise CommandError(why)
    return pod


def _nothing_to_read(job: GPUJob) -> str:
    """Why a job without pods has no log and no lines in the history; empty if it has ended."""
    called, status = job.status.number or job.metadata.name, job.status
    if job.spec.array is not None or job.spec.sweep is not None:
        return f"job {called} is many tasks, and each has a log of its own: gqueue -a lists them by name"
    if not is_unfinished(job):
        return ""
    why = f" ({status.reason}: {status.message})" if status.reason else ""
    return f"job {called} has no pods now, and so no log: {phase_of(job)}{why}"


async def _read(cluster: Cluster, *, pod: Pod, tail: int | None) -> bytes:
    meta = pod.metadata
    try:
        return await cluster.client.log(
            meta.name, namespace=meta.namespace, container=pod.spec.containers[0].name, tail_lines=tail
        )
    except NotFound:
        raise
    except StatusError as error:
        raise _no_log(pod, error=error) from error


async def _follow(cluster: Cluster, *, pod: Pod, tail: int | None) -> None:
    meta = pod.metadata
    try:
        async with cluster.client.follow_log(
            meta.name, namespace=meta.namespace, container=pod.spec.containers[0].name, tail_lines=tail
        ) as chunks:
            async for chunk in chunks:
                _write(chunk)
    except StatusError as error:
        raise _no_log(pod, error=error) from error


def _no_log(pod: Pod, *, error: StatusError) -> CommandError:
    told = error.message or error.reason
    if _NO_ADDRESS in told:
        told = f"its node {pod.spec.node_name} has no kubelet that could be asked: simulated nodes keep no logs"
    return CommandError(f"no log of {pod.metadata.name}: {told}")


async def _remembered(cluster: Cluster, *, wanted: selection.Wanted, tail: int | None) -> None:
    record = await details.remembered(cluster, wanted=wanted, logs=True)
    if not record.log:
        raise CommandError(f"job {wanted.text} has ended and its pods are gone; no lines of its log were kept")
    lines = record.log.splitlines(keepends=True)
    _write("".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]).encode())


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
