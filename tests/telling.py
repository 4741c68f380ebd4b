"""What a cluster looked like when a test failed on it: the next failure is to be understood from its output alone."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dovetail_sandbox import cluster, realnode
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines

_LOGS: Final = {"operator": 60, "extender": 30, "agent": 15, "webhook": 10}
_MOST_LINES: Final = 300


def of(fixtures: dict[str, Any]) -> str:
    """Jobs, pods, events and the ends of the logs of the sandbox that a test had; empty where it had none."""
    found = fixtures.get("sandbox")
    sandbox = getattr(found, "cluster", found)
    if not isinstance(sandbox, Cluster) or not sandbox.folder.exists():
        return ""
    try:
        return "\n".join([*_objects(sandbox, namespace=fixtures.get("namespace")), *_programs(sandbox)])
    except Exception as error:  # noqa: BLE001 - a look that fails must not end the session, nor hide why the test failed
        return f"It could not be looked at: {error!r}"


def _objects(sandbox: Cluster, *, namespace: str | None) -> list[str]:
    kubectl = locate.resolve(["kubectl"], report=Lines(sys.stderr))["kubectl"]
    where = ("--all-namespaces",) if namespace is None else (f"--namespace={namespace}",)
    looks = (
        ("get", "gpujobs,jobs,pods", "--all-namespaces", "--output=wide"),
        ("get", "gpujobs", *where, "--output=yaml"),
        ("get", "events", *where, "--sort-by=.metadata.creationTimestamp"),
    )
    return [_asked([str(kubectl), f"--kubeconfig={sandbox.kubeconfig}", *words]) for words in looks]


def _asked(command: Sequence[str]) -> str:
    heading = f"$ kubectl {' '.join(command[2:])}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return f"{heading}\n(no answer within 30 s)"
    return "\n".join([heading, *(done.stdout + done.stderr).splitlines()[-_MOST_LINES:]])


def _programs(sandbox: Cluster) -> list[str]:
    observed = sandbox.observed()
    states = [f"{name}: {each.state}, {each.restarts} restarts {each.last_exit}" for name, each in observed.items()]
    logs = [
        f"--- the end of the log of {name}\n{cluster.tail(Path(observed[name].log), lines=lines)}"
        for name, lines in _LOGS.items()
        if name in observed
    ]
    return [*states, *logs, *_real_node(sandbox)]


def _real_node(sandbox: Cluster) -> list[str]:
    """Whether the real node runs, where there is one: without it pods there wait for their containers in silence."""
    if not sandbox.state().real_node:
        return []
    return [f"--- real node: {realnode.trouble(sandbox.folder) or 'runs'}"]
