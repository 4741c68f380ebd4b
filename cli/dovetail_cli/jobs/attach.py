"""A shell in a worker's container, through kubectl, which implements the terminal protocol."""

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from dovetail.kube.auth.connection import default_kubeconfigs
from dovetail.query.jobs.selection import parse_one
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details, logs
from dovetail_cli.ui.errors import CommandError

_SHELL: Final = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")


def attach(
    word: str,
    *,
    command: Sequence[str],
    worker: int,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Become `kubectl exec` into the worker. Raises `CommandError` where that cannot be."""
    wanted = parse_one(word, field="JOB")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CommandError("gjob attach runs `kubectl exec`, and there is no kubectl on PATH")

    async def go(cluster: Cluster) -> tuple[str, str]:
        job = await details.find(cluster, wanted=wanted)
        pod = await logs.worker_pod(cluster, job=job, worker=worker)
        if pod is None or pod.status.phase != "Running":
            raise CommandError(f"worker {worker} of job {word} does not run ({job.status.phase or 'Queued'})")
        return pod.metadata.namespace, pod.metadata.name

    where, name = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)
    options = [f"--{key}={value}" for key, value in (("kubeconfig", _file(kubeconfig)), ("context", context)) if value]
    terminal = ["-it"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-i"]
    sys.stdout.flush()
    os.execv(kubectl, ["kubectl", *options, "exec", *terminal, "-n", where, name, "--", *(command or _SHELL)])  # noqa: S606 - no shell is wanted


def _file(kubeconfig: str | None) -> str | None:
    """The kubeconfig to pass to kubectl, so that it uses the same cluster as these commands."""
    if kubeconfig or os.environ.get("KUBECONFIG"):
        return kubeconfig
    return next((str(path) for path in default_kubeconfigs() if path.exists()), None)
