"""A shell in a worker's container, or its port on this machine, through kubectl."""

import sys
from collections.abc import Sequence
from typing import Final

from dovetail.formats.quantities import read_whole
from dovetail.query.jobs.selection import parse_one
from dovetail_cli.cluster import kubectl, this_machine
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details, logs
from dovetail_cli.submit.terminal import SHELL
from dovetail_cli.ui.errors import CommandError, UsageError

_MOST: Final = 65535
_HERE: Final = (
    "jobs on this machine are your own processes, and their ports are this machine's: gbatch --interactive gives a new "
    "job this terminal"
)


def attach(
    word: str,
    *,
    command: Sequence[str],
    port: str | None,
    worker: int,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Become `kubectl exec` or `kubectl port-forward`.

    Raises `CommandError` where that cannot be.
    """
    wanted = parse_one(word, field="JOB")
    forwarded = None if port is None else _ports(port)
    if forwarded is not None and command:
        raise UsageError(f'--port {port} and the command "{" ".join(command)}": give one of them')
    if command and command[0].startswith("-"):
        raise UsageError(
            f'"{command[0]}" comes too late: options come before the job, such as gjob attach --port 8888 7'
        )
    program = kubectl.find(kubeconfig=kubeconfig, context=context, needed_for="gjob attach")

    async def go(cluster: Cluster) -> tuple[str, str]:
        job = await details.find(cluster, wanted=wanted)
        if this_machine.is_one(cluster):
            raise CommandError(_HERE)
        pod = await logs.worker_pod(cluster, job=job, worker=worker)
        if pod is None or pod.status.phase != "Running":
            raise CommandError(f"worker {worker} of job {word} does not run ({job.status.phase or 'Queued'})")
        return pod.metadata.namespace, pod.metadata.name

    where, name = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    sys.stdout.flush()
    if forwarded is not None:
        program.become("port-forward", "-n", where, f"pod/{name}", forwarded)
    else:
        terminal = ["-it"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-i"]
        program.become("exec", *terminal, "-n", where, name, "--", *(command or SHELL))


def _ports(text: str) -> str:
    """`8888` or `LOCAL:8888`, as kubectl takes them. Raises `UsageError`."""
    parts = text.split(":")
    if len(parts) > 2 or not all(1 <= read_whole(part, otherwise=0) <= _MOST for part in parts):
        raise UsageError(
            f'--port "{text}": write a port of the container from 1 to {_MOST}, such as 8888, or one of this machine '
            "before it, such as 9999:8888"
        )
    return text
